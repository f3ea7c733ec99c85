"""Where an output begins to diverge: the first node that is out of its budget though its inputs are right.

`bisect` (`search.py`) runs parts of the file from the reference's values. The reference is the original, traced as for
an export, where the file's values can be matched to its own (`matching.py`); else the file itself, evaluated node by
node, of which only the runtime's faults can be found.
"""

from .search import bisect

__all__ = ["bisect"]
