"""A CPU library's kernels called on torch tensors, without ONNX Runtime: the C interface, through ctypes.

The same kernels, the same entries; only ONNX Runtime's adapter is left out. torch users call an operator so
(`ort_ops.torch_kernels`), and the tests of the kernels do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DeployOpsError, UsageError
from ..symbolic import dtypes
from .loaded_libraries import current_library
from .signature import fingerprint, kernel_rows

if TYPE_CHECKING:
    import torch

    from ..symbolic.interface import Interface
    from ..symbolic.operator import Operator

__all__ = [
    "AttributeRef",
    "CpuLibrary",
    "KernelError",
    "OperatorCall",
    "TensorRef",
    "attribute_refs",
    "describe_tensor",
    "fill_list",
]

_INTERFACE_VERSION = 1
_MAX_RANK = 16
_ERROR_SIZE = 1024


class KernelError(DeployOpsError):
    """A kernel refused its inputs, or failed."""


class TensorRef(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


class _StringView(ctypes.Structure):  # std::string_view of libstdc++
    _fields_ = (("count", ctypes.c_size_t), ("data", ctypes.c_char_p))


class AttributeRef(ctypes.Structure):
    _fields_ = (
        ("present", ctypes.c_bool),
        ("i", ctypes.c_int64),
        ("f", ctypes.c_double),
        ("s", ctypes.c_char_p),
        ("count", ctypes.c_size_t),
        ("ints", ctypes.POINTER(ctypes.c_int64)),
        ("floats", ctypes.POINTER(ctypes.c_double)),
        ("strings", ctypes.POINTER(_StringView)),
    )


class _Shape(ctypes.Structure):
    _fields_ = (("rank", ctypes.c_int), ("sizes", ctypes.c_int64 * _MAX_RANK))


_Request = ctypes.CFUNCTYPE(
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_int,
    ctypes.POINTER(ctypes.POINTER(ctypes.c_int64)),
)


class OperatorCall(ctypes.Structure):
    _fields_ = (
        ("parallel", ctypes.c_void_p),
        ("inputs", ctypes.POINTER(TensorRef)),
        ("input_count", ctypes.c_size_t),
        ("attributes", ctypes.POINTER(AttributeRef)),
        ("outputs", ctypes.POINTER(TensorRef)),
        ("owner", ctypes.c_void_p),
        ("request", _Request),
    )


class CpuLibrary:
    """A library built by `deployops compile --target ort-cpu`, loaded into this process as its file is now.

    Attributes:
        operators: names of the torch operators in it -> their number.
        levels: the instruction-set levels that this processor runs, the best one last.

    Raises UsageError where the file is no such library.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        try:
            self._c = ctypes.CDLL(str(current_library(self.path)))
            version = self._c.deployops_interface_version()
        except (OSError, AttributeError) as e:
            raise UsageError(
                f"{path} is no library of CPU kernels: {e}. `deployops compile` makes one"
            ) from None
        if version != _INTERFACE_VERSION:
            raise UsageError(f"{path} was built by another version of deployops: build it again")
        self._c.deployops_level.restype = ctypes.c_char_p
        self._c.deployops_operator.restype = ctypes.c_char_p
        self.operators: dict[str, int] = {}
        self._fingerprints: dict[str, str] = {}
        found = ctypes.c_char_p()
        while name := self._c.deployops_operator(ctypes.c_size_t(len(self.operators)), ctypes.byref(found)):
            self._fingerprints[name.decode()] = (found.value or b"").decode()
            self.operators[name.decode()] = len(self.operators)
        self._kernels: dict[str, _Kernel] = {}

    @cached_property
    def levels(self) -> tuple[str, ...]:
        supported = ctypes.c_int()
        found = []
        index = 0
        while name := self._c.deployops_level(ctypes.c_size_t(index), ctypes.byref(supported)):
            if supported.value:
                found.append(name.decode())
            index += 1
        return tuple(found)

    def run(
        self,
        op: Operator,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        *,
        threads: int | None = None,
        level: str | None = None,
    ) -> list[torch.Tensor]:
        """Run an operator's kernel; the outputs as the ONNX node has them (overwritten inputs last).

        Inputs are made contiguous where they are not. `threads`: torch's number by default. `level`: the best one
        by default.

        Raises:
            UsageError: the library lacks the operator, or was built from another declaration of it.
            KernelError: the kernel refused.
        """
        if op.name not in self._kernels:
            self._kernels[op.name] = _Kernel(self, op)
        return self._kernels[op.name](args, kwargs or {}, threads, level)

    def check(self, op: Operator) -> None:
        """Raise UsageError where the library lacks the operator, or was built from another declaration of it."""
        if op.name not in self.operators:
            raise UsageError(
                f"{self.path.name} has no kernel of {op.name}; it has {', '.join(self.operators) or 'none'}"
            )
        if self._fingerprints[op.name] != fingerprint(op):
            raise UsageError(
                f"{self.path.name} was built from another declaration of {op.name}: run `deployops compile` again"
            )


