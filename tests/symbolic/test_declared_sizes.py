"""`@op.bound` and `@op.usual` that are odd or hostile: refused in the user's words by the check and the compiler, or right."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deployops.errors import DeclarationError
from deployops.native.data_sizes import data_sizes
from deployops.native.shape_rules import ByRank
from deployops.symbolic import Operator, dims, operator
from deployops.symbolic.checking.bound_check import check_bound
from deployops.symbolic.checking.operator_check import check_operator
from deployops.symbolic.checking.tally import CheckResult

_numbers = count()
Size = Callable[..., Any]


def new_size() -> Any:
    return torch.library.get_ctx().new_dynamic_size()


def positives(bound: Size | None = None, usual: Size | None = None, samples: Any = None) -> Operator:
    """The positive numbers of a tensor, with these declarations of how many there are."""

    def reference(x: Tensor, most: int = 3) -> Tensor:
        return x[x > 0]

    k = next(_numbers)
    op = operator(f"t_sizes::positives{k}", onnx=f"t_sizes::Positives{k}", dtypes=("float32",))(reference)
    op.fake(lambda x, most=3: x.new_empty(new_size()))
    op.samples(samples or (lambda draw: [draw(40), draw(3, 5)]))
    if bound is not None:
        op.bound(bound)
    if usual is not None:
        op.usual(usual)
    return op


def numel(x: Tensor, most: int = 3) -> int:
    return x.numel()


def check(op: Operator) -> CheckResult:
    return check_bound(op)


def told(op: Operator) -> tuple[str, str]:
    """What the check says, and the compiler."""
    result = check(op)
    assert result.status == "failed", result.detail
    with pytest.raises(DeclarationError) as caught:
        data_sizes(op)
    return result.detail, str(caught.value)


def raises(error: Exception) -> Size:
    def declared(x: Tensor, most: int = 3) -> int:
        raise error

    return declared


async def later(x: Tensor, most: int = 3) -> int:
    return x.numel()


# What the declaration returns, and what is said of it, for the bound and for the usual size alike.
ODD: dict[str, tuple[Size, str]] = {
    "negative": (lambda x, most=3: -1, "returns -1; expected a number of elements, from 0 to 2**40"),
    "huge": (lambda x, most=3: 2**62, "returns 4611686018427387904; expected a number of elements"),
    "astronomical": (lambda x, most=3: 10**30, "expected a number of elements, from 0 to 2**40"),
    "a half": (lambda x, most=3: x.numel() / 2, "returns 20.0; expected a whole number made of sizes"),
    "a truth": (lambda x, most=3: x.numel() > 0, "returns True; expected a whole number"),
    "nothing": (lambda x, most=3: None, "returns None; expected a whole number"),
    "a text": (lambda x, most=3: "40", "returns '40'; expected a whole number"),
    "a dict": (lambda x, most=3: {0: 40}, "returns a dict; expected a whole number"),
    "without brackets": (lambda x, most=3: x.numel, "returns a function, `numel` (without brackets?)"),
    "a generator": (lambda x, most=3: (n for n in (40,)), "returns a generator; expected"),
    "data": (lambda x, most=3: int((x > 0).sum()), "it reads the values of a tensor"),
    "data as an item": (lambda x, most=3: (x > 0).sum().item(), "it reads the values of a tensor"),
    "data as a tensor": (lambda x, most=3: (x > 0).sum(), "it reads the values of a tensor"),
    "an error": (raises(RuntimeError("boom")), "it raises RuntimeError: boom"),
    "a value error": (raises(ValueError("boom")), "raises ValueError: boom"),
    "an index error": (raises(IndexError("boom")), "raises IndexError: boom"),
    "no such attribute": (lambda x, most=3: x.nothing, "it raises AttributeError"),
    "division by an empty dim": (
        lambda x, most=3: 40 + x.shape[0] // x.shape[-1],
        "divide by torch.sym_max(…, 1) (here: x: float32[0])",
    ),
    "negative for an empty dim": (lambda x, most=3: x.numel() - 1 + 40 * (x.numel() // 15), "returns -1;"),
    "two ways": (lambda x, most=3: max(x.numel() - 1, 40), "is no formula of the inputs' sizes"),
    "a branch": (lambda x, most=3: 40 if x.shape[0] > 4 else 20, "is no formula of the inputs' sizes"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ODD)
def test_a_bound_that_no_library_can_follow_is_told_by_check_and_compiler(kind: str) -> None:
    declared, reason = ODD[kind]
    checked, compiled = told(positives(declared))
    assert reason in checked, checked
    assert "@op.bound" in checked
    assert "no samples" not in compiled
    assert reason in compiled or "is no formula of the inputs' sizes" in compiled, compiled


@pytest.mark.parametrize("kind", ODD)
def test_the_usual_size_is_held_to_the_same(kind: str) -> None:
    declared, reason = ODD[kind]
    checked, compiled = told(positives(numel, declared))
    assert reason in checked, checked
    assert "@op.usual" in checked
    assert reason in compiled or "usual size of `y` is no formula of the inputs' sizes" in compiled, compiled


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (lambda x, most=3: (), "returns 0 numbers, and the fake kernel asks for more sizes"),
        (lambda x, most=3: (x.numel(), 1), "returns 2 numbers, and the fake kernel asks for 1 size "),
        (lambda x, most=3: x.shape, "returns 2 numbers, and the fake kernel asks for 1 size "),
    ],
)  # fmt: skip
def test_another_number_of_sizes_is_told(declared: Size, said: str) -> None:
    checked, compiled = told(positives(declared))
    assert said in checked
    assert said in compiled or "returns 0 numbers" in compiled


def test_a_usual_size_without_a_bound_is_told() -> None:
    op = positives(usual=numel)
    checked, compiled = told(op)
    assert "@op.bound" in checked
    assert ("bound", "failed") in {(r.check, r.status) for r in check_operator(op)}
    assert "@op.usual is declared without @op.bound" in compiled


def test_a_bound_where_the_data_decide_nothing_is_told() -> None:
    def twice(x: Tensor) -> Tensor:
        return x * 2

    for declare in ("bound", "usual"):
        op = operator(f"t_sizes::twice_{declare}", dtypes=("float32",))(twice)
        op.fake(torch.empty_like)
        op.samples(lambda draw: [draw(4), draw(2, 3)])
        getattr(op, declare)(lambda x: x.numel())
        checked, compiled = told(op)
        assert f"@op.{declare} is declared" in checked
        assert f"@op.{declare} is declared" in compiled


def test_an_optional_input_that_is_absent_is_told() -> None:
    def chosen(x: Tensor, y: Tensor | None = None) -> Tensor:
        return x[x > 0]

    op = operator("t_sizes::chosen", dtypes=("float32",))(chosen)
    op.fake(lambda x, y=None: x.new_empty(new_size()))
    op.samples(lambda draw: [(draw(40), draw(40)), (draw(7),)])
    op.bound(lambda x, y=None: y.numel())
    checked, _ = told(op)
    assert "'NoneType' object has no attribute 'numel'" in checked
    assert "without optional inputs, too" in checked


def test_a_bound_that_depends_on_an_attribute_is_told() -> None:
    checked, compiled = told(positives(lambda x, most=3: x.numel() * most))
    assert "the size of `y` at @op.bound depends on the attribute `most`" in checked
    assert "depends on the attribute `most`" in compiled
    checked, compiled = told(positives(numel, lambda x, most=3: torch.sym_min(most, x.numel())))
    assert "the size of `y` at @op.usual depends on the attribute `most`" in checked
    assert "depends on the attribute `most`" in compiled


def of_a_list(bound: Any, fake: Any) -> Operator:
    def reference(first: Tensor, xs: list[Tensor]) -> Tensor:
        whole = torch.cat([first, *xs])
        return whole[whole > 3][: first.numel()]

    k = next(_numbers)
    op = operator(f"t_sizes::joined{k}", onnx=f"t_sizes::Joined{k}", dtypes=("float32",))(reference)
    op.fake(fake)
    op.samples(lambda draw: [(draw(40), [draw(5), draw(7)]), (draw(30), [draw(4)])])
    op.bound(bound)
    return op


def of_vectors(first: Tensor, xs: list[Tensor]) -> Tensor:
    (_,) = first.shape
    return first.new_empty(new_size())


@pytest.mark.parametrize(
    ("bound", "fake"),
    [
        (lambda first, xs: first.numel() + sum(x.numel() for x in xs), of_vectors),
        (lambda first, xs: first.numel(), lambda first, xs: first.new_empty(new_size())),
    ],
    ids=["of all tensors", "of an input of any rank"],
)
def test_a_bound_beside_a_list_that_is_no_size_of_an_input_is_told(bound: Any, fake: Any) -> None:
    checked, compiled = told(of_a_list(bound, fake))
    assert "is not always that of one input" in checked
    assert "torch.cat" in checked
    assert "depends on all tensors of a list" in compiled


def test_a_bound_beside_a_list_that_is_the_size_of_an_input_is_right() -> None:
    op = of_a_list(lambda first, xs: first.numel(), of_vectors)
    result = check(op)
    assert result.status == "passed", result.detail
    assert data_sizes(op) is not None


# --- declarations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["bound", "usual"])
def test_declared_twice_is_refused_and_again_is_not(what: str) -> None:
    op = positives()
    declare = getattr(op, what)
    declare(numel)
    declare(numel)  # a notebook's cell, run again
    with pytest.raises(DeclarationError, match=rf"@op\.{what} is declared twice, in lines \d+ and \d+ of"):
        declare(lambda x, most=3: 3)


@pytest.mark.parametrize("what", ["bound", "usual"])
@pytest.mark.parametrize(
    ("declared", "said"),
    [(3, "is of a function; got int"), (lambda: 3, r"takes \(\); expected \(x, most\)"),
     (lambda x, n: 3, r"takes \(x, n\)"), (lambda x, most, more: 3, r"takes \(x, most, more\)")],
)  # fmt: skip
def test_what_is_no_function_of_the_arguments_is_refused_when_declared(
    what: str, declared: Any, said: str
) -> None:
    with pytest.raises(DeclarationError, match=said):
        getattr(positives(), what)(declared)


# --- what is right -------------------------------------------------------------------------------------------------


RIGHT: dict[str, tuple[Size, Callable[[int, int], int]]] = {
    "rounded down": (lambda x, most=3: x.numel() // 3 + 40, lambda a, b: a * b // 3 + 40),
    "rounded up": (lambda x, most=3: -(-x.numel() // 4) * 4, lambda a, b: math.ceil(a * b / 4) * 4),
    "the rest": (lambda x, most=3: 40 + x.numel() % 7, lambda a, b: 40 + a * b % 7),
    "one less": (lambda x, most=3: torch.sym_max(x.numel() - 1, 0), lambda a, b: max(a * b - 1, 0)),
    "at most": (lambda x, most=3: torch.sym_min(x.numel(), 1000), lambda a, b: min(a * b, 1000)),
    "a quotient": (lambda x, most=3: 40 + x.shape[0] // torch.sym_max(x.shape[-1], 1), lambda a, b: 40 + a // max(b, 1)),
    "shifted": (lambda x, most=3: x.numel() << 1, lambda a, b: 2 * a * b),
    "numpy's": (lambda x, most=3: np.int64(40), lambda a, b: 40),
    "in a list": (lambda x, most=3: [x.numel()], lambda a, b: a * b),
    "any arguments": (lambda *given: given[0].numel(), lambda a, b: a * b),
}  # fmt: skip


@pytest.mark.parametrize("kind", RIGHT)
def test_a_formula_is_right_for_empty_and_large_tensors_too(kind: str) -> None:
    declared, expected = RIGHT[kind]
    op = positives(declared)
    assert check(op).status == "passed", check(op).detail
    found = data_sizes(op)
    assert found is not None
    rule = found.bound["y"]
    assert isinstance(rule, ByRank)
    (formula,) = rule.cases[2,]
    for a, b in [(3, 5), (1, 1), (0, 4), (4, 0), (0, 0), (1, 0), (123, 4567)]:
        assert dims.evaluate(formula, {"d0_0": a, "d0_1": b}) == expected(a, b), (formula, a, b)


@pytest.mark.parametrize("usual", [0, 1, 100, 2**40])
def test_a_usual_size_is_never_beyond_the_bound(usual: int) -> None:
    op = positives(numel, lambda x, most=3: usual)
    assert check(op).status == "passed", check(op).detail
    found = data_sizes(op)
    assert found is not None
    assert found.usual is not None
    rule = found.usual["y"]
    assert isinstance(rule, ByRank)
    (formula,) = rule.cases[1,]
    for size in (0, 1, 7, 10**6):
        assert dims.evaluate(formula, {"d0_0": size}) == min(usual, size)


def test_a_bound_that_refuses_is_named_where_the_usual_size_is_asked_for() -> None:
    from deployops.symbolic.fake_run import TensorInfo, run_fake

    op = positives(bound=raises(ValueError("no such sizes")), usual=numel)
    given = {"x": TensorInfo("float32", (40,))}
    with pytest.raises(DeclarationError, match=r"@op\.bound raises ValueError: no such sizes"):
        run_fake(op, given, {"most": 3}, {}, "usual")
