"""Gradients of declared operators: each planted fault is found, and its faultless twin passes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from deployops.symbolic import registry
from deployops.symbolic.operator import Operator, operator
from deployops.validation import gradients
from deployops.validation.record import Cell

registry.load_builtin()


@pytest.fixture(autouse=True)
def _forget_declarations() -> Iterator[None]:
    before = {op.name for op in registry.all_operators()}
    yield
    for op in registry.all_operators():
        if op.name not in before:
            registry.remove(op)


def product(name: str, fault: str = "") -> Operator:
    """y = a b + sin(a), with the gradients by hand; `fault` says what is wrong with them."""

    @operator(f"h2_gradient_{name}::f", onnx=f"h2_gradient_{name}::F")
    def f(a: Tensor, b: Tensor) -> Tensor:
        return a * b + torch.sin(a)

    @f.fake
    def _(a: Tensor, b: Tensor) -> Tensor:
        return torch.empty_like(a)

    @f.backward
    def _(grad: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor | None, Tensor | None]:
        g, x, y = grad.double(), a.double(), b.double()  # rounded once, at the end
        d_a, d_b = g * (y + torch.cos(x)), g * x
        if fault == "factor":
            d_a = d_a * 1.01
        if fault == "sign":
            d_b = -d_b
        if fault == "missing term":
            d_a = g * y
        if fault == "ignores what flows in":
            d_b = x
        if fault == "one element":
            d_b = d_b.clone()
            d_b.view(-1)[-1] += 0.5
        if fault == "none":
            return d_a, None
        if fault == "swapped":
            d_a, d_b = d_b, d_a
        if fault == "float16 only" and a.dtype == torch.float16:
            d_a = d_a * 1.05
        if fault == "raises":
            raise ValueError("no gradient today")
        return d_a.to(a.dtype), d_b.to(b.dtype)

    @f.samples
    def _(draw: Any) -> Iterator[Any]:
        yield draw(3, 5), draw(3, 5)
        yield draw.strided(4, 3), draw(4, 3)
        yield draw(0, 3), draw(0, 3)
        yield draw.edges(), draw.edges()

    return f


def failed(cells: list[Cell]) -> list[Cell]:
    return [c for c in cells if c.verdict == "failed"]


def test_right_gradients_pass_in_every_dtype() -> None:
    cells = gradients.check(product("right"))
    assert not failed(cells), failed(cells)
    compared = [c for c in cells if c.output.startswith("gradient of")]
    assert {c.output for c in compared} == {"gradient of a", "gradient of b"}
    assert {c.dtype for c in compared} == {"float16", "bfloat16", "float32", "float64"}
    assert all(c.judged_as == "gradient" and c.backend == "pytorch" and c.subject for c in cells)
    assert all(c.budget is not None for c in compared)
    assert {c.sample for c in cells} >= {"gradcheck", "dtypes"}


@pytest.mark.parametrize(
    ("fault", "outputs"),
    [
        ("factor", {"gradient of a"}),
        ("sign", {"gradient of b"}),
        ("missing term", {"gradient of a"}),
        ("ignores what flows in", {"gradient of b"}),
        ("one element", {"gradient of b"}),
        ("none", {"gradient of b"}),
        ("swapped", {"gradient of a", "gradient of b"}),
    ],
)
def test_a_wrong_formula_fails_where_it_is_wrong(fault: str, outputs: set[str]) -> None:
    found = failed(gradients.check(product(fault.replace(" ", "_"), fault)))
    assert {c.output for c in found if c.output != "*"} == outputs
    assert {c.dtype for c in found if c.output != "*"} >= {"float32", "float64", "float16"}
    assert any(c.sample == "gradcheck" for c in found)


def test_a_fault_in_one_dtype_only() -> None:
    """Finite differences in float64 cannot see it."""
    found = failed(gradients.check(product("half", "float16 only")))
    assert {(c.output, c.dtype) for c in found} == {("gradient of a", "float16")}


def test_a_gradient_that_raises() -> None:
    found = failed(gradients.check(product("raising", "raises")))
    assert any("no gradient today" in c.reason for c in found)


def test_kinks_and_special_numbers_are_not_judged() -> None:
    cells = gradients.check(product("edges"))
    edges = [c for c in cells if "sample 3" in c.sample]
    assert {c.verdict for c in edges} == {"not checked"}
    assert all("not smooth" in c.reason for c in edges)


def test_a_reference_with_a_kink_of_its_own_is_no_truth() -> None:
    """|x| sign(x) is x, and autograd takes its slope at 0 for 0."""

    @operator("h2_kink::same", onnx="h2_kink::Same", dtypes=("float32", "float64"))
    def same(x: Tensor) -> Tensor:
        return torch.where(x < 0, -x.abs(), x.abs())

    @same.fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    @same.backward
    def _(grad: Tensor, x: Tensor) -> Tensor:
        return grad.clone()

    @same.samples
    def _(draw: Any) -> Iterator[Any]:
        yield draw.values(-1.0, 0.0, 2.0)

    cells = gradients.check(same)
    assert not failed(cells)
    kinks = [c for c in cells if c.output == "gradient of x"]
    assert {c.verdict for c in kinks} == {"not checked"}
    assert all("written with a kink" in c.reason for c in kinks)


def test_autograd_through_the_reference_needs_no_comparison_with_itself() -> None:
    @operator("h2_auto::cube", onnx="h2_auto::Cube")
    def cube(x: Tensor) -> Tensor:
        return x * x * x

    @cube.fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    @cube.samples
    def _(draw: Any) -> Iterator[Any]:
        yield draw(4)

    cells = gradients.check(cube)
    assert [(c.sample, c.verdict) for c in cells] == [("gradcheck", "passed"), ("dtypes", "passed")]


def test_operators_without_a_gradient_say_so() -> None:
    @operator("h2_write2::inc_", onnx="h2_write2::Inc", mutates=("x",))
    def inc(x: Tensor) -> None:
        x.add_(1)

    @inc.fake
    def _(x: Tensor) -> None:
        return None

    @inc.samples
    def _(draw: Any) -> Iterator[Any]:
        yield draw(4)

    cells = gradients.check(inc)
    assert {c.verdict for c in cells} == {"not checked"}
    assert all("writes into an argument" in c.reason for c in cells)


@pytest.mark.parametrize("name", ["layer_norm", "swish", "attention"])
def test_shipped_operators_pass(name: str) -> None:
    op = next(o for o in registry.all_operators() if o.name == f"deployops::{name}")
    cells = gradients.check(op)
    assert not failed(cells), failed(cells)
    assert sum(c.verdict == "passed" for c in cells) > 80


def test_the_same_seed_gives_the_same_cells() -> None:
    op = product("again")
    assert gradients.check(op, ("float32",)) == gradients.check(op, ("float32",))
