"""What there is to compile for a library of CUDA kernels: everything that the declarations decide, as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["CudaPlan", "CudaUnit", "cuda_unit"]


@dataclass(frozen=True, slots=True)
class CudaUnit:
    """An operator's CUDA object: the generated source, the user's file that it includes, the one symbol it shows.

    `signature`: what the kernel's launcher must look like, for messages. `rows`: combinations of dtypes.
    """

    operator: str
    source: str
    file: str
    symbol: str
    signature: str
    rows: int

    @property
    def object_name(self) -> str:
        return f"{self.operator} (CUDA)"


@dataclass(frozen=True, slots=True)
class CudaPlan:
    """A library.

    Attributes:
        names: ONNX names of the operators.
        table: the source of the table of operators.
        operators: their entries in the manifest.
        absent: files that would be taken for a kernel instead.
        notes: what the author of the operators should know.
    """

    units: tuple[CudaUnit, ...]
    names: tuple[str, ...]
    table: str
    operators: tuple[dict[str, Any], ...]
    absent: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the kernels are still where they were found."""
        found = all(Path(unit.file).is_file() for unit in self.units)
        return found and not any(Path(path).is_file() for path in self.absent)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(record: Any) -> CudaPlan:
        """The plan in a record. Raises KeyError or TypeError where it is none."""
        return CudaPlan(
            tuple(CudaUnit(**u) for u in record["units"]),
            tuple(record["names"]),
            record["table"],
            tuple(record["operators"]),
            tuple(record["absent"]),
            tuple(record["notes"]),
        )


def cuda_unit(op: Operator, kernel: Path, source: str, symbol: str) -> CudaUnit:
    """The unit of an operator. `kernel`: its `.cuh`; `source`: generated, showing `symbol`."""
    from .cuda_signature import cuda_signature
    from .signature import kernel_rows

    return CudaUnit(op.name, source, str(kernel), symbol, cuda_signature(op), len(kernel_rows(op)))
