"""A file in a narrower (or wider) dtype than its original: what a float16 deployment of a checkpoint is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
