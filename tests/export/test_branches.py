"""Operators and autograd.Functions in the branches of `torch.cond` are held to the same promises as elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import deployops
from deployops.errors import ExportError
from deployops.symbolic import registry

X = ["x:float32[batch,4]"]
A = np.arange(8, dtype=np.float32).reshape(2, 4) + 1


@pytest.fixture
def declare() -> Iterator[Callable[..., Any]]:
    made = []

    def make(name: str, function: Callable[..., Any], fake: Callable[..., Any] | None, **options: Any) -> Any:
        op = deployops.operator(f"branch_test::{name}", **options)(function)
        if fake is not None:
            op.fake(fake)
        made.append(op)
        return op

    yield make
    for op in made:
        registry.remove(op)


class Cond(torch.nn.Module):
    """`taken` at every trial: sums of squares are above -1."""

    def __init__(self, taken: Callable[..., Any], other: Callable[..., Any]) -> None:
        super().__init__()
        self.taken, self.other = taken, other

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond((x * x).sum() > -1, self.taken, self.other, (x,))


def plain(x: Tensor) -> Tensor:
    return x + 1


def pair(is_taken: bool, branch: Callable[..., Any]) -> Cond:
    return Cond(branch, plain) if is_taken else Cond(plain, branch)


def twice(x: Tensor) -> Tensor:
    return x * 2


def writes(x: Tensor) -> Tensor:
    x.mul_(2)
    return x + 1


@pytest.mark.parametrize("is_taken", [True, False])
def test_an_undeclared_write_in_a_branch_is_refused(deploy: Any, declare: Any, is_taken: bool) -> None:
    op = declare("writes", writes, torch.empty_like)
    with pytest.raises(ExportError, match="branch_test::writes writes into its argument `x`"):
        deploy(pair(is_taken, lambda x: op(x.clone())), X)


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_wrong_fake_kernel_in_a_branch_is_refused(deploy: Any, declare: Any, is_taken: bool) -> None:
    op = declare("wrong", twice, lambda x: x.new_empty(7, 4))
    with pytest.raises(ExportError, match=r"branch_test::wrong returns .*promises float32\[7, 4\]"):
        deploy(pair(is_taken, lambda x: x + op(x).sum()), X)


@pytest.mark.parametrize("is_taken", [True, False])
def test_an_operator_without_a_fake_kernel_is_named_with_its_stub(
    deploy: Any, declare: Any, is_taken: bool
) -> None:
    op = declare("bare", twice, None)
    with pytest.raises(ExportError) as refused:
        deploy(pair(is_taken, lambda x: op(x)), X)
    assert "branch_test::bare(Tensor x) -> Tensor, called at test_branches.py:" in str(refused.value)
    assert "it has no fake kernel" in str(refused.value)
    assert "@twice.fake" in str(refused.value)


def test_a_branch_that_cannot_run_on_these_values_is_said_to_be_unchecked(deploy: Any, declare: Any) -> None:
    def picky(x: Tensor) -> Tensor:
        raise ValueError("not these")

    op, later = declare("picky", picky, torch.empty_like), declare("later", twice, torch.empty_like)
    exported = deploy(Cond(plain, lambda x: later(op(x))), X)
    assert "not checked: whether `branch_test::later` returns" in exported.notes
    assert "branch not run" in exported.notes


def test_an_operator_that_keeps_its_promises_in_both_branches(deploy: Any, declare: Any) -> None:
    op = declare("kept", twice, torch.empty_like)

    @op.body
    def _(op: Any, x: Any) -> Any:
        return op.Add(x, x)

    exported = deploy(Cond(lambda x: op(x), lambda x: op(x) + 1), X)
    np.testing.assert_allclose(exported.run(A)[0], 2 * A)
    assert "branch not run" not in exported.notes


# autograd.Functions


class Fivefold(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 5

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("acme::Fivefold", x).setType(x.type())


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_function_with_a_symbolic_is_traced_through_in_a_branch_and_said_to_be(
    deploy: Any, is_taken: bool
) -> None:
    exported = deploy(pair(is_taken, lambda x: Fivefold.apply(x)), X)
    np.testing.assert_allclose(exported.run(A)[0], 5 * A if is_taken else A + 1)
    assert (
        "autograd.Function Fivefold is decomposed where it stands in a branch of torch.cond" in exported.notes
    )


def test_the_same_function_outside_of_the_branch_is_kept(deploy: Any) -> None:
    class Both(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return Cond(lambda x: Fivefold.apply(x), plain)(Fivefold.apply(x))

    exported = deploy(Both(), X)
    assert exported.result.custom_nodes == {"acme::Fivefold": 1}


def test_an_adopted_function_is_kept_in_a_branch(deploy: Any) -> None:
    class Sixfold(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 6

    op = deployops.adopt(Sixfold, onnx="branch_test::Sixfold")
    try:
        exported = deploy(Cond(lambda x: Sixfold.apply(x), plain), X)
    finally:
        registry.remove(op)
    assert exported.result.custom_nodes == {"branch_test::Sixfold": 1}
