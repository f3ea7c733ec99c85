"""Each fault in a small model is found, and its faultless twin passes. No tolerance is set for any."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper
from torch import nn

from deployops.validation import Report, Sample, validate

Build = Callable[..., Path]


def check(model: Any, path: Path, *args: Any, **options: Any) -> Report:
    return validate(model, path, args, latency=False, isolate=False, **options)


def seeded(module: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    for p in module.parameters():
        p.data = torch.randn(p.shape, generator=generator) / max(p.shape[-1], 1) ** 0.5
    return module.to(dtype).eval()


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(dtype)


def test_gelu_variants_are_told_apart(export: Build) -> None:
    erf, tanh = nn.GELU(), nn.GELU(approximate="tanh")
    path = export(tanh, (x(50, 60),))
    assert check(tanh, path, x(50, 60)).exit_code == 0
    report = check(erf, path, x(50, 60))
    assert report.exit_code == 1
    # 4.7e-4 is the largest distance between the two functions (case 43, by mpmath)
    worst = max(c.metrics.max_abs for c in report.cells if c.metrics)
    assert worst == pytest.approx(4.73e-4, rel=0.02)


def test_gelu_swap_behind_a_layer(export: Build) -> None:
    def net(approximate: str) -> nn.Module:
        return seeded(nn.Sequential(nn.Linear(32, 32), nn.GELU(approximate=approximate), nn.Linear(32, 8)))

    path = export(net("tanh"), (x(16, 32),))
    assert check(net("tanh"), path, x(16, 32)).exit_code == 0
    assert check(net("none"), path, x(16, 32)).exit_code == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_bias_dropped_on_one_class(export: Build, dtype: torch.dtype) -> None:
    torch.manual_seed(0)  # the model of case 24
    layers = [layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.GELU())]
    net = nn.Sequential(*layers, nn.Linear(256, 10)).eval()
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.normal_(layer.bias, std=0.02)
    net.to(dtype)
    sample = torch.randn(32, 256).to(dtype)
    assert check(net, export(net, (sample,)), sample).exit_code == 0
    bias = net[-1].bias
    kept = bias.detach().clone()
    assert 0.01 < abs(float(kept[7])) < 0.014
    bias.data[7] = 0
    faulty = export(net, (sample,))
    bias.data = kept
    assert check(net, faulty, sample).exit_code == 1


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_zeros_against_tiny_outputs(build: Build, dtype: str) -> None:
    kind = "float" if dtype == "float32" else "float16"

    class Tiny(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return v * 1e-4

    def file(factor: float) -> Path:
        constants = {"k": np.array(factor, dtype)}
        node = helper.make_node("Mul", ["v", "k"], ["y"])
        return build([node], [("v", kind, ["n", 8])], [("y", kind, ["n", 8])], constants)

    sample = x(4, 8, dtype=getattr(torch, dtype))
    assert check(Tiny(), file(0.0), sample).exit_code == 1
    assert check(Tiny(), file(1e-4), sample).exit_code == 0


def test_nan_swallowed_by_reduce_max(export: Build) -> None:
    class Max(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return v.amax(1)

    clean = x(3, 5)
    spoiled = clean.clone()
    spoiled[1, 3] = float("nan")
    path = export(Max(), (clean,))
    assert check(Max(), path, clean).exit_code == 0
    report = check(Max(), path, spoiled, sizes=1)
    assert report.exit_code == 1
    cell = report.cells[0]
    assert cell.metrics is not None
    assert cell.metrics.nan == 1
    assert "NaN on one side only" in cell.reason


def test_nan_kept_is_not_a_fault(export: Build) -> None:
    spoiled = x(3, 5)
    spoiled[1, 3], spoiled[0, 0], spoiled[2, 2] = float("nan"), float("inf"), -float("inf")
    assert check(nn.ReLU(), export(nn.ReLU(), (x(3, 5),)), spoiled, sizes=1).exit_code == 0


def test_integer_output_of_another_dtype(build: Build) -> None:
    class CumSum(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return v.cumsum(1)

    big = torch.full((2, 4), 2**30, dtype=torch.int32)
    axis = {"axis": np.array(1)}
    scan = helper.make_node("CumSum", ["v", "axis"], ["y"])
    kept = build([scan], [("v", "int32", ["n", 4])], [("y", "int32", ["n", 4])], axis)
    report = check(CumSum(), kept, big)
    assert report.exit_code == 1
    assert "dtype int32, the original returns int64" in report.cells[0].reason
    cast = helper.make_node("Cast", ["v"], ["w"], to=7)
    scan = helper.make_node("CumSum", ["w", "axis"], ["y"])
    right = build([cast, scan], [("v", "int32", ["n", 4])], [("y", "int64", ["n", 4])], axis)
    assert check(CumSum(), right, big).exit_code == 0
    # the wrap, with the dtype put right afterwards: only the values tell
    back = [helper.make_node("CumSum", ["v", "axis"], ["s"]), helper.make_node("Cast", ["s"], ["y"], to=7)]
    wrapped = build(back, [("v", "int32", ["n", 4])], [("y", "int64", ["n", 4])], axis)
    assert check(CumSum(), wrapped, big).exit_code == 1


def test_wrong_axis(export: Build) -> None:
    path = export(nn.Softmax(0), (x(6, 6),), open_axis=False)
    assert check(nn.Softmax(1), path, x(6, 6)).exit_code == 1
    assert check(nn.Softmax(0), path, x(6, 6)).exit_code == 0


def test_transposed_weights(export: Build) -> None:
    net = seeded(nn.Sequential(nn.Linear(16, 16)))
    good = export(net, (x(3, 16),))
    net[0].weight.data = net[0].weight.data.T.contiguous()
    assert check(net, good, x(3, 16)).exit_code == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_layer_norm_with_another_epsilon(export: Build, dtype: torch.dtype) -> None:
    low = (0.01 * x(20, 64)).to(dtype)
    path = export(nn.LayerNorm(64, eps=1e-6).to(dtype), (low,))
    assert check(nn.LayerNorm(64, eps=1e-6).to(dtype), path, low).exit_code == 0
    assert check(nn.LayerNorm(64, eps=1e-5).to(dtype), path, low).exit_code == 1


def test_stale_constant(build: Build) -> None:
    class Scaled(nn.Module):
        def forward(self, v: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            return v * k

    inputs = [("v", "float", ["n", 4])]
    node = helper.make_node("Mul", ["v", "k"], ["y"])
    stale = build([node], inputs, [("y", "float", ["n", 4])], {"k": np.float32(2.0)})
    fresh = build([node], [*inputs, ("k", "float", [])], [("y", "float", ["n", 4])])
    v, two, three = x(3, 4), torch.tensor(2.0), torch.tensor(3.0)
    assert check(Scaled(), stale, v, two).exit_code == 0  # the constant that was traced
    assert check(Scaled(), stale, v, three).exit_code == 1
    assert check(Scaled(), fresh, v, three).exit_code == 0


def test_random_output(build: Build) -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["v"], ["r"], scale=1e-3),
        helper.make_node("Add", ["v", "r"], ["y"]),
    ]
    path = build(nodes, [("v", "float", ["n", 4])], [("y", "float", ["n", 4])])
    assert check(nn.Identity(), path, x(3, 4)).exit_code == 1


def test_dropout_hidden_by_the_optimiser(tmp_path: Path) -> None:
    """Case 25: the default exporter keeps the active Dropout of training mode; the optimiser drops it."""
    net = seeded(nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 4)))
    path = tmp_path / "train.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net.train(), (x(3, 8),), str(path), dynamo=True, verbose=False)
    report = check(net, path, x(3, 8))
    failed = [c for c in report.cells if c.verdict == "failed"]
    assert report.exit_code == 1
    assert {c.backend for c in failed} == {"onnxruntime, optimiser off"}
    assert "with the runtime's optimiser off" in failed[0].reason
    assert net.training
    assert net[1].training  # restored


@pytest.mark.parametrize("more", [True, False])
def test_another_number_of_outputs(build: Build, more: bool) -> None:
    class Two(nn.Module):
        def forward(self, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (v, v + 1) if not more else (v,)

    names = ["a", "b"] if more else ["a"]
    nodes = [helper.make_node("Identity", ["v"], [n]) for n in names]
    path = build(nodes, [("v", "float", ["n"])], [(n, "float", ["n"]) for n in names])
    report = check(Two(), path, x(3))
    assert report.exit_code == 1
    assert f"has {len(names)} outputs, the original {3 - len(names)}" in report.cells[0].reason


def test_another_shape(build: Build) -> None:
    node = helper.make_node("Flatten", ["v"], ["y"], axis=1)
    path = build([node], [("v", "float", ["n", 2, 3])], [("y", "float", ["n", 6])])
    report = check(nn.Identity(), path, x(4, 2, 3))
    assert report.exit_code == 1
    assert "shape [4, 6], the original returns [4, 2, 3]" in report.cells[0].reason


def test_wrong_at_one_size_only(build: Build) -> None:
    """A mean whose divisor was frozen at the example's size."""

    class Mean(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return v.mean(0)

    axis = np.array([0])
    nodes = [
        helper.make_node("ReduceSum", ["v", "axis"], ["s"], keepdims=0),
        helper.make_node("Div", ["s", "n"], ["y"]),
    ]
    inputs, outputs = [("v", "float", ["n", 5])], [("y", "float", [5])]
    path = build(nodes, inputs, outputs, {"axis": axis, "n": np.float32(4)})
    report = check(Mean(), path, x(4, 5))
    assert report.exit_code == 1
    assert {c.verdict for c in report.cells if c.sample == "example"} == {"passed"}
    assert {c.verdict for c in report.cells if c.sample != "example"} == {"failed"}
    right = [helper.make_node("ReduceMean", ["v", "axis"], ["y"], keepdims=0)]
    assert check(Mean(), build(right, inputs, outputs, {"axis": axis}), x(4, 5)).exit_code == 0


def test_crash_at_one_size_is_a_failure_with_the_runtimes_words(build: Build) -> None:
    node = helper.make_node("Reshape", ["v", "shape"], ["y"])
    path = build([node], [("v", "float", ["n", 6])], [("y", "float", None)], {"shape": np.array([2, 12])})

    class Halve(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return v.reshape(v.shape[0] // 2, 12)

    report = check(Halve(), path, x(4, 6), sizes=3)
    failed = [c for c in report.cells if c.verdict == "failed"]
    assert report.exit_code == 1
    assert [c.sample for c in failed] == ["n=8"]  # at 5 the original does not run either
    assert "cannot be reshaped" in failed[0].reason
    assert "onnxruntime::" not in failed[0].reason
    skipped = next(c for c in report.cells if c.sample == "n=5")
    assert skipped.verdict == "not checked"
    assert "the original does not run" in skipped.reason


def test_fault_in_a_channel_of_small_values(export: Build) -> None:
    """One head of two is a hundred times smaller: the fault is small against the other one."""

    class Heads(nn.Module):
        def __init__(self, shift: float) -> None:
            super().__init__()
            self.shift = shift

        def forward(self, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return v * 100, v + self.shift

    path = export(Heads(1e-3), (x(8, 4),))
    report = check(Heads(0.0), path, x(8, 4))
    assert report.exit_code == 1
    outputs = {c.output for c in report.cells if c.verdict == "failed"}
    assert len(outputs) == 1  # judged per output


def test_epsilon_thin_fault_over_a_whole_float16_output(export: Build) -> None:
    """Half an ULP everywhere: no element is out of budget, the rms of all is."""

    class Shifted(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return (v.float() * self.factor).to(v.dtype)

    half = x(64, 64, dtype=torch.float16)
    path = export(Shifted(1.0007), (half,))
    assert check(Shifted(1.0007), path, half).exit_code == 0
    report = check(Shifted(1.0), path, half)
    assert report.exit_code == 1
    assert "rms" in report.cells[0].reason


def test_samples_given_by_the_caller(export: Build) -> None:
    net = seeded(nn.Sequential(nn.Linear(4, 4)))
    path = export(net, (x(2, 4),))
    report = validate(
        net, path, samples=[Sample("a", (x(2, 4),)), ("b", (x(7, 4),))], latency=False, isolate=False
    )
    assert report.exit_code == 0
    assert {c.sample for c in report.cells} == {"a", "b"}
