"""Models whose exported files get a fault planted at a known node, and how they are bisected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import numpy_helper
from torch import nn

from deployops import export_model
from deployops.validation.backends import Sample
from deployops.validation.backends.onnxruntime import OnnxRuntime
from deployops.validation.bisection import bisect
from deployops.validation.original import Original
from deployops.validation.record import Bisection, Cell

Edit = Callable[[onnx.ModelProto], None]


class Block(nn.Module):
    """19 nodes of the file."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.proj = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.act, self.down = nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 4, -1)
        x = x + self.proj(weights @ v)
        return x + self.down(self.act(self.up(x)))


class Blocks(nn.Module):
    def __init__(self, depth: int, d: int = 16) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(d) for _ in range(depth)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Image(nn.Module):
    """Convolutions, two outputs, one of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.body, self.head = nn.Conv2d(8, 8, 3, groups=2), nn.Linear(8, 5)
        self.bn.running_mean.normal_()
        self.bn.running_var.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.body(torch.relu(self.bn(self.stem(x))))
        best = y.flatten(2).argmax(-1)
        return self.head(nn.functional.hardswish(y).mean((2, 3))), best


def seeded(module: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    for p in module.parameters():
        p.data = torch.randn(p.shape, generator=generator) / max(p.shape[-1], 1) ** 0.5
    return module.to(dtype).eval()


def x(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 2) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def exported(module: nn.Module, sample: torch.Tensor, path: Path, **options: Any) -> Path:
    export_model(module, (sample,), out=path, dynamic={"x": {0: "batch"}}, **options)
    return path


def edited(path: Path, *edits: Edit) -> Path:
    """A copy with faults in it."""
    model = onnx.load(str(path))
    for edit in edits:
        edit(model)
    copy = path.with_name(f"{path.stem}_faulty.onnx")
    onnx.save(model, str(copy))
    return copy


def opener(**options: Any) -> Callable[[Path], OnnxRuntime]:
    return lambda path: OnnxRuntime(path, **{"threads": 1, "optimize": True, "isolate": False, **options})


def bisected(
    module: Any,
    path: Path,
    *args: torch.Tensor,
    output: str = "*",
    atol: float | None = None,
    backend: Callable[[Path], Any] | None = None,
    **options: Any,
) -> Bisection:
    cell = Cell("here", output, "onnxruntime", "failed")
    return bisect(Original(module, atol), path, Sample("here", args), cell, backend or opener(), **options)


def node(model: onnx.ModelProto, makes: str) -> onnx.NodeProto:
    """The node that makes a value."""
    return next(n for n in model.graph.node if makes in n.output)


def attribute(makes: str, name: str, value: Any) -> Edit:
    """Another value of an attribute, which is added where the node has none of that name."""

    def edit(model: onnx.ModelProto) -> None:
        at = node(model, makes)
        kept = [a for a in at.attribute if a.name != name]
        del at.attribute[:]
        at.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])

    return edit


def op_type(makes: str, other: str) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        node(model, makes).op_type = other

    return edit


def dropped(makes: str, position: int) -> Edit:
    """The node's input at `position` is not used: the other goes through."""

    def edit(model: onnx.ModelProto) -> None:
        at = node(model, makes)
        at.op_type = "Identity"
        del at.input[position]

    return edit


def weight(makes: str, change: Callable[[Any], Any], position: int = 1) -> Edit:
    """Another constant, for this node alone; of a MatMul and its Add, the matrix."""

    def edit(model: onnx.ModelProto) -> None:
        at = node(model, makes)
        before = next((n for n in model.graph.node if at.input[0] in n.output), None)
        if at.op_type == "Add" and before is not None and before.op_type == "MatMul":
            at = before
        stored = next(t for t in model.graph.initializer if t.name == at.input[position])
        changed = numpy_helper.from_array(
            change(numpy_helper.to_array(stored).copy()), stored.name + "_changed"
        )
        model.graph.initializer.append(changed)
        at.input[position] = changed.name

    return edit


def rounded(makes: str, to: int, back: int) -> Edit:
    """The value goes through a narrower dtype."""

    def edit(model: onnx.ModelProto) -> None:
        at = node(model, makes)
        at.output[list(at.output).index(makes)] = f"{makes}_before"
        casts = [
            onnx.helper.make_node("Cast", [f"{makes}_before"], [f"{makes}_narrow"], to=to),
            onnx.helper.make_node("Cast", [f"{makes}_narrow"], [makes], name=f"back_{makes}", to=back),
        ]
        index = list(model.graph.node).index(at) + 1
        rest = [onnx.NodeProto.FromString(n.SerializeToString()) for n in model.graph.node[index:]]
        del model.graph.node[index:]
        model.graph.node.extend([*casts, *rest])

    return edit
