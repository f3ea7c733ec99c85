"""What is in a PyTorch model file, read without torch and without running any of it.

Of a `torch.export` archive its inputs, outputs and custom operators; of TorchScript the custom operators that its code
names; of a checkpoint its tensors by name. What cannot be read so is left out: `inspect` informs, loading decides.
"""

from __future__ import annotations

import json
import pickletools
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..result import TensorSpec
from .archive import Archive, open_archive
from .model_file import Kind, ModelFile, open_model_file
from .pickle_scan import _MARK, _Machine

__all__ = ["Contents", "read_contents"]

_TORCHS = ("aten", "prims", "prim", "higher_order", "profiler")
# torch/_export/serde/schema.py, ScalarType
_DTYPES = (
    "?", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64",
    "complex128", "bool", "bfloat16",
)  # fmt: skip
_STORAGES = {
    "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64", "Half": "float16",
    "Float": "float32", "Double": "float64", "BFloat16": "bfloat16", "Bool": "bool", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Contents:
    """`operators`: custom ones, `ns::op` -> calls. `weights`: dtype by name, in the file's order."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    operators: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)


def read_contents(file: ModelFile) -> Contents:
    """What can be told of a file that was identified."""
    reader = {
        Kind.EXPORTED_PROGRAM: _program,
        Kind.TORCHSCRIPT: _torchscript,
        Kind.CHECKPOINT: _checkpoint,
    }.get(file.kind)
    if reader is None:
        return Contents()
    try:
        with open_model_file(file.path) as stream:
            return reader(open_archive(stream, file.size))
    except Exception:  # an old format, or one of tomorrow: what it is has been said
        return Contents()


def _program(archive: Archive) -> Contents:
    name = next(n for n in archive.names if re.fullmatch(r"models/\w+\.json", n))
    module = json.loads(archive.read(name))["graph_module"]
    graph = module["graph"]
    named: dict[str, str] = {}

    def tensor(argument: Any, kind: str, k: int) -> TensorSpec | None:
        value = argument.get("as_tensor")
        if value is None:
            return None
        known = graph["tensor_values"][value["name"]]
        dims = [
            size["as_int"] if "as_int" in size else _symbol(size, named, f"{value['name']}_dim_{axis}", kind)
            for axis, size in enumerate(known["sizes"])
        ]
        dtype = _DTYPES[known["dtype"]] if known["dtype"] < len(_DTYPES) else "?"
        return TensorSpec(value["name"] if kind == "input" else f"result {k}", dtype, tuple(dims))

    found: dict[str, list[TensorSpec]] = {}
    for kind in ("input", "output"):
        specs = module["signature"][f"{kind}_specs"]
        users = [s[f"user_{kind}"]["arg"] for s in specs if f"user_{kind}" in s]
        found[kind] = [t for k, a in enumerate(users) if (t := tensor(a, kind, k)) is not None]
    calls: Counter[str] = Counter()
    for target in re.findall(r'"target": ?"torch\.ops\.(\w+\.\w+)\.\w+"', json.dumps(module)):
        namespace, operator = target.split(".")
        if namespace not in _TORCHS:
            calls[f"{namespace}::{operator}"] += 1
    return Contents(tuple(found["input"]), tuple(found["output"]), dict(sorted(calls.items())))


def _symbol(size: Any, named: dict[str, str], name: str, kind: str) -> str:
    found = re.fullmatch(r"(?:Symbol\('(\w+)'.*\)|(\w+))", size["as_expr"]["expr_str"])
    if found is None:
        return "?"  # computed from others
    symbol = found[1] or found[2]
    return named.setdefault(symbol, name) if kind == "input" else named.get(symbol, "?")


def _torchscript(archive: Archive) -> Contents:
    calls: Counter[str] = Counter()
    for name in archive.names:
        if name.startswith("code/") and name.endswith(".py"):
            for found in re.findall(rb"\bops\.(\w+)\.(\w+)\(", archive.read(name)):
                namespace, operator = (part.decode() for part in found)
                if namespace not in _TORCHS:
                    calls[f"{namespace}::{operator}"] += 1
    return Contents(operators=dict(sorted(calls.items())))


def _checkpoint(archive: Archive) -> Contents:
    machine = _Weights()
    for opcode, argument, _ in pickletools.genops(archive.read("data.pkl")):
        machine.step(opcode, argument)
    return Contents(weights=machine.weights)


class _Named:
    """An imported name."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Tensor:
    def __init__(self, dtype: str) -> None:
        self.dtype = dtype


class _Weights(_Machine):
    """The pickle machine that notes which tensor is stored under which key."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: dict[str, str] = {}
        self._times: Counter[str] = Counter()
        self._dtype = "?"

    def step(self, opcode: pickletools.OpcodeInfo, argument: object) -> None:
        name = opcode.name
        made = None
        if name == "REDUCE" and isinstance(self.stack[-2], _Named):
            if self.stack[-2].name.startswith("torch._utils._rebuild"):
                made = _Tensor(self._dtype)
        elif name == "SETITEM":
            self._note(self.stack[-2:])
        elif name == "SETITEMS":
            mark = next(k for k in range(len(self.stack) - 1, -1, -1) if self.stack[k] is _MARK)
            self._note(self.stack[mark + 1 :])
        super().step(opcode, argument)
        if made is not None:
            self.stack[-1] = made
        elif name == "GLOBAL":
            self.stack[-1] = _Named(str(argument).replace(" ", ".", 1))
        top = self.stack[-1] if self.stack else None
        if isinstance(top, _Named):  # the storage's class stands before the tensor that is made of it
            storage = re.fullmatch(r"torch\.(\w+)Storage", top.name)
            self._dtype = _STORAGES.get(storage[1], "?") if storage else self._dtype

    def _note(self, items: list[object]) -> None:
        for key, value in zip(items[::2], items[1::2], strict=False):
            if isinstance(key, str) and isinstance(value, _Tensor):
                # a second state dict (moving averages, say) has the same keys
                self._times[key] += 1
                count = self._times[key]
                self.weights[f"{key}#{count}" if count > 1 else key] = value.dtype
