"""The functions of a declaration: wrong parameters are refused at once, wrong results by name and order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

from deployops import export_model
from deployops.errors import DeclarationError, DeployOpsError
from deployops.symbolic import Operator, operator

_numbers = count()


def declare(reference: Callable[..., Any], **options: Any) -> Operator:
    k = next(_numbers)
    return operator(f"t_declared::op{k}", onnx=f"t_declared::Op{k}", **options)(reference)


def scaled(x: Tensor, k: float = 2.0) -> Tensor:
    return x * k


def pair(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 1, x * 2


def keyworded(x: Tensor, *, k: float = 2.0) -> Tensor:
    return x * k


# --- parameters -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fake",
    [
        lambda x, k: torch.empty_like(x),
        lambda x, k=9.0: torch.empty_like(x),
        lambda *args: torch.empty_like(args[0]),
        lambda x, *args: torch.empty_like(x),
        lambda x, **kwargs: torch.empty_like(x),
        lambda x, k, own=1: torch.empty_like(x),
    ],
)
def test_a_fake_kernel_need_not_repeat_defaults(fake: Any) -> None:
    op = declare(scaled)
    op.fake(fake)
    assert op(torch.ones(3, device="meta")).shape == (3,)


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda a, b: a, "a, b"),
        (lambda x: x, "x"),
        (lambda k, x: x, "k, x"),
        (lambda x, k, own: x, "x, k, own"),
        (lambda y, *rest: y, r"y, \*rest"),
    ],
)
def test_other_parameters_are_refused_when_the_fake_kernel_is_declared(function: Any, given: str) -> None:
    with pytest.raises(DeclarationError, match=rf"the fake kernel takes \({given}\); expected \(x, k\)"):
        declare(scaled).fake(function)


@pytest.mark.parametrize(
    "function", [lambda g, x: g, lambda g, y, k: g, lambda x, k: x, lambda g, g1, x, k: g, lambda: None]
)
def test_other_parameters_are_refused_when_the_backward_is_declared(function: Any) -> None:
    with pytest.raises(DeclarationError, match=r"the backward takes .*; expected \(grad_y, x, k\)"):
        declare(scaled).backward(function)


def test_a_backward_takes_a_gradient_of_each_output() -> None:
    op = declare(pair)
    with pytest.raises(DeclarationError, match=r"expected \(grad_y0, grad_y1, x\)"):
        op.backward(lambda g, x: g)
    op.backward(lambda a, b, x: a + 2 * b)
    declare(pair).backward(lambda a, b, *args: a + 2 * b)


def test_keyword_only_arguments_may_be_named_as_they_are() -> None:
    op = declare(keyworded)
    op.fake(lambda x, *, k: torch.empty_like(x))
    op.body(lambda op, x, *, k: op.Mul(x, k))
    op.backward(lambda g, x, *, k: g * k)
    op.samples(lambda draw: [draw(3), draw.call(draw(3), k=0.5)])
    from deployops.symbolic.checking.operator_check import check_operator, render

    results = check_operator(op)
    assert not [r for r in results if r.status == "failed"], render(results)


# --- results --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda x: None, r"returned nothing \(None\): is a `return` missing\?; expected one tensor, `y`"),
        (lambda x: (x, x), r"returned a tuple of 2 \(tensor, tensor\); expected one tensor, `y`"),
        (lambda x: 3.0, "returned float; expected one tensor"),
        (lambda x: [x * 1], r"returned a list of 1 \(tensor\)"),
    ],
)
@pytest.mark.parametrize("what", ["reference", "fake kernel"])
def test_one_tensor_is_expected_of_an_operator_that_returns_one(result: Any, words: str, what: str) -> None:
    def reference(x: Tensor) -> Tensor:
        return result(x) if what == "reference" else x * 1  # type: ignore[no-any-return]

    op = declare(reference)
    op.fake(lambda x: result(x))
    with pytest.raises(DeclarationError, match=rf"{op.name}: the {what} {words}"):
        op(torch.ones(3, device="cpu" if what == "reference" else "meta"))


@pytest.mark.parametrize("result", [lambda x: x * 1, lambda x: (x * 1,), lambda x: (x * 1, None)])
def test_several_are_expected_by_name_and_in_order(result: Any) -> None:
    def reference(x: Tensor) -> tuple[Tensor, Tensor]:
        return result(x)  # type: ignore[no-any-return]

    op = declare(reference, outputs=("value", "index"))
    with pytest.raises(DeclarationError, match="expected 2 results, in this order: `value`, `index`"):
        op(torch.ones(3))


def test_a_list_serves_for_a_tuple() -> None:
    def reference(x: Tensor) -> tuple[Tensor, Tensor]:
        return [x * 1, x * 2]  # type: ignore[return-value]

    assert len(declare(reference)(torch.ones(3))) == 2


def test_the_body_of_a_mutating_operator_is_told_the_order() -> None:
    from deployops.symbolic.checking.operator_check import check_operator

    def reference(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        return y * 2

    op = declare(reference, mutates=("x",))
    op.fake(lambda x, y: torch.empty_like(y))
    op.body(lambda op, x, y: op.Add(x, y))
    op.samples(lambda draw: [(draw(3), draw(3))])
    detail = next(r.detail for r in check_operator(op) if r.check == "body")
    assert "in this order: `y`, `x_out`: first what it returns, then what it writes" in detail


@pytest.mark.parametrize(
    ("gradient", "words"),
    [(0, r"gave 0 \(int\) for `x`; expected a tensor, or None"), ("g", "expected a tensor, or None")],
)
def test_a_gradient_that_is_no_tensor_is_said(gradient: Any, words: str) -> None:
    op = declare(scaled)
    op.backward(lambda g, x, k: gradient)
    with pytest.raises(DeclarationError, match=words):
        op(torch.ones(3, requires_grad=True)).sum().backward()


@pytest.mark.parametrize("broken", ["fake", "body"])
def test_an_export_names_the_operator_and_what_was_returned(broken: str, tmp_path: Any) -> None:
    op = declare(scaled)
    op.fake(lambda x, k: None if broken == "fake" else torch.empty_like(x))
    op.body(lambda op, x, k: None if broken == "body" else op.Mul(x, k))

    class Net(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return op(x)  # type: ignore[no-any-return]

    with pytest.raises(DeployOpsError, match=rf"{op.name}: the (fake kernel|body) returned nothing"):
        export_model(Net(), (torch.ones(2, 3),), out=str(tmp_path / "net.onnx"))
