"""An engine on disk, as `build_engine` returns it and as the command line shows it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...symbolic.shown_bytes import shown_bytes
from .flavor import NAMES
from .profile_text import profile_text
from .record import EngineRecord
from .sidecar import sidecar_path

__all__ = ["Engine", "gpus"]


@dataclass(frozen=True, slots=True)
class Engine:
    """A serialised engine on disk.

    Attributes:
        path: the file; its sidecar is beside it, `<path>.json`.
        record: what is known of it.
        cached: whether it had been built before.
    """

    path: Path
    record: EngineRecord
    cached: bool

    @property
    def sidecar(self) -> Path:
        return sidecar_path(self.path)

    def to_dict(self) -> dict[str, Any]:
        """For `--json`; plain data."""
        return {
            "path": str(self.path),
            "sidecar": str(self.sidecar),
            "cached": self.cached,
            **asdict(self.record),
        }

    def summary(self) -> str:
        """What the command line prints."""
        record = self.record
        how = "built before, taken from the cache" if self.cached else f"{record.build_seconds:.1f} s"
        lines = [
            f"{self.path}  ({shown_bytes(record.bytes)}, {NAMES[record.flavor]} {record.tensorrt}, {how})",
            f"  for       {gpus(record)}",
            f"  types     {_types(record)}",
            *(f"  {'profile' if k == 0 else '':9} {profile_text(p)}" for k, p in enumerate(record.profiles)),
            *(
                f"  {'plugins' if k == 0 else '':9} {p.name}{' (in the engine)' if p.embedded else ', to be loaded first'}"
                for k, p in enumerate(record.plugins)
            ),
            *(f"  warning: {text}" for text in record.warnings),
            "  not checked: that it runs and computes the right values; that needs a GPU",
        ]
        return "\n".join(lines)


def gpus(record: EngineRecord) -> str:
    """Which GPUs it was built for."""
    if record.hardware_compatible == "ampere+":
        return "compute capability 8.0 and newer"
    listed = ", ".join(record.archs)
    same = ", and others of the same compute capability" if record.hardware_compatible else ""
    return f"{listed} ({record.gpu}{same})" if record.gpu else listed + same


def _types(record: EngineRecord) -> str:
    if not record.kept_float32:
        return record.precision
    operators = dict.fromkeys(kept.operator for kept in record.kept_float32)
    count = len(record.kept_float32)
    return (
        f"{record.precision}; {count} node{'s' if count > 1 else ''} stay{'' if count > 1 else 's'} float32: "
        f"{', '.join(operators)} (the sidecar says which and why)"
    )
