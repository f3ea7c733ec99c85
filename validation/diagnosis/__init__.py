"""What a difference may come from: things that are no parity fault but look like one, and known look-alikes.

`before` reads file and model before anything runs; `explain` looks for a cause after a cell failed. Each kind of cause
has a file of its own. A finding never changes a verdict: it says how much of the error it explains.
"""

from .finding_causes import before, explain, explain_golden, of_the_original

__all__ = ["before", "explain", "explain_golden", "of_the_original"]
