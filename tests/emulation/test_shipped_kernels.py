"""The CUDA kernels that come with deployops: on all samples in all ways, and on the sizes that samples are too small for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from deployops.symbolic.checking.error_budget import faults
from deployops.symbolic.checking.sample_runs import SampleRun
from deployops.symbolic.checking.tally import CheckResult
from deployops.symbolic.operator import Operator
from deployops.symbolic.samples import Sample
from deployops.trt_plugins.emulation.calls import Layout
from deployops.trt_plugins.emulation.check import emulate
from deployops.trt_plugins.emulation.library import EmulatedLibrary

NAMES = (
    "add_relu", "add_rms_norm", "attention", "cube_root", "layer_norm", "mean_pool", "relu", "rms_norm",
    "scale_bias_act", "sigmoid", "softmax", "swish",
)  # fmt: skip
INF = float("inf")


@pytest.fixture(scope="session")
def results(shipped: dict[str, Operator]) -> dict[str, CheckResult]:
    found = emulate(list(shipped.values()))
    return {r.operator.partition("::")[2]: r for r in found}


def test_every_operator_has_a_kernel(shipped: dict[str, Operator], emulated: EmulatedLibrary) -> None:
    assert set(shipped) == set(NAMES)
    assert not emulated.built.failed


@pytest.mark.parametrize("name", NAMES)
def test_parity_on_all_samples(name: str, results: dict[str, CheckResult]) -> None:
    assert results[name].status == "passed", results[name].detail
    assert "not checked" not in results[name].detail


@pytest.mark.parametrize("name", ["softmax", "attention", "add_rms_norm"])
def test_no_race(name: str, shipped: dict[str, Operator]) -> None:
    (result,) = emulate([shipped[name]], sanitize="thread")
    assert result.status == "passed", result.detail


@pytest.mark.parametrize("name", ["mean_pool"])
def test_clean_under_address_sanitizer(name: str, shipped: dict[str, Operator]) -> None:
    (result,) = emulate([shipped[name]], sanitize="address")
    assert result.status == "passed", result.detail


# --- sizes beyond those of samples --------------------------------------------------------------------------------


def draw(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


def late_maximum(n: int) -> Tensor:
    """Rows whose maximum comes last, after a stretch of −∞ that is longer than what a block holds."""
    x = draw(2, n)
    x[0, : n - 10] = -INF
    x[1] += torch.linspace(0, 50, n)
    return x


# Rows that fill the registers of a block, and those that do not fit; odd lengths have no packs.
CASES: dict[str, Callable[[], tuple[str, tuple[Any, ...], dict[str, Any]]]] = {
    "rms_norm row held": lambda: ("rms_norm", (draw(2, 4096), draw(4096)), {}),
    "rms_norm long row": lambda: ("rms_norm", (draw(2, 20000), draw(20000)), {}),
    "rms_norm long odd row": lambda: ("rms_norm", (draw(2, 20001), draw(20001)), {}),
    "rms_norm long row of halves": lambda: (
        "rms_norm",
        (draw(2, 20000, dtype=torch.float16), draw(20000, dtype=torch.float16)),
        {},
    ),
    "rms_norm long row of doubles": lambda: ("rms_norm", (draw(2, 9000, dtype=torch.float64),), {}),
    "rms_norm many rows": lambda: ("rms_norm", (draw(150, 24), draw(24)), {}),
    "add_rms_norm long row": lambda: (
        "add_rms_norm",
        (draw(2, 20000), draw(2, 20000, scale=3), draw(20000)),
        {},
    ),
    "layer_norm long row": lambda: ("layer_norm", (draw(2, 20000) + 100, draw(20000), draw(20000)), {}),
    "layer_norm many rows": lambda: ("layer_norm", (draw(130, 40),), {}),
    "softmax long row": lambda: ("softmax", (late_maximum(20000),), {}),
    "softmax long odd row": lambda: ("softmax", (late_maximum(18001),), {}),
    "softmax columns": lambda: ("softmax", (draw(300, 70, scale=20), 0), {}),
    "softmax many columns": lambda: ("softmax", (draw(30, 3, 40), 1), {}),
    "mean_pool large image": lambda: ("mean_pool", (draw(1, 2, 300, 333) + 5,), {}),
    "mean_pool many channels": lambda: ("mean_pool", (draw(3, 50, 5, 7, dtype=torch.bfloat16),), {}),
    "add_relu broadcast": lambda: ("add_relu", (draw(37, 1, 41), draw(29, 41)), {}),
    "swish channels": lambda: ("swish", (draw(3, 300, 7, 7), draw(300)), {}),
    "scale_bias_act last dim": lambda: (
        "scale_bias_act",
        (draw(50, 96, dtype=torch.float16), draw(96, dtype=torch.float16), None, "gelu", -1),
        {},
    ),
    "attention tiles": lambda: (
        "attention",
        (draw(2, 6, 70, 100), draw(2, 3, 131, 100), draw(2, 3, 131, 150)),
        {},
    ),
    "attention causal, bias and mask": lambda: (
        "attention",
        (
            draw(1, 4, 90, 64, dtype=torch.float16),
            draw(1, 2, 100, 64, dtype=torch.float16),
            draw(1, 2, 100, 64, dtype=torch.float16),
            draw(4, 90, 100, dtype=torch.float16),
            draw(90, 100) > -1,
            True,
        ),
        {},
    ),
    "attention doubles": lambda: (
        "attention",
        (
            draw(1, 2, 40, 70, dtype=torch.float64),
            draw(1, 2, 50, 70, dtype=torch.float64),
            draw(1, 2, 50, 70, dtype=torch.float64),
        ),
        {"is_causal": True},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_parity_on_sizes_beyond_samples(
    case: str, shipped: dict[str, Operator], emulated: EmulatedLibrary
) -> None:
    name, args, kwargs = CASES[case]()
    op = shipped[name]
    run = SampleRun(op, str(args[0].dtype).removeprefix("torch."), 0, Sample(args, kwargs))
    by_torch, exact = run.reference(), run.exact()
    for tactic in range(emulated.tactics(op)):
        got = emulated.run(op, args, kwargs, tactic=tactic, seed=tactic % 2, like=by_torch)
        wrong = [f for f in faults(run, got, by_torch, exact) if f]
        assert not wrong, f"tactic {tactic}: {wrong}"


# --- heads, packs and tails of rows ---------------------------------------------------------------------------------

SIZES = (1, 2, 7, 8, 9, 15, 16, 17, 1023, 1025)


def around_packs(name: str, n: int, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Three rows of n numbers, or columns: where rows begin differs from row to row."""
    x = draw(3, n, dtype=dtype)
    return {
        "rms_norm": ((x, draw(n, dtype=dtype)), {}),
        "add_rms_norm": ((x, draw(3, n, dtype=dtype, scale=3), draw(n, dtype=dtype)), {}),
        "layer_norm": ((x, draw(n, dtype=dtype), draw(n, dtype=dtype, scale=2)), {}),
        "mean_pool": ((x,), {}),
        "softmax": ((x,), {}),
        "softmax columns": ((draw(2, 37, n, dtype=dtype), 1), {}),
        "attention": (
            (
                draw(1, 2, 5, n % 150, dtype=dtype),
                draw(1, 1, 7, n % 150, dtype=dtype),
                draw(1, 1, 7, n, dtype=dtype),
            ),
            {},
        ),
    }[name]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "name",
    ["rms_norm", "add_rms_norm", "layer_norm", "mean_pool", "softmax", "softmax columns", "attention"],
)
def test_parity_around_packs_and_wherever_tensors_begin(
    name: str, dtype: torch.dtype, shipped: dict[str, Operator], emulated: EmulatedLibrary
) -> None:
    op = shipped[name.partition(" ")[0]]
    for n in SIZES:
        args, kwargs = around_packs(name, n, dtype)
        run = SampleRun(op, str(dtype).removeprefix("torch."), 0, Sample(args, kwargs))
        by_torch, exact = run.reference(), run.exact()
        # With 1, a tensor ends at the guard, and begins as far from 16 bytes as its size is; a row and its weight differ.
        for layout in (Layout(16), Layout(1)):
            for tactic in range(emulated.tactics(op)):
                got = emulated.run(op, args, kwargs, tactic=tactic, layout=layout, like=by_torch)
                wrong = [f for f in faults(run, got, by_torch, exact) if f]
                assert not wrong, f"n = {n}, {layout}, tactic {tactic}: {wrong}"


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize(
    "name", ["rms_norm", "add_rms_norm", "layer_norm", "softmax", "softmax columns", "attention"]
)
def test_parity_where_outputs_lie_differently_than_inputs(
    name: str, dtype: torch.dtype, shipped: dict[str, Operator], emulated: EmulatedLibrary
) -> None:
    op = shipped[name.partition(" ")[0]]
    for n in (8, 9, 17, 1025):
        args, kwargs = around_packs(name, n, dtype)
        run = SampleRun(op, str(dtype).removeprefix("torch."), 0, Sample(args, kwargs))
        by_torch, exact = run.reference(), run.exact()
        for layout in (Layout(16, inputs=1), Layout(16, inputs=0, outputs=1)):
            got = emulated.run(op, args, kwargs, layout=layout, like=by_torch)
            wrong = [f for f in faults(run, got, by_torch, exact) if f]
            assert not wrong, f"n = {n}, {layout}: {wrong}"


