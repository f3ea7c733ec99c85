"""Faults that a declaration hides well: each is found, once, with what to do."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

from deployops.symbolic import Operator, adopt, operator
from deployops.symbolic.checking.fake_check import check_shape_rule
from deployops.symbolic.checking.operator_check import CheckResult, check_operator, render
from deployops.symbolic.checking.other_sizes import other_sizes
from deployops.symbolic.checking.sample_runs import runs

_numbers = count()


def declare(reference: Callable[..., Any], fake: Any = None, samples: Any = None, **options: Any) -> Operator:
    k = next(_numbers)
    op = operator(f"t_findings::op{k}", onnx=f"t_findings::Op{k}", **options)(reference)
    op.fake(fake or (lambda x: torch.empty_like(x)))
    op.samples(samples or (lambda draw: [draw(3, 4)]))
    return op


def found(op: Operator) -> dict[str, CheckResult]:
    return {r.check: r for r in check_operator(op)}


def silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


# --- other sizes than the samples' ----------------------------------------------------------------------------


def test_a_fake_kernel_that_repeats_the_samples_shape_is_found() -> None:
    op = declare(silu, fake=lambda x: x.new_empty(3, 4))
    result = found(op)["fake"]
    assert result.status == "failed"
    assert (
        "at other sizes (x: [4,5]) output 0 is (3, 4) by the fake kernel, (4, 5) by the reference"
        in result.detail
    )
    rule = check_shape_rule(op)
    assert rule.status == "failed"
    assert "(4, 5) by the reference" in rule.detail


def test_one_that_takes_the_wrong_one_of_two_equal_dims_is_found() -> None:
    def reference(x: Tensor) -> Tensor:
        return x.sum(0)

    op = declare(reference, fake=lambda x: x.new_empty(x.shape[0]), samples=lambda draw: [draw(4, 4)])
    assert found(op)["fake"].status == "failed"


def test_sizes_that_go_together_stay_equal() -> None:
    def reference(x: Tensor, w: Tensor) -> Tensor:
        return x @ w

    op = declare(
        reference,
        fake=lambda x, w: x.new_empty(x.shape[0], w.shape[1]),
        samples=lambda draw: [(draw(2, 3), draw(3, 5))],
    )
    assert found(op)["fake"].status == "passed"
    (run, *_) = runs(op)
    shapes = [[tuple(t.shape) for t in o.run.sample.tensors()] for tried in other_sizes(run) for o in tried]
    assert [(3, 4), (4, 6)] in shapes


def test_a_reference_that_takes_no_other_sizes_is_said() -> None:
    def reference(x: Tensor) -> Tensor:
        if x.shape != (3, 4):
            raise ValueError("only (3, 4)")
        return x * 2

    result = found(declare(reference))["fake"]
    assert result.status == "passed"
    assert "only at the samples' sizes" in result.detail
    assert "only at" not in found(declare(silu))["fake"].detail


# --- a reference that is no function of its arguments ---------------------------------------------------------


def writes(x: Tensor) -> Tensor:
    return x.mul_(2) + 1


def writes_the_same(x: Tensor) -> Tensor:
    return x.mul_(1) + 1


def is_random(x: Tensor) -> Tensor:
    return x * (torch.rand_like(x) > 0.5)


_calls = count()


def counts(x: Tensor) -> Tensor:
    return x + next(_calls)


def is_a_view(x: Tensor) -> Tensor:
    return x.view(x.shape)


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (writes, "writes into `x`, which the declaration does not say.*mutates=\\('x',\\)"),
        (writes_the_same, "writes into `x`"),
        (is_random, "it is random.*stateful=True"),
        (counts, "not deterministic"),
        (is_a_view, "returns an argument, or a view of one: return a new tensor"),
    ],
)
def test_what_is_no_function_of_its_arguments_is_found_once(reference: Any, words: str) -> None:
    import re

    results = found(declare(reference))
    assert results["declaration"].status == "failed"
    assert re.search(words, results["declaration"].detail)
    assert {r.status for c, r in results.items() if c != "declaration"} == {"not checked"}


def test_declared_it_is_no_fault() -> None:
    def reference(x: Tensor) -> None:
        x.mul_(2)

    assert found(declare(reference, mutates=("x",), fake=lambda x: None))["declaration"].status == "passed"
    assert found(declare(is_random, stateful=True))["declaration"].status == "passed"


# --- adopted operators ----------------------------------------------------------------------------------------


def define(name: str, function: Callable[..., Any]) -> Any:
    made = torch.library.custom_op(f"t_findings::{name}", function, mutates_args=())
    made.register_fake(lambda x: torch.empty_like(x))
    return made


def half_blind(x: Tensor) -> Tensor:
    if x.dtype not in (torch.float32, torch.float64):
        raise TypeError("float32 and float64 only")
    return x.clamp(max=0.5)


def test_an_adopted_operator_without_a_gradient_passes_in_the_dtypes_it_takes() -> None:
    op = adopt(define("half_blind", half_blind), onnx="t_findings::HalfBlind")
    op.samples(lambda draw: [draw(3, 4)])
    results = found(op)
    assert not [r for r in results.values() if r.status == "failed"], render(list(results.values()))
    assert results["gradient"].detail == results["gradient dtypes"].detail == "it has no gradient"
    assert "2 runs" in results["declaration"].detail
    assert "not checked: float16, which the operator does not take" in results["declaration"].detail


class Doubled(torch.autograd.Function):
    factor = 2.0

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: float) -> Tensor:
        y = torch.exp(x * k)
        ctx.save_for_backward(y)
        ctx.k = k
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (y,) = ctx.saved_tensors
        return grad * y * ctx.k, None


class WithSetup(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, k: float) -> Tensor:
        return torch.exp(x * k)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)
        ctx.k = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (y,) = ctx.saved_tensors
        return grad * y * ctx.k, None


class Wrong(WithSetup):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None


class Forward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, k: float) -> Tensor:
        return torch.exp(x * k)


@pytest.mark.parametrize(
    ("cls", "status"),
    [(Doubled, "passed"), (WithSetup, "passed"), (Wrong, "failed"), (Forward, "not checked")],
)
def test_the_backward_of_an_adopted_function_is_what_is_checked(cls: Any, status: str) -> None:
    op = adopt(cls, onnx=f"t_findings::{cls.__name__}Function")
    op.samples(lambda draw: [(draw(3, 4), 0.5)])
    results = found(op)
    assert results["gradient"].status == status
    assert results["opcheck"].status == "passed"
    if status == "not checked":
        assert "the class has no `backward`" in results["gradient"].detail
        return
    x = torch.linspace(-1, 1, 5, dtype=torch.float64, requires_grad=True)
    (mine,) = torch.autograd.grad(op(x, 0.5).sum(), x)
    (its,) = torch.autograd.grad(cls.apply(x, 0.5).sum(), x)
    assert torch.equal(mine, its)


# --- messages -------------------------------------------------------------------------------------------------


def test_what_is_missing_is_named_as_the_user_has_it() -> None:
    op = operator("t_findings::bare", onnx="t_findings::Bare")(silu)
    assert "`@silu.fake`" in found(op)["declaration"].detail
    assert "`@silu.samples`" in found(op)["declaration"].detail
    made = torch.library.custom_op("t_findings::other", half_blind, mutates_args=())
    adopted = adopt(made, onnx="t_findings::Other")
    detail = found(adopted)["declaration"].detail
    assert "@torch.library.register_fake('t_findings::other')" in detail
    assert "`op = adopt('t_findings::other', ...)`, then `@op.samples`" in detail
    assert ".default" not in detail


def test_no_samples_are_one_line() -> None:
    op = operator("t_findings::silent", onnx="t_findings::Silent")(silu)
    op.fake(lambda x: torch.empty_like(x))
    text = render(check_operator(op))
    assert text.count("no samples") == 2  # the fault itself, and what could not be checked
    assert "opcheck, fake, shape rule, gradient, gradient dtypes, body: no samples" in text
    assert "1 operator:" in text


def test_the_same_fault_of_many_runs_is_told_once() -> None:
    op = declare(silu, fake=lambda x: None, samples=lambda draw: [draw(3, 4), draw(5)])
    result = found(op)["fake"]
    assert result.detail.count("\n") == 0
    assert "sample 0 in float32 (x: [3,4]) and 7 more: the fake kernel returned nothing" in result.detail


def test_a_sample_with_too_many_arguments_is_shown_whole() -> None:
    op = declare(silu, samples=lambda draw: [(draw(3, 4), 2, 3)])
    detail = found(op)["declaration"].detail
    assert "(x: [3,4], 2, 3)" in detail
    assert "the sample has 3 arguments; the operator takes (x)" in detail


def test_a_wrong_gradient_is_told_by_its_worst_element() -> None:
    """d(x·s)/dx = s + x·s·(1 − s) with s = sigmoid(x); the planted one lacks the second term, largest where x = 2."""
    op = declare(silu, samples=lambda draw: [draw.values(0.0, 0.1, 2.0)])
    op.backward(lambda g, x: g * torch.sigmoid(x))
    detail = found(op)["gradient"].detail
    assert (
        "sample 0 in float64 (x: [3]): d y[2] / d x[2]: the backward gives 0.880797, finite differences 1.09078"
        in detail
    )


def test_a_float64_fault_names_both_causes() -> None:
    """ONNX Runtime's Gelu(approximate=tanh) is off in float64; so is a body that goes through float32."""
    op = declare(silu, dtypes=("float32", "float64"))
    op.body(lambda op, x: op.cast(op.Mul(op.cast(x, "float32"), op.Sigmoid(op.cast(x, "float32"))), x.dtype))
    detail = found(op)["body"].detail
    assert "in float64 alone" in detail
    assert "the runtime's own float64 kernel" in detail


def test_a_reference_that_computes_in_float32_is_named_as_the_fault() -> None:
    def reference(x: Tensor) -> Tensor:
        return (x.float() * torch.sigmoid(x.float())).to(x.dtype)

    op = declare(reference, dtypes=("float32", "float64"))
    op.body(lambda op, x: op.Mul(x, op.Sigmoid(x)))
    results = found(op)
    for check in ("body", "gradient"):
        assert "the reference computes in float32 even in float64" in results[check].detail


def test_torchs_log_stays_quiet_while_a_fake_kernel_is_probed(caplog: pytest.LogCaptureFixture) -> None:
    def fake(x: Tensor) -> Tensor:
        raise TypeError("no")

    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.disabled
    result = found(declare(silu, fake=fake))["fake"]
    assert "raises TypeError: no" in result.detail
    assert not [r for r in caplog.records if r.name.startswith("torch")]
    assert logger.disabled == before


def test_floats_are_spelled_as_people_write_them() -> None:
    def reference(x: Tensor, eps: float = 1e-5) -> Tensor:
        return x + eps

    op = declare(reference, fake=lambda x, eps: torch.empty_like(x))
    assert op.schema == f"{op.name}(Tensor x, float eps=1e-05) -> (Tensor)"
