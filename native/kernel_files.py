"""Where the kernel of an operator is: a file named after it, beside the declaration or in `kernels/` there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from .signature import function_name, signature

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["INCLUDE", "find_kernel", "kernel_places"]

_ROOT = Path(__file__).resolve().parent.parent
_SHIPPED = _ROOT / "kernels"
INCLUDE = _SHIPPED / "include"  # the headers that kernels stand on


def kernel_places(op: Operator, suffix: str) -> list[Path]:
    """Where a kernel is looked for, in order."""
    name = f"{function_name(op)}{suffix}"
    if not op.source or not Path(op.source).is_file():
        return []
    folder = Path(op.source).resolve().parent
    if folder == _ROOT / "symbolic" / "operators":
        return [_SHIPPED / name]
    return [folder / "kernels" / name, folder / name]


def find_kernel(op: Operator, suffix: str = ".h") -> Path:
    """The kernel file: `.h` for the CPU, `.cuh` for CUDA.

    Raises UsageError where there is none, with the places looked at and the signature to write.
    """
    places = kernel_places(op, suffix)
    for path in places:
        if path.is_file():
            return path
    if not places:
        raise UsageError(
            f"{op.name} was declared in no file, so its kernel has no place: put the declaration into a .py file"
        )
    from .cuda_signature import cuda_signature
    from .shape_rules import FromKernel, shape_rules

    listed = " or ".join(str(p) for p in places)
    if suffix == ".cuh":
        wanted = cuda_signature(op)
    else:
        by_kernel = [name for name, rule in shape_rules(op).items() if isinstance(rule, FromKernel)]
        wanted = signature(op, by_kernel)
    raise UsageError(
        f"{op.name} has no kernel: there is no {listed}. Write one:\n{wanted};\n"
        + (
            ""
            if suffix == ".cuh"
            else f"(`deployops ops new {op.name}` with the same --ops starts one; `--ops FILE::NAME` is one operator of a file)"
        )
    )
