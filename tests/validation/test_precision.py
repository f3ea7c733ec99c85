"""A file in a narrower (or wider) dtype than its original: what a float16 deployment of a checkpoint is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn

from deployops import export_model, validate

Export = Callable[..., Path]
X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


def exported(folder: Path, dtype: torch.dtype) -> Path:
    """A file of the net cast to `dtype`."""
    name = str(dtype).removeprefix("torch.")
    net = copy.deepcopy(Net()).to(dtype)
    return export_model(net, [f"x:{name}[batch,8]"], out=folder / "cast.onnx").path


def check(model: Any, path: Path, inputs: Any = None, **options: Any) -> Any:
    return validate(model, path, inputs, latency=False, isolate=False, **options)


@pytest.mark.parametrize("inputs", [None, (X,), (X.half(),), ["x:float32[batch,8]"]])
def test_a_float32_original_against_its_float16_file(tmp_path: Path, inputs: Any) -> None:
    report = check(Net(), exported(tmp_path, torch.float16), inputs)
    assert report.exit_code == 0, report.text()
    assert {c.dtype for c in report.cells} == {"float16"}
    assert any("the original is float32, the file float16" in n for n in report.notes)


def test_a_float16_original_against_a_float32_file(tmp_path: Path) -> None:
    report = check(Net().half(), exported(tmp_path, torch.float32))
    # the weights of the file were never rounded: it is not that original's
    assert report.exit_code == 1, report.text()
    assert any("the original is float16, the file float32" in n for n in report.notes)


@pytest.mark.parametrize("damage", ["a weight", "a bias dropped"])
def test_a_fault_of_the_float16_file_is_found(tmp_path: Path, damage: str) -> None:
    path = exported(tmp_path, torch.float16)
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor).copy()
        if damage == "a weight" and array.shape in ((64, 16), (16, 64)):
            array.flat[5] += 0.25
        elif damage == "a bias dropped" and array.shape == (16,):
            array[:] = 0
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    del model.metadata_props[:]
    model.producer_name = ""
    onnx.save(model, path)
    assert check(Net(), path, (X,)).exit_code == 1


def test_an_original_that_mixes_dtypes_on_purpose_is_compared_as_it_is(tmp_path: Path) -> None:
    class Upcast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.net(x.float())
            return out

    path = export_model(Upcast(), ["x:float16[batch,8]"], out=tmp_path / "up.onnx").path
    report = check(Upcast(), path)
    assert report.exit_code == 0, report.text()
    assert {c.dtype for c in report.cells} == {"float32"}
    assert not any("the original is" in n for n in report.notes)


def test_a_users_own_tolerance_is_against_the_original_as_given_and_printed(tmp_path: Path) -> None:
    path = exported(tmp_path, torch.float16)
    loose, tight = (check(Net(), path, (X,), atol=a) for a in (0.05, 1e-7))
    assert (loose.exit_code, tight.exit_code) == (0, 1)
    assert "user tolerance, atol 0.05, rtol 0" in loose.text()


def test_the_report_names_the_model_file(tmp_path: Path) -> None:
    program = torch.export.export(Net(), (X,))
    torch.export.save(program, tmp_path / "net.pt2")
    path = export_model(tmp_path / "net.pt2", out=tmp_path / "net.onnx").path
    assert "net.pt2 against net.onnx" in check(tmp_path / "net.pt2", path).text()


class Weightless(nn.Module):
    """In float16 the epsilon is 0, and equal numbers are divided by 0."""

    def __init__(self, epsilon: float = 1e-3) -> None:
        super().__init__()
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.epsilon)


def test_a_narrow_file_of_a_model_without_weights_is_judged_like_others(tmp_path: Path) -> None:
    path = export_model(Weightless(), ["x:float16[batch,8]"], out=tmp_path / "m.onnx").path
    for model in (Weightless(), Weightless().forward):
        report = check(model, path, (X,))
        assert report.exit_code == 0, report.text()
        assert {c.dtype for c in report.cells} == {"float16"}
        assert any("the original is float32, the file float16" in n for n in report.notes)
    wrong = check(Weightless(0.3), path, (X,))
    assert wrong.exit_code == 1, wrong.text()


def test_dtypes_that_a_model_without_weights_chooses_itself_stay(tmp_path: Path) -> None:
    class Down(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x).half()

    report = check(Down(), export_model(Down(), ["x:float32[batch,8]"], out=tmp_path / "d.onnx").path, (X,))
    assert report.exit_code == 0, report.text()
    assert not any("the original is" in n for n in report.notes)


@pytest.mark.parametrize("atol", [None, 1e-3])
def test_a_float16_file_that_loses_what_float32_has_fails_where_both_are_nan(
    tmp_path: Path, atol: float | None
) -> None:
    """The cast copy of the original has the same NaN: it is no excuse."""
    path = export_model(Weightless(1e-8), ["x:float16[batch,8]"], out=tmp_path / "m.onnx").path
    report = check(Weightless(1e-8), path, (torch.ones(4, 8),), atol=atol)
    assert report.exit_code == 1, report.text()
    [reason] = {c.reason for c in report.cells if c.backend == "onnxruntime" and c.sample == "example"}
    assert "32 of 32 elements Inf or NaN, and finite in the original: nan at [0, 0], where it is 0." in reason
    assert "keep that part of the file in float32, or take bfloat16" in reason


class Unit(nn.Module):
    """Rows of length 1, whose squares leave float16's range on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * 300
        return self.scale * x / torch.sqrt((x * x).sum(-1, keepdim=True))


