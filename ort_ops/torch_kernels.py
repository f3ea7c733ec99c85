"""The CPU kernels in PyTorch itself: the same library, registered as the CPU implementation of the torch operators."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..native.cpu_library import CpuLibrary

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["use_in_torch"]


def use_in_torch(library: str | Path, ops: Operator | Iterable[Operator] | None = None) -> list[str]:
    """Let torch run operators by the kernels in `library`, on CPU tensors, for the rest of the process.

    ::

        deployops.ort_ops.use_in_torch(deployops.ort_library())

    Gradients, fake kernels and torch.compile are untouched; `op.reference` still is the reference, but a model
    that calls the operator now runs the kernel: do not compare a runtime with it, it would be compared with itself.

    Args:
        library: a library that `deployops compile` made.
        ops: an operator, or several; by default all declared ones that the library has.

    Returns their torch names.

    Raises UsageError where the library has no kernel for one of `ops`, or was built from another declaration.
    """
    from ..symbolic import registry
    from ..symbolic.operator import Operator

    kernels = CpuLibrary(library)
    if ops is None:
        registry.load_builtin()
        known = [op for op in registry.all_operators() if op.name in kernels.operators]
        chosen = [op for op in known if op.custom_op is not None]
    else:
        chosen = [ops] if isinstance(ops, Operator) else list(ops)
    for op in chosen:
        kernels.check(op)
        if op.custom_op is None:
            raise UsageError(
                f"{op.name} is adopted: torch has an implementation of it, which stays. "
                "torch.library.impl replaces it, if that is wanted"
            )
    for op in chosen:
        op.custom_op.register_kernel("cpu")(_implementation(kernels, op))
    return [op.name for op in chosen]


def _implementation(kernels: CpuLibrary, op: Operator) -> Any:
    fresh = sum(o.mutates is None for o in op.interface.outputs)

    def run(*args: Any, **kwargs: Any) -> Any:
        outputs = kernels.run(op, args, kwargs)[:fresh]
        return None if not outputs else outputs[0] if len(op.returns) == 1 else tuple(outputs)

    return run
