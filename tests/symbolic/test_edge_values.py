"""A body that is right on random samples and wrong at zeros and ties is found; sound ones with a domain pass."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

from deployops.symbolic import Operator, operator
from deployops.symbolic.checking.body_check import check_body
from deployops.symbolic.checking.edge_values import edge_runs
from deployops.symbolic.checking.sample_runs import MoreThanATenthOff, SampleRun, runs
from deployops.symbolic.checking.tally import CheckResult

_numbers = count()


def declared(reference: Callable[..., Any], body: Any, *shapes: tuple[int, ...], **bounds: float) -> Operator:
    k = next(_numbers)
    op = operator(f"t_edges::op{k}", onnx=f"t_edges::Op{k}", dtypes=("float32", "float64", "float16"))(
        reference
    )
    op.fake(lambda x, *rest: torch.empty_like(x))
    op.body(body)
    op.samples(lambda draw: [tuple(draw(*s, **bounds) for s in shapes)])
    return op


def checked(
    reference: Callable[..., Any], body: Any, *shapes: tuple[int, ...], **bounds: float
) -> CheckResult:
    return check_body(declared(reference, body, *(shapes or ((3, 5),)), **bounds))


def rounded(x: Tensor) -> Tensor:
    return torch.round(x)


def cube_root(x: Tensor) -> Tensor:
    return torch.sign(x) * torch.abs(x) ** (1 / 3)


def logarithm(x: Tensor) -> Tensor:
    return torch.log(x)


def root(x: Tensor) -> Tensor:
    return torch.sqrt(x)


def half_away(op: Any, x: Any) -> Any:
    return op.Mul(op.Sign(x), op.Floor(op.Add(op.Abs(x), 0.5)))


def by_own_size(op: Any, x: Any) -> Any:
    """NaN at zero: 0 / 0."""
    size = op.Abs(x)
    return op.Mul(op.Div(x, size), op.Pow(size, 1 / 3))


def test_halves_rounded_away_from_zero() -> None:
    found = checked(rounded, half_away)
    assert found.status == "failed"
    assert "at edge values" in found.detail


def test_a_cube_root_that_is_nan_at_zero() -> None:
    found = checked(cube_root, by_own_size)
    assert found.status == "failed"
    assert "nan at" in found.detail


@pytest.mark.parametrize(
    ("reference", "body"),
    [
        (rounded, lambda op, x: op.Round(x)),
        (cube_root, lambda op, x: op.Mul(op.Sign(x), op.Pow(op.Abs(x), 1 / 3))),
        (logarithm, lambda op, x: op.Log(x)),
        (root, lambda op, x: op.Sqrt(x)),
    ],
)
@pytest.mark.parametrize("bounds", [{}, {"low": 0.25, "high": 0.75}])
def test_sound_bodies_pass(reference: Callable[..., Any], body: Any, bounds: dict[str, float]) -> None:
    found = checked(reference, body, **bounds)
    assert found.status == "passed", found.detail


def test_what_is_not_elementwise_has_no_edge_values() -> None:
    def mean(x: Tensor) -> Tensor:
        return x - x.mean(-1, keepdim=True)

    op = declared(mean, lambda op, x: x, (1, 6))
    assert not [e for run in runs(op) for e in edge_runs(run)]
    op = declared(rounded, half_away, (3, 5))
    assert [e for run in runs(op) for e in edge_runs(run)]


def test_values_that_the_sample_says_are_no_input_are_left_out() -> None:
    op = declared(root, lambda op, x: op.Sqrt(x), (3, 5), low=0.25, high=0.75)
    for run in runs(op):
        [edges] = edge_runs(run)
        [x] = edges.sample.tensors()
        assert float(x.min()) > 0
        assert float(x.max()) <= 1


def test_a_reference_that_takes_the_bytes_of_float64_for_its_own_cannot_judge() -> None:
    def by_address(x: Tensor) -> Tensor:
        n = x.numel()
        buffer = (ctypes.c_float * n).from_address(x.data_ptr())
        return torch.tensor([buffer[i] for i in range(n)], dtype=x.dtype).reshape(x.shape)

    k = next(_numbers)
    op = operator(f"t_edges::op{k}", onnx=f"t_edges::Op{k}", dtypes=("float32",))(by_address)
    op.fake(lambda x: torch.empty_like(x))
    op.body(lambda op, x: op.Mul(x, 3.0))
    op.samples(lambda draw: [(draw(3, 5),)])
    run: SampleRun = next(iter(runs(op)))
    with pytest.raises(MoreThanATenthOff, match="more than a tenth off"):
        run.exact()
    found = check_body(op)
    assert found.status == "not checked"
    assert "cannot judge" in found.detail
