"""Adaptive pooling and what torch makes of it (area interpolation) at sizes that divide by nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

pytestmark = pytest.mark.filterwarnings("ignore")

SIZES = [(1, 64, 64), (1, 5, 7), (3, 9, 6), (2, 33, 47), (2, 7, 4), (1, 16, 96)]


class Call(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def halves(x: Tensor) -> tuple[int, int]:
    return x.shape[2] // 2, x.shape[3] // 2


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.interpolate(x, scale_factor=0.5, mode="area"),
        lambda x: F.adaptive_avg_pool2d(x, halves(x)),
        lambda x: F.adaptive_avg_pool2d(x, 7),
        lambda x: F.adaptive_avg_pool2d(x, (1, 4)),
        lambda x: F.adaptive_avg_pool2d(x, (None, 4)),
        lambda x: F.adaptive_avg_pool2d(x[0], (x.shape[2] + 3, 5)),
        lambda x: F.adaptive_avg_pool1d(x.flatten(1, 2), 5),
        lambda x: F.adaptive_avg_pool3d(x[:, None], (2, 5, x.shape[3] // 2)),
        lambda x: F.adaptive_max_pool1d(x.flatten(1, 2), 5),
        lambda x: F.adaptive_max_pool2d(x, (3, 5)),
        lambda x: F.adaptive_max_pool2d(x, (3, 5), return_indices=True)[1],
        lambda x: F.adaptive_max_pool3d(x[:, None], (2, 3, 5), return_indices=True)[1],
    ],
    ids=[
        *("area", "avg2d halves", "avg2d 7", "avg2d 1x4", "avg2d one axis", "avg2d larger", "avg1d", "avg3d"),
        *("max1d", "max2d", "max2d indices", "max3d indices"),
    ],
)
def test_adaptive_pooling_is_torchs_at_every_size(
    deploy: Any, run_onnx: Any, function: Callable[[Tensor], Tensor]
) -> None:
    model = Call(function).eval()
    exported = deploy(model, ["x:float32[n,3,h=2..,w=2..]"])
    for n, h, w in SIZES:
        x = torch.randn(n, 3, h, w, generator=torch.Generator().manual_seed(h))
        expected = model(x).numpy()
        (got,) = run_onnx(exported.path, x.numpy())
        assert got.shape == expected.shape
        assert abs(got.astype("d") - expected.astype("d")).max() < 1e-5, (n, h, w)


def test_an_infinite_value_stays_in_its_windows(deploy: Any, run_onnx: Any) -> None:
    model = Call(lambda x: F.adaptive_avg_pool2d(x, (5, 4))).eval()
    exported = deploy(model, ["x:float32[n,3,h,w]"])
    x = torch.ones(1, 3, 13, 11)
    x[0, 0, 4, 4] = torch.inf
    (got,) = run_onnx(exported.path, x.numpy())
    assert torch.equal(torch.from_numpy(got), model(x))


def test_windows_that_are_equal_at_all_declared_sizes_are_a_plain_pooling(deploy: Any) -> None:
    model = Call(lambda x: F.interpolate(x, scale_factor=0.5, mode="area")).eval()
    exported = deploy(model, ["x:float32[n,3,h%2,w%2]"])
    assert [n.op_type for n in onnx.load(exported.path).graph.node] == ["AveragePool"]


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiased_interpolation_by_a_factor_keeps_all_dims_open(
    deploy: Any, run_onnx: Any, mode: str
) -> None:
    model = Call(lambda x: F.interpolate(x, scale_factor=0.6, mode=mode, antialias=True)).eval()
    exported = deploy(model, ["x:float32[n,3,h=4..,w=4..]"])
    for n, h, w in SIZES:
        x = torch.randn(n, 3, h, w)
        (got,) = run_onnx(exported.path, x.numpy())
        assert abs(got - model(x).numpy()).max() < 1e-4, (n, h, w)
