"""A whole comparison in a child process, so that an original that crashes, hangs or eats the memory still gets a report.

The original runs native code too: custom operators. `journal.py` is what the comparison writes as it goes, `entries.py`
its data and how it becomes a report when the process ends early, `supervised.py` the parent, `comparison.py` the child.
The parent loads no torch. How a single backend is kept apart is the matter of `backends/`.
"""

from __future__ import annotations

from .entries import Heading, Planned, Running
from .journal import Journal, NullJournal
from .supervised import supervised

__all__ = ["Heading", "Journal", "NullJournal", "Planned", "Running", "supervised"]