def unit_file(path: Path, wide: bool) -> Path:
    """The same in float16; `wide`: the squares and their sum in float32."""
    from onnx import TensorProto, helper

    def cast(a: str, b: str, to: int) -> Any:
        return helper.make_node("Cast", [a], [b], to=to)

    inner = [cast("l", "m", TensorProto.FLOAT)] if wide else [helper.make_node("Identity", ["l"], ["m"])]
    outer = (
        [cast("root", "r", TensorProto.FLOAT16)] if wide else [helper.make_node("Identity", ["root"], ["r"])]
    )
    nodes = [
        helper.make_node("Mul", ["x", "c"], ["l"], name="large"),
        *inner,
        helper.make_node("Mul", ["m", "m"], ["s"], name="square"),
        helper.make_node("ReduceSum", ["s", "axis"], ["sum"], name="sum"),
        helper.make_node("Sqrt", ["sum"], ["root"], name="root"),
        *outer,
        helper.make_node("Div", ["l", "r"], ["y"], name="div"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT16, ["n", 8])],
        [value("y", TensorProto.FLOAT16, ["n", 8])],
        [
            numpy_helper.from_array(np.array(300, np.float16), "c"),
            numpy_helper.from_array(np.array([-1], np.int64), "axis"),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return path


def overflows(report: Any) -> list[Any]:
    return [f for f in report.findings if f.kind == "float16 overflow"]


def test_a_file_that_overflows_inside_fails_though_the_cpu_does_not_show_it(tmp_path: Path) -> None:
    report = check(Unit(), unit_file(tmp_path / "m.onnx", wide=False), (X,))
    [found] = overflows(report)
    assert found.severity == "failed"
    assert found.where == "square"
    assert "aten.mul.Tensor of the original reaches " in found.text
    assert "beyond 65,504" in found.text
    assert "keep this part in float32 or bfloat16" in found.advice
    assert report.exit_code == 1


def test_a_file_that_keeps_in_float32_what_overflows_passes(tmp_path: Path) -> None:
    report = check(Unit(), unit_file(tmp_path / "m.onnx", wide=True), (X,))
    assert report.exit_code == 0, report.text()
    [found] = overflows(report)
    assert found.severity == "note"
    assert found.text.endswith("the file does not")


def test_a_float16_original_that_overflows_is_told_as_that(tmp_path: Path) -> None:
    """Its own error is the whole output, and no rounding."""
    report = check(Unit().half(), unit_file(tmp_path / "m.onnx", wide=False), (X.half(),))
    assert report.exit_code == 3, report.text()
    assert all("reaches" in c.reason and "beyond 65,504" in c.reason for c in report.cells)
    assert not any("rounding error" in c.reason for c in report.cells)
    assert overflows(report)


def test_an_inf_that_nothing_depends_on_is_no_failure(tmp_path: Path) -> None:
    """A sigmoid that the file spells out: 1 / (1 + Inf) is 0, as it should be."""
    from onnx import TensorProto, helper

    class Sigmoid(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            large = x * 300
            return (large * large).mean(-1, keepdim=True).sqrt() / 300 + 1 / (1 + torch.exp(-20 * x))

    def cast(a: str, b: str, to: int) -> Any:
        return helper.make_node("Cast", [a], [b], to=to)

    f = TensorProto.FLOAT
    nodes = [
        cast("x", "wide", f),
        helper.make_node("ReduceL2", ["wide"], ["norm"], axes=[1]),
        helper.make_node("Div", ["norm", "root"], ["rms"]),
        cast("rms", "size", TensorProto.FLOAT16),
        helper.make_node("Mul", ["x", "slope"], ["t"]),
        helper.make_node("Exp", ["t"], ["e"], name="exp"),
        helper.make_node("Add", ["e", "one"], ["d"]),
        helper.make_node("Reciprocal", ["d"], ["s"]),
        helper.make_node("Add", ["size", "s"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    constants: dict[str, Any] = {
        "root": np.array(8**0.5, np.float32),
        "slope": np.array(-20, np.float16),
        "one": np.array(1, np.float16),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT16, ["n", 8])],
        [value("y", TensorProto.FLOAT16, ["n", 8])],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    x = X.clone()
    x[0, 0] = -2.0
    report = check(Sigmoid(), path, (x,))
    assert report.exit_code == 0, report.text()
    [found] = overflows(report)
    assert found.severity == "note"
    assert found.text.endswith("the file makes Inf as well, and nothing depends on it")
