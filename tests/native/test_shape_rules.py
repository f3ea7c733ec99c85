"""The shape rule of a library is the fake kernel's: guessed, and held against it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from deployops import operator
from deployops.native.shape_rules import Broadcast, ByRank, FromKernel, LikeInput, shape_rules
from deployops.native.size_formulas import formula
from deployops.symbolic import registry
from deployops.symbolic.operator import Operator

registry.load_builtin()
SHIPPED = [op for op in registry.all_operators() if op.name.startswith("deployops::")]
PACK = Path(__file__).parents[1] / "pack" / "pack.py"


@pytest.fixture
def pack() -> dict[str, Operator]:
    return {op.name.partition("::")[2]: op for op in registry.load([str(PACK)])}


@pytest.fixture
def declared() -> Iterator[Any]:
    """Operators that are forgotten after the test."""
    before = set(registry.all_operators())
    yield
    for op in set(registry.all_operators()) - before:
        registry.remove(op)


@pytest.mark.parametrize("op", SHIPPED, ids=lambda op: op.name)
def test_no_shipped_operator_leaves_its_shape_to_the_kernel(op: Operator) -> None:
    assert not any(isinstance(rule, FromKernel) for rule in shape_rules(op).values())


def test_the_rules_of_the_pack(pack: dict[str, Operator]) -> None:
    rules = {name: shape_rules(op) for name, op in pack.items()}
    assert rules["limit"] == {"y": LikeInput(0)}
    assert rules["weighted_sum"] == {"y": LikeInput(0)}
    rows = rules["gather_rows"]["rows"]
    assert isinstance(rows, ByRank)
    assert rows.indices == (0, 1)
    assert rows.cases[(2, 1)] == ("d1_0", "d0_1")
    assert rules["gather_rows"]["found"] == LikeInput(1)
    assert rules["shift_"]["x_out"] == LikeInput(0)
    assert isinstance(rules["repeat_last"]["y"], FromKernel)
    assert isinstance(rules["join_rows"]["y"], FromKernel)


def test_broadcasting() -> None:
    [add_relu] = [op for op in SHIPPED if op.name == "deployops::add_relu"]
    assert shape_rules(add_relu) == {"y": Broadcast((0, 1))}


def test_an_attribute_that_no_sample_varies_still_counts(declared: None) -> None:
    @operator("rules::scaled_size", dtypes=("float32",))
    def scaled_size(x: Tensor, factor: int = 2) -> Tensor:
        return x.repeat(factor)

    @scaled_size.fake
    def _(x: Tensor, factor: int = 2) -> Tensor:
        return x.new_empty(x.shape[0] * factor)

    @scaled_size.samples
    def _(draw: Any) -> Iterator[Any]:
        yield (draw(3),)

    rule = shape_rules(scaled_size)["y"]
    assert rule == FromKernel("its shape depends on the attribute `factor`")


def test_a_text_that_samples_vary_counts(declared: None) -> None:
    @operator("rules::padded", dtypes=("float32",))
    def padded(x: Tensor, mode: str = "same") -> Tensor:
        return x.clone() if mode == "same" else torch.cat([x, x[:1]])

    @padded.fake
    def _(x: Tensor, mode: str = "same") -> Tensor:
        return x.new_empty(x.shape[0] + (mode != "same"))

    @padded.samples
    def _(draw: Any) -> Iterator[Any]:
        yield (draw(3),)
        yield draw(3), "full"

    assert isinstance(shape_rules(padded)["y"], FromKernel)


def test_sizes_that_data_decides(declared: None) -> None:
    @operator("rules::nonzero_ones", dtypes=("float32",))
    def nonzero_ones(x: Tensor) -> Tensor:
        return x[x != 0].clone()

    @nonzero_ones.fake
    def _(x: Tensor) -> Tensor:
        return x.new_empty(torch.library.get_ctx().new_dynamic_size())

    @nonzero_ones.samples
    def _(draw: Any) -> Iterator[Any]:
        yield (draw(3),)

    assert "data" in shape_rules(nonzero_ones)["y"].reason  # type: ignore[union-attr]


def test_a_rule_with_two_branches_is_never_one_formula(declared: None) -> None:
    @operator("rules::capped", dtypes=("float32",))
    def capped(x: Tensor) -> Tensor:
        return x[:4].clone()

    @capped.fake
    def _(x: Tensor) -> Tensor:
        return x.new_empty(min(x.shape[0], 4))

    @capped.samples
    def _(draw: Any) -> Iterator[Any]:
        yield (draw(3),)
        yield (draw(9),)

    rule = shape_rules(capped)["y"]
    sizes = [(3, 3), (9, 4), (1, 1), (0, 0)]
    if isinstance(rule, ByRank):  # `min(d0_0, 4)` is one formula, and right
        from deployops.symbolic import dims

        [text] = rule.cases[(1,)]
        assert [dims.evaluate(text, {"d0_0": n}) for n, _ in sizes] == [m for _, m in sizes]
    else:
        assert isinstance(rule, FromKernel)


def test_a_size_of_one_that_repeats_is_no_like_input(declared: None) -> None:
    @operator("rules::paired", dtypes=("float32",))
    def paired(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    @paired.fake
    def _(x: Tensor, y: Tensor) -> Tensor:
        return x.new_empty(torch.broadcast_shapes(x.shape, y.shape))

    @paired.samples
    def _(draw: Any) -> Iterator[Any]:
        yield draw(3, 4), draw(3, 4)  # the only sample: both shapes alike

    assert shape_rules(paired) == {"y": Broadcast((0, 1))}


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        ("d0_0", "d0_0"),
        ("2*d0_1", "(Size(2) * d0_1)"),
        ("floor((d0_2 - 3)/2) + 1", "(floor_divide((d0_2 - Size(3)), Size(2)) + Size(1))"),
        ("Mod(d0_0, 4)", "modulo(d0_0, Size(4))"),
        ("max(d0_0, d1_0, 2)", "larger(larger(d0_0, d1_0), Size(2))"),
        ("-d0_0 + 7", "((Size(0) - d0_0) + Size(7))"),
        ("12", "Size(12)"),
    ],
)
def test_formulas_in_cpp(dim: str, text: str) -> None:
    assert formula(dim) == text
