"""What an export returns: the file, what is in it, and what the user must know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..symbolic.shown_bytes import shown_bytes

__all__ = ["ExportedModel", "Note", "TensorSpec"]


@dataclass(frozen=True, slots=True)
class Note:
    """Something said about the export. `warning`: the model may not be what the user wanted."""

    level: Literal["warning", "info", "not checked"]
    text: str

    def __str__(self) -> str:
        return self.text if self.level == "info" else f"{self.level}: {self.text}"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output: torch dtype name; dims are sizes or names."""

    name: str
    dtype: str
    dims: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.dims))}]"


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """A checked ONNX model on disk."""

    path: Path
    files: tuple[Path, ...]
    kind: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    custom_nodes: Mapping[str, int]  # "domain::Type" -> how many
    custom_ops: str  # function, node or standard; mixed: bodies for those operators that have one
    nodes: int
    opset: int
    bytes: int
    digest: str
    checked_sizes: tuple[Mapping[str, int], ...]  # sizes at which it ran and agreed with the original
    seconds: Mapping[str, float]  # by step
    notes: tuple[Note, ...]

    def to_dict(self) -> dict[str, Any]:
        """For `--json`; plain data."""
        tensors = {
            key: [{"name": t.name, "dtype": t.dtype, "dims": list(t.dims)} for t in value]
            for key, value in (("inputs", self.inputs), ("outputs", self.outputs))
        }
        return {
            "path": str(self.path),
            "files": [str(f) for f in self.files],
            "kind": self.kind,
            **tensors,
            "custom_nodes": dict(self.custom_nodes),
            "custom_ops": self.custom_ops,
            "nodes": self.nodes,
            "opset": self.opset,
            "bytes": self.bytes,
            "digest": self.digest,
            "checked_sizes": [dict(s) for s in self.checked_sizes],
            "seconds": {k: round(v, 3) for k, v in self.seconds.items()},
            "notes": [{"level": n.level, "text": n.text} for n in self.notes],
        }

    def summary(self) -> str:
        """What the command line prints."""
        custom = ", ".join(f"{n} × {name}" for name, n in self.custom_nodes.items()) or "none"
        how = {
            "function": "with bodies", "mixed": "some with bodies", "node": "without bodies", "standard": "expanded"
        }[self.custom_ops]  # fmt: skip
        runs = "; ".join(
            ", ".join(f"{n}={s}" for n, s in sizes.items()) or "as given" for sizes in self.checked_sizes
        )
        lines = [
            f"{self.path}  ({shown_bytes(self.bytes)}, opset {self.opset}, {self.nodes} nodes, {sum(self.seconds.values()):.1f} s)",
            f"  from     {self.kind}",
            *(f"  {'input' if i == 0 else ''!s:8} {t}" for i, t in enumerate(self.inputs)),
            *(f"  {'output' if i == 0 else ''!s:8} {t}" for i, t in enumerate(self.outputs)),
            f"  custom   {custom}" + (f" ({how})" if self.custom_nodes else ""),
            f"  ran      {runs}" if self.checked_sizes else "  ran      not checked",
            *(f"  {n}" for n in self.notes),
        ]
        return "\n".join(lines)
