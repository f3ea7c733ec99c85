"""What one check found over many samples, summed up into one status. Nothing passes silently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    unchecked: list[str] = field(default_factory=list)
    _faults: dict[str, list[str]] = field(default_factory=dict)  # what is wrong -> where it was seen

    def fail(self, fault: str, where: object = "") -> None:
        """Note a fault; the same one in many places is told once, with the first place."""
        self._faults.setdefault(fault, []).append(str(where))

    @property
    def failed(self) -> bool:
        return bool(self._faults)

    @property
    def faults(self) -> Mapping[str, Sequence[str]]:
        """What is wrong, and in which runs."""
        return self._faults

    def result(self, noun: str = "run", note: str = "") -> CheckResult:
        """Failed where anything failed; passed where something passed and nothing failed."""
        unchecked = _summed(self.unchecked)
        if self._faults:
            shown = [_told(fault, places) for fault, places in self._faults.items()]
            more = [f"and {len(shown) - _SHOWN} more like these"] if len(shown) > _SHOWN else []
            return self._made("failed", "\n".join([*shown[:_SHOWN], *more]))
        if not self.passed:
            return self._made("not checked", "; ".join(unchecked) or "no samples")
        covered = f"{self.passed} {noun}" + ("" if self.passed == 1 else "s")
        left = [f"not checked: {'; '.join(unchecked)}"] if unchecked else []
        return self._made("passed", "; ".join([covered, *([note] if note else []), *left]))

    def _made(self, status: Status, detail: str) -> CheckResult:
        return CheckResult(self.operator, self.check, status, detail)


def _told(fault: str, places: Sequence[str]) -> str:
    if not places[0]:
        return fault
    others = len(set(places)) - 1
    return f"{places[0]}{f' and {others} more' if others else ''}: {fault}"


def _summed(reasons: Sequence[str]) -> list[str]:
    """Equal reasons once, with how often."""
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    return [r if n == 1 else f"{n} × {r}" for r, n in counts.items()]