@pytest.mark.parametrize("tactic", range(4))
def test_attention_gives_the_mean_of_values_whose_sum_is_no_float(
    tactic: int, shipped: dict[str, Operator], emulated: EmulatedLibrary
) -> None:
    # The formula weighs first: no sum is larger than the values.
    q, k, v = draw(1, 1, 3, 8), draw(1, 1, 40, 8), torch.full((1, 1, 40, 4), 3e38)
    (y,) = emulated.run(shipped["attention"], (q, k, v), tactic=tactic)
    torch.testing.assert_close(y, torch.full((1, 1, 3, 4), 3e38), rtol=1e-5, atol=0)


@pytest.mark.parametrize("tactic", range(4))
def test_attention_keeps_nan_of_values_in_the_future(
    tactic: int, shipped: dict[str, Operator], emulated: EmulatedLibrary
) -> None:
    # 0 · NaN is NaN, also far beyond the keys that any query of a block may look at.
    q, k, v = draw(1, 1, 3, 8), draw(1, 1, 100, 8), draw(1, 1, 100, 4)
    v[0, 0, 90, 2] = float("nan")
    (y,) = emulated.run(shipped["attention"], (q, k, v), {"is_causal": True}, tactic=tactic)
    assert torch.isnan(y[..., 2]).all()
    assert torch.isfinite(y[..., [0, 1, 3]]).all()


@pytest.mark.parametrize("seed", [0, 5])
def test_results_do_not_depend_on_the_number_of_workers(
    seed: int, shipped: dict[str, Operator], emulated: EmulatedLibrary
) -> None:
    x = draw(64, 512)
    one = emulated.run(shipped["rms_norm"], (x,), workers=1, seed=seed)
    three = emulated.run(shipped["rms_norm"], (x,), workers=3, seed=seed)
    assert torch.equal(one[0], three[0])
