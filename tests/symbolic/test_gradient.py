"""Gradients of declared operators: through the reference, or as declared; always of the right number and dtype."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from deployops.errors import DeclarationError
from deployops.symbolic import Operator, operator

_numbers = count()


def declare(reference: Any, **options: Any) -> Operator:
    k = next(_numbers)
    return operator(f"t_gradient::op{k}", onnx=f"t_gradient::Op{k}", **options)(reference)


def swish(x: Tensor, beta: Tensor) -> Tensor:
    return x * torch.sigmoid(beta * x)


def leaf(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


# --- through the reference ------------------------------------------------------------------------------------


def test_without_a_declared_gradient_autograd_runs_through_the_reference() -> None:
    op = declare(swish)
    assert gradcheck(op, (leaf(3, 4), leaf()))


def test_and_again_for_the_second_derivative() -> None:
    op = declare(swish)
    assert gradgradcheck(op, (leaf(3), leaf()))


def test_lists_and_several_outputs() -> None:
    def reference(xs: list[Tensor], k: int) -> tuple[Tensor, Tensor]:
        return xs[0] * xs[1].sum(), xs[1] * k

    op = declare(reference)
    assert gradcheck(lambda a, b: op([a, b], 3), (leaf(2), leaf(3)))


def test_a_returned_list() -> None:
    def reference(xs: list[Tensor]) -> list[Tensor]:
        return [x * x for x in xs]

    op = declare(reference)
    assert gradcheck(lambda a, b: tuple(op([a, b])), (leaf(2), leaf(3)))


def test_an_absent_optional_tensor() -> None:
    def reference(x: Tensor, w: Tensor | None = None, k: float = 2.0) -> Tensor:
        return x * k if w is None else x * w * k

    op = declare(reference)
    assert gradcheck(lambda x: op(x), (leaf(3),))
    assert gradcheck(lambda x: op(x, None, 3.0), (leaf(3),))
    assert gradcheck(lambda x, w: op(x, w), (leaf(3), leaf(3)))


def test_keyword_only_arguments() -> None:
    def reference(x: Tensor, *, k: float = 2.0, mode: str = "a") -> Tensor:
        return x * k if mode == "a" else x + k

    op = declare(reference)
    assert gradcheck(lambda x: op(x, k=0.5), (leaf(3),))
    assert gradcheck(lambda x: op(x, mode="b"), (leaf(3),))


def test_integers_have_no_gradient_and_stop_none() -> None:
    def reference(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        return x[index] ** 2, index + 1

    op = declare(reference, dtypes={"x": ("float32", "float64"), "index": ("int64",)})
    index = torch.tensor([0, 2, 2])
    assert gradcheck(lambda x: op(x, index)[0], (leaf(3),))
    assert not op(leaf(3), index)[1].is_floating_point()


def test_an_input_that_wants_no_gradient_gets_none() -> None:
    op = declare(swish)
    x, beta = leaf(3), torch.tensor(2.0, dtype=torch.float64)
    op(x, beta).sum().backward()
    assert x.grad is not None
    assert beta.grad is None


def test_an_unused_input_has_a_zero_gradient() -> None:
    def reference(x: Tensor, y: Tensor) -> Tensor:
        return x * 2

    op = declare(reference)
    assert gradcheck(op, (leaf(3), leaf(3)))


def test_an_empty_list() -> None:
    def reference(x: Tensor, ys: list[Tensor]) -> Tensor:
        return x * 2

    op = declare(reference)
    assert gradcheck(lambda x: op(x, []), (leaf(3),))


# --- as declared ----------------------------------------------------------------------------------------------


def declared() -> Operator:
    op = declare(swish)
    op.fake(lambda x, beta: torch.empty_like(x))

    @op.backward
    def _(grad: Tensor, x: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        s = torch.sigmoid(beta * x)
        slope = s * (1 - s)
        return grad * (s + beta * x * slope), (grad * x * x * slope).sum()

    return op


def test_a_declared_gradient_is_used() -> None:
    op = declared()
    assert op.has_backward
    assert gradcheck(op, (leaf(3, 4), leaf()))
    assert gradgradcheck(op, (leaf(3), leaf()))


def test_one_tensor_argument_needs_no_tuple() -> None:
    def reference(x: Tensor, k: float) -> Tensor:
        return x * k

    op = declare(reference)
    op.backward(lambda grad, x, k: grad * k)
    assert gradcheck(lambda x: op(x, 3.0), (leaf(4),))


def test_lists_get_lists() -> None:
    def reference(xs: list[Tensor], y: Tensor) -> Tensor:
        return xs[0] * y + xs[1]

    op = declare(reference)
    op.backward(lambda grad, xs, y: ([grad * y, grad], grad * xs[0]))
    assert gradcheck(lambda a, b, y: op([a, b], y), (leaf(3), leaf(3), leaf(3)))


def test_keyword_only_arguments_are_given_as_keywords() -> None:
    def reference(x: Tensor, *, k: float = 2.0) -> Tensor:
        return x * k

    op = declare(reference)

    @op.backward
    def _(grad: Tensor, x: Tensor, *, k: float) -> Tensor:
        return grad * k

    assert gradcheck(lambda x: op(x, k=5.0), (leaf(3),))
    assert gradcheck(lambda x: op(x), (leaf(3),))


def test_none_is_no_gradient() -> None:
    def reference(x: Tensor, mask: Tensor) -> Tensor:
        return x * mask

    op = declare(reference)
    op.backward(lambda grad, x, mask: (grad * mask, None))
    x, mask = leaf(3), leaf(3)
    op(x, mask).sum().backward()
    assert mask.grad is None
    assert torch.equal(x.grad, mask.detach())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (lambda g: g, "1 gradients; the operator has 2 tensor arguments \\(x, beta\\)"),
        (lambda g: (g, g.sum(), None), "3 gradients"),
        (lambda g: (g[:1], g.sum()), "of shape \\(1,\\) for `x`, whose shape is \\(3,\\)"),
        (lambda g: (g, g), "for `beta`, whose shape is \\(\\); sum over the broadcast dims"),
    ],
)
def test_a_wrong_number_or_shape_is_said(result: Any, reason: str) -> None:
    op = declare(swish)
    op.backward(lambda grad, x, beta: result(grad))
    with pytest.raises(DeclarationError, match=reason):
        op(leaf(3), leaf()).sum().backward()


def test_a_wrong_number_in_a_list_is_said() -> None:
    def reference(xs: list[Tensor]) -> Tensor:
        return xs[0] + xs[1]

    op = declare(reference)
    op.backward(lambda grad, xs: ([grad],))
    with pytest.raises(DeclarationError, match="1 gradients for `xs`, a list of 2"):
        op([leaf(3), leaf(3)]).sum().backward()


def test_mutating_operators_have_none() -> None:
    def reference(x: Tensor) -> None:
        x.mul_(2)

    op = declare(reference, mutates=("x",))
    with pytest.raises(DeclarationError, match="writes into an argument"):
        op.backward(lambda grad, x: grad)


# --- dtypes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("make", [lambda: declare(swish), declared], ids=["reference", "declared"])
def test_a_gradient_has_its_tensors_dtype(make: Any, dtype: torch.dtype) -> None:
    op = make()
    x, beta = leaf(3, dtype=dtype), leaf(dtype=dtype)
    op(x, beta).sum().backward()
    assert x.grad is not None
    assert beta.grad is not None
    assert x.grad.dtype == beta.grad.dtype == dtype


def test_a_gradient_calculated_in_float32_is_converted() -> None:
    op = declare(swish)
    op.backward(lambda grad, x, beta: (grad.float(), grad.float().sum()))
    x, beta = leaf(3, dtype=torch.float16), leaf(dtype=torch.float16)
    gradients = torch.autograd.grad(op(x, beta).sum(), (x, beta))
    assert [g.dtype for g in gradients] == [torch.float16] * 2


def test_nothing_is_kept_alive_when_no_gradient_is_wanted() -> None:
    op = declare(swish)
    with torch.no_grad():
        assert not op(leaf(3), leaf()).requires_grad
    assert not op(torch.ones(3), torch.ones(())).requires_grad