class _Kernel:
    """An operator of a library, with what does not change between calls."""

    def __init__(self, library: CpuLibrary, op: Operator) -> None:
        library.check(op)
        self._c = library._c
        self._op = op
        self._index = library.operators[op.name]
        names = [i.name for i in op.interface.inputs]
        self._rows = {
            tuple(row.inputs[n] for n in names): (number, [row.outputs[o.name] for o in op.interface.outputs])
            for number, row in enumerate(kernel_rows(op))
        }
        self._overwrites = [
            None if o.mutates is None else names.index(o.mutates) for o in op.interface.outputs
        ]

    def __call__(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], threads: int | None, level: str | None
    ) -> list[torch.Tensor]:
        import torch

        op = self._op
        bound = op.interface.bind(args, kwargs)
        row, output_dtypes = self._row(bound.tensors)
        given = op.interface.flat_inputs(bound)
        inputs = [None if t is None else self._dense(t) for t in given]
        self._part(inputs)
        # the shape rule reads every declared input
        slots = max(len(inputs), len(op.interface.inputs))
        refs = (TensorRef * max(slots, 1))()
        held = [describe_tensor(refs[k], t) for k, t in enumerate(inputs)]
        for k in range(len(inputs), slots):
            refs[k].rank = -1
        attributes = attribute_refs(op.interface, bound.attributes)

        count = len(output_dtypes)
        shapes = (_Shape * count)()
        error = ctypes.create_string_buffer(_ERROR_SIZE)
        size = ctypes.c_size_t(_ERROR_SIZE)
        number = ctypes.c_size_t(self._index)
        if self._c.deployops_shapes(number, refs, shapes, error, size):
            raise KernelError(f"{op.name}: {error.value.decode(errors='replace')}")
        outputs: list[Any] = [None] * count
        out_refs = (TensorRef * count)()

        def allocate(k: int, sizes: Sequence[int]) -> None:
            overwritten = self._overwrites[k]
            if overwritten is not None:
                outputs[k] = inputs[overwritten]
            else:
                outputs[k] = torch.empty(tuple(sizes), dtype=dtypes.torch_dtype(output_dtypes[k]))
            held.append(describe_tensor(out_refs[k], outputs[k]))

        for k in range(count):
            if shapes[k].rank >= 0:
                allocate(k, shapes[k].sizes[: shapes[k].rank])

        def request(owner: int, k: int, sizes: Any, rank: int, kept: Any) -> int | None:
            try:
                allocate(k, sizes[:rank])
            except Exception:  # nothing may be thrown through C; without sizes the kernel gives up: no memory
                return None
            kept[0] = out_refs[k].sizes
            address: int | None = out_refs[k].data
            return address

        call = OperatorCall(None, refs, len(inputs), attributes[0], out_refs, None, _Request(request))
        workers = torch.get_num_threads() if threads is None else threads
        text = None if level is None else level.encode()
        failed = self._c.deployops_run(
            number, ctypes.c_size_t(row), text, ctypes.c_int(workers), ctypes.byref(call), error, size
        )
        if failed:
            raise KernelError(f"{op.name}: {error.value.decode(errors='replace')}")
        for overwritten in self._overwrites:
            if overwritten is not None and inputs[overwritten] is not given[overwritten]:
                given[overwritten].copy_(inputs[overwritten])
        return outputs

    def _part(self, inputs: list[torch.Tensor | None]) -> None:
        """Kernels take what they write into to be no other input's memory, as in `x.add_(x)`."""
        for written in (k for k in self._overwrites if k is not None):
            own = inputs[written]
            for k, t in enumerate(inputs):
                if k != written and t is not None and own is not None:
                    shared = t.untyped_storage().data_ptr() == own.untyped_storage().data_ptr()
                    inputs[k] = t.clone() if shared else t

    def _row(self, tensors: Mapping[str, Any]) -> tuple[int, list[str]]:
        """The number of the kernel for these dtypes; an absent input goes with the others of its type."""
        variables: dict[str, str] = {}
        of_input = self._op.types.of_input
        for name, value in tensors.items():
            for t in value if isinstance(value, (list, tuple)) else [value]:
                if t is None:
                    continue
                dtype = str(t.dtype).removeprefix("torch.")
                if variables.setdefault(of_input[name], dtype) != dtype:
                    raise KernelError(
                        f"{self._op.name}: `{name}` is {dtype}; expected {variables[of_input[name]]}, as the others"
                    )
        wanted = tuple(
            variables.get(of_input[i.name]) or self._op.types.variables[of_input[i.name]][0]
            for i in self._op.interface.inputs
        )
        if wanted not in self._rows:
            known = "; ".join(", ".join(dict.fromkeys(r)) for r in self._rows)
            raise KernelError(
                f"{self._op.name} has no kernel for {', '.join(dict.fromkeys(wanted))}; it has {known}"
            )
        return self._rows[wanted]

    def _dense(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != "cpu":
            raise KernelError(
                f"{self._op.name}: a tensor is on {tensor.device}; these kernels run on the CPU"
            )
        return tensor.resolve_conj().resolve_neg().contiguous()


def describe_tensor(ref: TensorRef, tensor: torch.Tensor | None) -> Any:
    """Fill a reference; returns what it points to besides the tensor."""
    if tensor is None:
        ref.rank = -1
        return None
    if tensor.dim() > _MAX_RANK:
        raise KernelError(f"a tensor has {tensor.dim()} dimensions; at most {_MAX_RANK} are supported")
    sizes = (ctypes.c_int64 * max(tensor.dim(), 1))(*tensor.shape)
    ref.data = tensor.data_ptr()
    ref.sizes = sizes
    ref.rank = tensor.dim()
    ref.dtype = dtypes.onnx_number(tensor.dtype)
    return sizes


def attribute_refs(interface: Interface, values: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """The attributes in the order of the declaration, and what they point to."""
    names = [a.name for a in interface.attributes] + list(interface.count_attributes)
    refs = (AttributeRef * max(len(names), 1))()
    held: list[Any] = []
    for ref, name in zip(refs, names, strict=False):
        value = values.get(name)
        if value is None:
            continue
        ref.present = True
        if isinstance(value, int):
            ref.i = value
        elif isinstance(value, float):
            ref.f = value
        elif isinstance(value, str):
            ref.s = value.encode()
            ref.count = len(value.encode())
        else:
            ref.count = len(value)
            fill_list(ref, value, {a.name: a.onnx_type for a in interface.attributes}[name], held)
    held.append(refs)
    return refs, held


def fill_list(ref: AttributeRef, value: Sequence[Any], onnx_type: str, held: list[Any]) -> None:
    if onnx_type == "STRINGS":
        texts = [v.encode() for v in value]
        views = (_StringView * max(len(texts), 1))(*[_StringView(len(t), t) for t in texts])
        held.append((texts, views))
        ref.strings = views
    elif onnx_type == "FLOATS":
        ref.floats = (ctypes.c_double * max(len(value), 1))(*value)
        held.append(ref.floats)
    else:
        ref.ints = (ctypes.c_int64 * max(len(value), 1))(*value)
        held.append(ref.ints)
