"""List what a pickle would import, without running it.

The opcodes are read with `pickletools.genops` and played on a stack of placeholders: strings and memo
entries are followed (so that a name assembled through the memo is still seen), nothing is imported and
nothing is called. What cannot be resolved is reported, never passed over.
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

__all__ = ["ALLOWED_GLOBALS", "PickleScan", "scan_pickle", "unsafe_globals"]

_TORCH_DTYPES = (
    "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 float32 float64 bfloat16 "
    "complex32 complex64 complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu "
    "qint8 quint8 qint32 quint4x2 quint2x4"
)
_STORAGES = (
    "Byte Char Short Int Long Half Float Double BFloat16 Bool ComplexFloat ComplexDouble "
    "QInt8 QUInt8 QInt32 QUInt4x2 QUInt2x4"
)
_REBUILDERS = (
    "_rebuild_parameter _rebuild_parameter_with_state _rebuild_qtensor _rebuild_tensor _rebuild_tensor_v2 "
    "_rebuild_tensor_v3 _rebuild_sparse_tensor _rebuild_meta_tensor_no_storage _rebuild_nested_tensor "
    "_rebuild_device_tensor_from_cpu_tensor"
)

ALLOWED_GLOBALS = frozenset(
    # Protocol 2, torch's own, still writes the names of Python 2 for the built-in types.
    [f"{module}.{name}" for module in ("builtins", "__builtin__") for name in ("bytearray", "complex", "set")]
    + ["_codecs.encode", "collections.Counter", "collections.OrderedDict"]
    + [f"torch.{name}" for name in _TORCH_DTYPES.split()]
    + [f"torch.{name}Storage" for name in _STORAGES.split()]
    + ["torch.storage.TypedStorage", "torch.storage.UntypedStorage"]
    + [f"torch._utils.{name}" for name in _REBUILDERS.split()]
    + ["torch._tensor._rebuild_from_type_v2"]
    + ["torch.per_tensor_affine", "torch.per_channel_affine", "torch.per_channel_affine_float_qparams"]
    + ["torch.Size", "torch.Tensor", "torch.device", "torch.nn.parameter.Parameter"]
    + ["torch.serialization._get_layout"]
)
"""Tensors and plain containers: a subset of what `torch.load(weights_only=True)` allows.

`torch.storage._load_from_bytes` is left out on purpose: it unpickles the bytes it is given, without
restriction.
"""

# Attribute dictionaries of nn.Module: a pickle that has both holds a module.
_MODULE_FIELDS = frozenset({"_parameters", "_modules"})


class _Opaque:
    """A value that the scan does not follow."""

    __slots__ = ()


class _Mark:
    __slots__ = ()


_OPAQUE, _MARK = _Opaque(), _Mark()


@dataclass(frozen=True, slots=True)
class PickleScan:
    """What one pickle would do when loaded.

    `globals`: dotted names it imports, in order of appearance, plus entries in parentheses for what could
    not be resolved. `error`: why reading stopped before the end of the pickle ("" where it did not). `end`:
    offset just after the pickle. `holds_module`: it carries the attribute dictionaries of an nn.Module.
    """

    globals: tuple[str, ...]
    error: str
    end: int
    holds_module: bool


def unsafe_globals(names: Iterable[str]) -> tuple[str, ...]:
    """The names beyond tensors and plain containers, sorted."""
    return tuple(sorted({name for name in names if name not in ALLOWED_GLOBALS}))


def scan_pickle(source: bytes | BinaryIO) -> PickleScan:
    """Read one pickle from its start (or the stream's position) to its STOP. Raises nothing on bad input."""
    stream = io.BytesIO(source) if isinstance(source, bytes) else source
    machine = _Machine()
    error = ""
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            machine.step(opcode, argument)
    except Exception as reason:
        # Whatever stopped the reading, the imports before it would already have happened.
        error = str(reason) or type(reason).__name__
    return PickleScan(tuple(machine.globals), error, stream.tell(), machine.strings >= _MODULE_FIELDS)


class _Machine:
    """The pickle machine with placeholders instead of values."""

    def __init__(self) -> None:
        self.stack: list[object] = []
        self.memo: dict[int, object] = {}
        self.globals: dict[str, None] = {}
        self.strings: set[str] = set()

    def step(self, opcode: pickletools.OpcodeInfo, argument: object) -> None:
        name = opcode.name
        if name == "STACK_GLOBAL":
            module, attribute = self.stack[-2:]
            if isinstance(module, str) and isinstance(attribute, str):
                self.globals[f"{module}.{attribute}"] = None
            else:
                self.globals["(a name computed while loading)"] = None
        elif name in ("GLOBAL", "INST"):
            self.globals[str(argument).replace(" ", ".", 1)] = None
        elif name in ("EXT1", "EXT2", "EXT4"):
            self.globals[f"(extension code {argument})"] = None

        if name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[int(str(argument))] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[int(str(argument))])
        elif name == "DUP":
            self.stack.append(self.stack[-1])
        elif name == "POP":
            self.stack.pop()
        elif name == "MARK":
            self.stack.append(_MARK)
        else:
            self._pop(opcode)
            self._push(opcode, argument)

    def _pop(self, opcode: pickletools.OpcodeInfo) -> None:
        before = opcode.stack_before
        if pickletools.markobject in before:
            before = before[: before.index(pickletools.markobject)]
            while self.stack.pop() is not _MARK:
                pass
        if before:
            if len(self.stack) < len(before):
                raise ValueError(f"{opcode.name} with too little on the stack")
            del self.stack[-len(before) :]

    def _push(self, opcode: pickletools.OpcodeInfo, argument: object) -> None:
        if isinstance(argument, str) and opcode.name not in ("GLOBAL", "INST", "PERSID"):
            if argument in _MODULE_FIELDS:
                self.strings.add(argument)
            self.stack.append(argument)
        else:
            self.stack.extend(_OPAQUE for _ in opcode.stack_after)
