"""What one check found over many samples, summed up into one status. Nothing passes silently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["CheckResult", "Status", "Tally"]

Status = Literal["passed", "failed", "not checked"]
_SHOWN = 3  # failures of one check that are told in full


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of one check of an operator. `detail`: what it covered, or what is wrong and what to do."""

    operator: str
    check: str
    status: Status
    detail: str = ""


@dataclass(slots=True)
class Tally:
    """Collects passes, failures, and what could not be checked."""

    operator: str
    check: str
    passed: int = 0
    failures: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def result(self, noun: str = "run", note: str = "") -> CheckResult:
        """Failed where anything failed; passed where something passed and nothing failed."""
        unchecked = _summed(self.unchecked)
        if self.failures:
            shown = list(dict.fromkeys(self.failures))
            more = [f"and {len(shown) - _SHOWN} more like these"] if len(shown) > _SHOWN else []
            return self._made("failed", "\n".join([*shown[:_SHOWN], *more]))
        if not self.passed:
            return self._made("not checked", "; ".join(unchecked) or "no samples")
        covered = f"{self.passed} {noun}" + ("" if self.passed == 1 else "s")
        left = [f"not checked: {'; '.join(unchecked)}"] if unchecked else []
        return self._made("passed", "; ".join([covered, *([note] if note else []), *left]))

    def _made(self, status: Status, detail: str) -> CheckResult:
        return CheckResult(self.operator, self.check, status, detail)


def _summed(reasons: Sequence[str]) -> list[str]:
    """Equal reasons once, with how often."""
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    return [r if n == 1 else f"{n} × {r}" for r, n in counts.items()]
