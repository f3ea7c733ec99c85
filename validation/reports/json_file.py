"""The report as JSON, written and read back."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..verdict import coverage

if TYPE_CHECKING:
    from ..record import Report

__all__ = ["to_dict"]


def to_dict(report: Report) -> dict[str, Any]:
    """For JSON. NaN and infinities become the strings "nan", "inf", "-inf": JSON has no such numbers."""
    checked, every = coverage(report)
    out = {
        "verdict": report.verdict,
        "exit_code": report.exit_code,
        "coverage": {"checked": checked, "all": every},
        **asdict(report),
    }
    for written, cell in zip(out["cells"], report.cells, strict=True):
        written["used"] = cell.used
    plain: dict[str, Any] = _plain(out)
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value
