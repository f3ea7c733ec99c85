"""Whether an exported model still computes what its PyTorch original does.

`validate.py` has the steps, `original.py` what the original says, `backends/` how each side runs,
`metrics.py` the differences as data, `parity.py` the budget and the judgement, `latency.py` the timing,
`report.py` the verdict. Nothing here exports or repairs a model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backends import Sample as Sample
    from .report import Report as Report
    from .validate import validate as validate

__all__ = ["Report", "Sample", "validate"]

_WHERE = {"Report": ".report", "Sample": ".backends", "validate": ".validate"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_WHERE[name], __name__), name)
    globals()[name] = found  # importing the submodule `validate` has put a module under that name
    return found
