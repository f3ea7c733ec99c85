"""The original's own error: the first look, the second, and the least accurate sound way of computing the same."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from deployops.validation.own_error import OwnError
from deployops.validation.rounded import each_step_rounded

from .candidates import Net, cell, each_node_rounded, expected, on_onnxruntime


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_activation_taken_apart_rounds_at_each_step(dtype: torch.dtype) -> None:
    """Against the same five steps written out by hand, each rounded."""
    x = rand(500).to(dtype)
    half, root = torch.tensor(0.5, dtype=dtype), torch.tensor(2**-0.5, dtype=dtype)
    by_hand = (x * half) * (1 + torch.erf(x * root))
    with each_step_rounded(dtype):
        found = F.gelu(x)
    exact = F.gelu(x.double())
    ours, theirs = (found - exact).abs().max(), (by_hand - exact).abs().max()
    assert found.dtype == dtype
    assert ours == pytest.approx(float(theirs), rel=0.2)
    assert ours > 10 * (F.gelu(x) - exact)[x < -2].abs().max()


def test_what_the_model_computes_in_float32_stays_so() -> None:
    x = rand(40, 24).half()

    def norm(v: torch.Tensor) -> torch.Tensor:
        wide = v.float()
        return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6)).half()

    with each_step_rounded(torch.float16):
        assert torch.equal(norm(x), norm(x))
        found = norm(x)
    assert torch.equal(found, norm(x))


def test_products_accumulate_in_float32() -> None:
    x, w = rand(8, 2048).half(), rand(2048, 8).half()
    with each_step_rounded(torch.float16):
        found = x @ w
    assert torch.equal(found, x @ w)


@pytest.mark.parametrize(
    ("original", "file"),
    [
        (torch.expm1, lambda v: torch.exp(v) - 1),
        (torch.log1p, lambda v: torch.log(1 + v)),
        (F.elu, F.elu),  # ONNX Runtime computes exp(x) - 1 in it
    ],
)
def test_cancellation_that_files_bring_along(
    original: Callable[[torch.Tensor], torch.Tensor], file: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """ONNX has neither Expm1 nor Log1p. PyTorch's own float32 result has no such error, so the first look fails."""
    x = 1e-4 * rand(100, 20)
    reference = expected(Net(lambda v, _: original(v)), (x,))
    got = on_onnxruntime(Net(lambda v, _: file(v)), (x,))
    assert cell(replace(reference, again=None), got).verdict == "failed"
    assert cell(reference, got).verdict == "passed"


def test_a_scan_in_float32_is_sound() -> None:
    net = Net(lambda v, _: v.cumsum(1))
    x = 30 * rand(8, 200)
    reference = expected(net, (x,))
    sequential = np.cumsum(x.numpy(), 1, dtype=np.float32)
    found = cell(reference, sequential)
    assert found.verdict == "passed"
    assert found.budget is not None
    assert "each step rounded" in found.budget.source
    # but not one in half precision
    assert cell(reference, np.cumsum(x.numpy(), 1, dtype=np.float16).astype(np.float32)).verdict == "failed"


def test_the_second_look_is_taken_only_after_a_failure() -> None:
    calls = 0

    class Counted(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            return F.gelu(v)

    x = rand(40, 60).half()
    reference = expected(Counted(), (x,))
    before = calls
    assert cell(reference, on_onnxruntime(nn.GELU(), (x,))).verdict == "passed"
    assert calls == before
    rounded = each_node_rounded(nn.GELU(), (x,), torch.float16)
    assert cell(reference, rounded).verdict == "passed"
    assert calls > before
    after = calls
    assert cell(reference, rounded).verdict == "passed"  # once for all backends
    assert calls == after


def test_the_second_look_stays_in_its_process() -> None:
    reference = expected(nn.GELU(), (rand(10, 10),))
    assert reference.again is not None
    there = pickle.loads(pickle.dumps(reference))  # noqa: S301
    assert there.again is None
    assert np.array_equal(there.array, reference.array)
    assert there.budget == reference.budget


def test_zeros_are_nudged_too() -> None:
    """A relative nudge leaves zeros as they are, and one number's own error may be zero by luck."""
    seen = []

    def narrow(args: tuple[torch.Tensor, ...], kwargs: object) -> list[np.ndarray]:
        seen.append(args[0])
        return [args[0].sum(0, keepdim=True).float().numpy()]

    def wide(args: tuple[torch.Tensor, ...], kwargs: object) -> list[np.ndarray]:
        return [args[0].double().sum(0, keepdim=True).numpy()]

    x = torch.zeros(5)
    outputs = [np.zeros((1,), np.float32)], [np.zeros((1,))]
    OwnError(((x,), {}), outputs, (narrow, wide, None), [0], 0, False).first()
    assert len(seen) == 8
    assert all(v.abs().max() > 0 for v in seen)
    assert all(v.abs().max() <= 2 * torch.finfo(torch.float32).eps for v in seen)


def test_two_looks_with_one_seed_are_the_same() -> None:
    first, second = (expected(nn.GELU(), (rand(1, 3).half(),)) for _ in range(2))
    assert first.again is not None
    assert second.again is not None
    assert first.budget == second.budget
    assert first.again() == second.again()
