"""Whether an exported model still computes what its PyTorch original does.

`files.py` opens what is compared, `steps.py` has the steps, `sides.py` runs both sides, `original.py` has what the
original says, `backends/` how each side runs, `inputs/` on what, `parity/` the budget and the judgement, `diagnosis/` and
`bisection/` where a difference comes from, `latency/` the timing, `record.py` the report as data, `verdict.py` the verdict,
`reports/` its renderings. Nothing here exports or repairs a model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_EXPORTS = {"Report": ".record", "Sample": ".backends", "validate": ".files"}

__all__ = ["Report", "Sample", "validate"]

if TYPE_CHECKING:
    from .backends import Sample as Sample
    from .files import validate as validate
    from .record import Report as Report


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name], __name__), name)
