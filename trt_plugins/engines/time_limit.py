"""How long a build may take."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from ...errors import UsageError

__all__ = ["TimeLimit"]


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """`seconds`: of the whole build, None for no limit; `ends`: on the clock of `time.monotonic`."""

    seconds: float | None
    ends: float

    @classmethod
    def of(cls, seconds: float | None) -> TimeLimit:
        """From now on. Raises UsageError for what is no time."""
        if seconds is None:
            return cls(None, math.inf)
        number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if not number or not 0 < seconds < math.inf:
            raise UsageError(
                f"timeout {seconds!r:.60}: expected a number of seconds, more than 0; or none at all"
            )
        return cls(float(seconds), time.monotonic() + seconds)

    @property
    def left(self) -> float | None:
        """Seconds; 0 where it is over, None without a limit."""
        return None if self.seconds is None else max(0.0, self.ends - time.monotonic())
