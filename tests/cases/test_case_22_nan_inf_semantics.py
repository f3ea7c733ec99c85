"""Case 22: NaN and infinities pass through our kernels as they do in torch, wherever in a vector they stand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from deployops.native.cpu_library import CpuLibrary
from deployops.symbolic.operators.add_relu import add_relu
from deployops.symbolic.operators.attention import attention
from deployops.symbolic.operators.layer_norm import layer_norm
from deployops.symbolic.operators.mean_pool import mean_pool
from deployops.symbolic.operators.relu import relu
from deployops.symbolic.operators.rms_norm import rms_norm
from deployops.symbolic.operators.scale_bias_act import scale_bias_act
from deployops.symbolic.operators.sigmoid import sigmoid
from deployops.symbolic.operators.softmax import softmax

WIDTH = 67  # four vectors of 16 and a tail
PLACES = (0, 1, 15, 16, 31, 32, 63, 64, 66)
SPECIALS = (math.nan, math.inf, -math.inf)

# our operator, and what torch itself computes
ROWS: dict[str, tuple[Any, Callable[[torch.Tensor], torch.Tensor]]] = {
    "relu": (lambda run, x: run(relu, x), torch.relu),
    "add_relu": (lambda run, x: run(add_relu, x, torch.ones(1)), lambda x: torch.relu(x + 1)),
    "sigmoid": (lambda run, x: run(sigmoid, x), torch.sigmoid),
    "softmax": (lambda run, x: run(softmax, x), lambda x: torch.softmax(x, -1)),
    "layer_norm": (lambda run, x: run(layer_norm, x), lambda x: F.layer_norm(x, x.shape[-1:])),
    "rms_norm": (
        lambda run, x: run(rms_norm, x),
        lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6),
    ),
    "mean_pool": (lambda run, x: run(mean_pool, x), lambda x: x.mean(-1)),
    **{
        f"scale_bias_act {name}": (
            lambda run, x, name=name: run(scale_bias_act, x, torch.ones(x.shape[-1]), None, name),
            function,
        )
        for name, function in (
            ("relu", torch.relu),
            ("leaky_relu", lambda x: F.leaky_relu(x, 0.01)),
            ("sigmoid", torch.sigmoid),
            ("tanh", torch.tanh),
            ("silu", F.silu),
        )
    },
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_wherever_it_stands(name: str, dtype: torch.dtype, shipped_library: str) -> None:
    kernels = CpuLibrary(shipped_library)
    ours, theirs = ROWS[name]
    for level in kernels.levels:

        def run(op: Any, *args: Any, level: str = level) -> torch.Tensor:
            return kernels.run(
                op, [a.to(dtype) if isinstance(a, torch.Tensor) else a for a in args], level=level
            )[0]

        for place in PLACES:
            for special in SPECIALS:
                x = torch.linspace(-3, 3, WIDTH, dtype=dtype).repeat(2, 1)
                x[0, place] = special
                got, want = ours(run, x), theirs(x)
                where = f"{level}: {special} at {place}"
                assert torch.equal(got.isnan(), want.isnan()), where
                assert torch.equal(got.isinf(), want.isinf()), where
                assert torch.equal(got[got.isinf()], want[want.isinf()]), where
                finite = got.isfinite()
                torch.testing.assert_close(got[finite], want[finite], rtol=1e-5, atol=1e-6, msg=where)


def test_attention_with_an_infinite_score_and_with_nan(shipped_library: str) -> None:
    kernels = CpuLibrary(shipped_library)
    torch.manual_seed(0)
    for place in (0, 17, 40):
        for special in SPECIALS:
            q, k, v = (torch.randn(1, 1, 41, 8) for _ in range(3))
            k[0, 0, place, 3] = special
            [got] = kernels.run(attention, (q, k, v))
            want = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(8), -1) @ v
            assert torch.equal(got.isnan(), want.isnan())
            finite = got.isfinite()
            torch.testing.assert_close(got[finite], want[finite], rtol=1e-5, atol=1e-5)
