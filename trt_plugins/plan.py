"""What there is to compile for a plugin library: everything that the declarations decide, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["KernelUnit", "PluginPlan", "make_plan"]


@dataclass(frozen=True, slots=True)
class KernelUnit:
    """An operator's CUDA object: the generated source, the user's file that it includes, the one symbol it shows.

    `signature`: what the kernel's launcher must look like, for messages.
    """

    operator: str
    source: str
    file: str
    symbol: str
    signature: str
    rows: int  # combinations of dtypes


@dataclass(frozen=True, slots=True)
class PluginPlan:
    """A library. `operators`: their entries in the manifest; `absent`: files that would be taken for a kernel instead."""

    kernels: tuple[KernelUnit, ...]
    table: str
    operators: tuple[dict[str, Any], ...]
    absent: tuple[str, ...]
    notes: tuple[str, ...]  # what the author of the operators should know

    @property
    def holds(self) -> bool:
        """Whether the kernels are still where they were found."""
        found = all(Path(kernel.file).is_file() for kernel in self.kernels)
        return found and not any(Path(path).is_file() for path in self.absent)

    @property
    def names(self) -> tuple[str, ...]:
        """ONNX names of the operators."""
        return tuple(f"{o['plugin_namespace']}::{o['plugin_name']}" for o in self.operators)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(record: Any) -> PluginPlan:
        """The plan in a record. Raises KeyError or TypeError where it is none."""
        return PluginPlan(
            tuple(KernelUnit(**k) for k in record["kernels"]),
            record["table"],
            tuple(record["operators"]),
            tuple(record["absent"]),
            tuple(record["notes"]),
        )


def make_plan(
    operators: Sequence[Operator], begin: Callable[[Sequence[KernelUnit]], None] | None = None
) -> PluginPlan:
    """The plan for these operators. Raises UsageError and DeclarationError with what stands in the way.

    `begin`: called with the kernels as soon as they are known, before the shape rules, which take longer, are derived.
    """
    from ..native.cuda_signature import cuda_signature
    from ..native.kernel_files import find_kernel, kernel_places
    from ..native.signature import kernel_rows
    from .carried import carried_by_tensorrt, plugin_shapes
    from .generated import kernel_source, launcher_symbol, plugin_table
    from .plugin_entry import describe

    carried = [carried_by_tensorrt(op) for op in operators]
    files = [find_kernel(op, ".cuh") for op in operators]
    kernels = tuple(
        KernelUnit(
            op.name,
            kernel_source(op, file.name),
            str(file),
            launcher_symbol(op),
            cuda_signature(op),
            len(kernel_rows(op)),
        )
        for op, file in zip(carried, files, strict=True)
    )
    if begin is not None:
        begin(kernels)
    shapes = {op.name: plugin_shapes(op) for op in carried}
    return PluginPlan(
        kernels,
        plugin_table(carried, shapes),
        tuple(describe(op, shapes[op.name]) for op in carried),
        tuple(str(place) for op in operators for place in kernel_places(op, ".cuh") if not place.is_file()),
        _notes(operators),
    )


def _notes(operators: Sequence[Operator]) -> tuple[str, ...]:
    from ..native.observed_shapes import untold_attributes
    from .carried import left_out

    dropped: dict[tuple[str, ...], list[str]] = {}
    for op in operators:
        if left_out(op):
            dropped.setdefault(left_out(op), []).append(op.name)
    return (
        *(
            f"without {', '.join(types)}, which TensorRT's tensors cannot be: {', '.join(names)}"
            for types, names in dropped.items()
        ),
        *(
            f"{op.name}: every sample has the same `{name}`, so whether other texts give outputs of other shapes was "
            "not seen: let a sample have another one"
            for op in operators
            for name in untold_attributes(op)
        ),
    )
