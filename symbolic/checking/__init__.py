"""`deployops ops check`: does everything that a declaration says agree? And the lock of released signatures.

`operator_check` runs the checks one after another and prints their table; each other `*_check` file holds one
thing against the reference (fake kernel, gradient, body). `sample_runs` runs a sample in one way for all of
them, `tally` sums up what was found. What an operator means is not here, but in the package above.
"""
