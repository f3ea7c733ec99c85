"""An original without weights, whose dtype nothing but its inputs and outputs tells: never widened in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from onnx import helper
from torch import nn

from deployops.validation import validate


class Tanh(nn.Module):
    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return torch.tanh(v)


class Half(nn.Module):
    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return torch.tanh(v.half())


@pytest.mark.parametrize(
    ("net", "dtype", "reason"),
    [
        (Tanh(), torch.float16, "the original takes float16, the ONNX model takes float32"),
        (Tanh(), torch.bfloat16, "the original takes bfloat16, the ONNX model takes float32"),
        (Half(), torch.float32, "dtype float32, the original returns float16"),
    ],
)
def test_a_float32_file_fails_by_its_dtype(
    net: nn.Module, dtype: torch.dtype, reason: str, build: Callable[..., Path]
) -> None:
    path = build(
        [helper.make_node("Tanh", ["v"], ["y"])], [("v", "float", ["n", 4])], [("y", "float", ["n", 4])]
    )
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    report = validate(net, path, (x,), latency=False, isolate=False, backends=["onnxruntime"])
    assert report.verdict == "failed"
    assert all(reason in c.reason for c in report.cells)
