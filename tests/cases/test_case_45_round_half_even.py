"""Case 45: halves round to even, as torch and ONNX have it; a kernel that rounds them away from zero is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor

X = np.array(
    [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 62.5, 0.49999997, 8388609.5, 2.675, 1.005, np.nan, np.inf], np.float32
)


def half_away(x: Any) -> Any:
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


@pytest.mark.parametrize(
    ("call", "formula"),
    [
        (lambda t: t.round(), np.round),
        (lambda t: torch.floor(t + 0.5), lambda x: np.floor(x + np.float32(0.5))),
        (lambda t: t.trunc(), np.trunc),
        (lambda t: t.ceil(), np.ceil),
    ],
    ids=["round", "floor(x + 0.5)", "trunc", "ceil"],
)
def test_every_rounding_is_the_one_the_model_has(deploy: Any, call: Any, formula: Any) -> None:
    class Rounding(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return call(x)

    got = deploy(Rounding(), ["x:float32[n]"]).run(X)[0]
    np.testing.assert_array_equal(got, formula(X))


def test_the_cases_numbers(deploy: Any) -> None:
    class Round(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.round()

    got = deploy(Round(), ["x:float32[n]"]).run(X)[0]
    assert got[5] == 2  # 2.5
    assert got[6] == 62  # 62.5
    assert np.signbit(got[2])  # -0.5 -> -0.0


def test_decimals(deploy: Any) -> None:
    class Decimals(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.round(x, decimals=2)

    x = np.array([2.675, 1.005, -0.125, 0.375, 3.0], np.float32)
    got = deploy(Decimals(), ["x:float32[n]"]).run(x)[0]
    np.testing.assert_allclose(got, np.round(x * np.float32(100)) / np.float32(100), rtol=1e-7)


class Quantize(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.round().clamp(-128, 127).to(torch.int8)


Q = np.array([2.11, 2.5, 2.6, 3.5, 5.5, -2.5, 62.5, 200.0], np.float32)


def test_a_quantising_step(deploy: Any) -> None:
    assert deploy(Quantize(), ["x:float32[n]"]).run(Q)[0].tolist() == [2, 2, 3, 4, 6, -2, 62, 127]


def half_away_file(path: Path) -> None:
    """What a kernel with C's roundf computes, as an ONNX file of another tool."""
    nodes = [
        helper.make_node("Abs", ["x"], ["size"]),
        helper.make_node("Constant", [], ["half"], value_float=0.5),
        helper.make_node("Add", ["size", "half"], ["up"]),
        helper.make_node("Floor", ["up"], ["whole"]),
        helper.make_node("Sign", ["x"], ["sign"]),
        helper.make_node("Mul", ["sign", "whole"], ["rounded"]),
        helper.make_node("Constant", [], ["low"], value_float=-128.0),
        helper.make_node("Constant", [], ["high"], value_float=127.0),
        helper.make_node("Clip", ["rounded", "low", "high"], ["kept"]),
        helper.make_node("Cast", ["kept"], ["y"], to=TensorProto.INT8),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])],
        [helper.make_tensor_value_info("y", TensorProto.INT8, [8])],
    )
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)]), str(path))


def test_half_away_from_zero_fails_validation_on_ties(command: Any, tmp_path: Path) -> None:
    torch.export.save(torch.export.export(Quantize(), (torch.from_numpy(Q),)), tmp_path / "net.pt2")
    np.savez(tmp_path / "ties.npz", x=Q)
    half_away_file(tmp_path / "away.onnx")
    options = ["--no-latency", "--input-data", tmp_path / "ties.npz"]
    done = command("export", tmp_path / "net.pt2", "-o", tmp_path / "even.onnx")
    assert done.code == 0, done.err
    done = command("validate", tmp_path / "net.pt2", "--onnx", tmp_path / "even.onnx", *options)
    assert done.code == 0, done.out + done.err
    done = command("validate", tmp_path / "net.pt2", "--onnx", tmp_path / "away.onnx", *options)
    assert done.code == 1, done.out + done.err
