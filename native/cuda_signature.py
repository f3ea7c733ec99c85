"""What a CUDA kernel's launcher looks like, and the entries that adapters call: the same for every device runtime.

::

    template <class T>
    cudaError_t swish(Stream stream, In<T> x, In<T> beta, int64_t axis, Out<T> y);

As on the CPU (`signature`), with `Stream` in the place of `Parallel`, __half for float16 and __nv_bfloat16 for bfloat16.
Where the data decides a size of an output, the launcher gets that output at its upper bound, and at the end an `Out<int32_t>`
for the size (`data_sizes`). Shape inputs it does not get: their values are the sizes of its outputs.

`Stream` converts to `cudaStream_t`, which a launcher may take instead; it also holds the number of a tactic, for a kernel
that says `constexpr int swish_tactics = 3;`, and the scratch memory for one whose file has a function
`size_t swish_workspace(In<T> x, In<T> beta, int64_t axis, Out<T> y)` (kernels/include/deployops/cuda/launch.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import DeclarationError
from .cpp_types import element_type
from .data_sizes import size_names
from .generated import entry_arguments, tensor_lists
from .rendering import symbol_of, template
from .signature import function_name, kernel_rows, signature

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["cuda_element_type", "cuda_entries", "cuda_entries_symbol", "cuda_signature"]

_HALVES = {"float16": "__half", "bfloat16": "__nv_bfloat16"}


def cuda_element_type(dtype: str) -> str | None:
    """The type of a dtype's elements on the device; None where there is none."""
    return _HALVES.get(dtype) or element_type(dtype)


def cuda_signature(op: Operator) -> str:
    """The declaration of the launcher, as it is to be written."""
    text = signature(op, without=op.shape_inputs).replace("const Parallel& par", "Stream stream", 1)
    text = text.replace(f"void {function_name(op)}(", f"cudaError_t {function_name(op)}(", 1)
    for plain, device in _HALVES.items():
        text = text.replace(f"<{plain}>", f"<{device}>")
    return text.removesuffix(")") + "".join(f", Out<int32_t> {n}" for n in size_names(op)) + ")"


def cuda_entries_symbol(op: Operator) -> str:
    """The C function that gives an operator's `CudaKernels`, a name of its own in a library."""
    return symbol_of(op, "cuda")


def cuda_entries(op: Operator, kernel_file: str, by_kernel: Sequence[str] = ()) -> str:
    """The source of an operator's entries, for nvcc and for the emulation alike.

    Args:
        kernel_file: the name of the `.cuh`, as it is to be included.
        by_kernel: outputs that the kernel would allocate; not those at their upper bound (`data_sizes`).

    Raises DeclarationError where a launcher cannot do what the declaration asks for.
    """
    if by_kernel:
        raise DeclarationError(
            f"{op.name}: the size of `{by_kernel[0]}` is known only after the kernel ran, and a launcher does not "
            "wait for it"
            + (
                ""
                if op.bound_function
                else ": where the data decides it, declare its upper bound (@op.bound)"
            )
        )
    first_size = len(op.interface.outputs)
    sizes = [f"detail::output<int32_t>(deployops_call, {first_size + n})" for n in range(len(size_names(op)))]
    return template("cuda_entries.cpp.j2").render(
        op=op,
        kernel_file=kernel_file,
        function=function_name(op),
        symbol=cuda_entries_symbol(op),
        **tensor_lists(op),
        outputs=first_size + len(sizes),
        rows=[
            {
                "label": row.label,
                "inputs": {n: cuda_element_type(d) for n, d in row.inputs.items()},
                "arguments": [
                    *entry_arguments(op, row, cuda_element_type, without=op.shape_inputs),
                    *sizes,
                ],
            }
            for row in kernel_rows(op)
        ],
    )
