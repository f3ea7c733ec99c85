"""Test inputs: the same ones for the same seed, and the numbers on which kernels differ."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from deployops.errors import DeclarationError
from deployops.symbolic import Draw, Sample
from deployops.symbolic.dtypes import FLOATS
from deployops.symbolic.samples import collect


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_dtype_sees_the_same_numbers_rounded_once(dtype: str) -> None:
    drawn, exact = Draw(dtype), Draw("float64")
    for make in (lambda d: d(4, 3), lambda d: d(5, low=-2, high=3), lambda d: d.values(0.1, 1e-3)):
        a, b = make(drawn), make(exact)
        assert a.dtype == getattr(torch, dtype)
        assert torch.equal(a, b.to(a.dtype))


def test_a_seed_decides() -> None:
    assert torch.equal(Draw(seed=1)(8), Draw(seed=1)(8))
    assert not torch.equal(Draw(seed=1)(8), Draw(seed=2)(8))
    draw = Draw()
    assert not torch.equal(draw(8), draw(8))


def test_bounds_are_kept() -> None:
    x = Draw()(1000, low=-2, high=3)
    assert -2 <= x.min() < -1.5
    assert 2.5 < x.max() < 3
    assert Draw()(1000).abs().max() < 6


def test_integers_and_bools() -> None:
    draw = Draw()
    k = draw(100, low=-3, high=4, dtype="int64")
    assert k.dtype == torch.int64
    assert set(k.tolist()) == set(range(-3, 4))
    assert set(draw(100, dtype="bool").tolist()) == {True, False}
    assert set(Draw("int32")(1000).tolist()) == set(range(-8, 8))
    assert set(Draw("uint8")(1000).tolist()) == set(range(8))


@pytest.mark.parametrize(
    ("bounds", "words"),
    [({}, "needs bounds"), ({"low": 3}, "needs bounds"), ({"low": 3, "high": 3}, "no whole number")],
)
def test_whole_numbers_that_a_sample_asks_for_need_bounds(bounds: Any, words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        Draw()(4, dtype="int64", **bounds)


@pytest.mark.parametrize("function", [lambda draw: None, lambda draw: draw(3)])
def test_a_samples_function_without_yield_is_said(function: Any) -> None:
    with pytest.raises(DeclarationError, match="yields one call after another"):
        collect(function, "float32")


def test_shapes() -> None:
    draw = Draw()
    assert draw().shape == ()
    assert draw(0, 3).shape == (0, 3)


@pytest.mark.parametrize("shape", [(3,), (3, 5), (2, 3, 4)])
def test_strided_tensors_have_reversed_strides_and_gaps(shape: tuple[int, ...]) -> None:
    x = Draw().strided(*shape)
    assert x.shape == shape
    assert not x.is_contiguous()
    assert all(a <= b for a, b in zip(x.stride(), x.stride()[1:], strict=False))
    assert len({t.data_ptr() for t in x.flatten().unbind()}) >= 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_edges_hold_what_kernels_get_wrong(dtype: str) -> None:
    x = Draw(dtype).edges()
    info = torch.finfo(x.dtype)
    values = x.double().tolist()
    assert any(v == 0 and math.copysign(1, v) < 0 for v in values)
    assert any(v == 0 and math.copysign(1, v) > 0 for v in values)
    assert any(math.isnan(v) for v in values)
    assert {math.inf, -math.inf, info.max, -info.max, 1.0, -1.0} <= set(values)
    assert any(0 < v < info.smallest_normal for v in values)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8"])
def test_edges_of_integers_are_their_limits(dtype: str) -> None:
    x = Draw(dtype).edges()
    info = torch.iinfo(x.dtype)
    assert {info.min, info.max, 0, 1} <= set(x.tolist())


def test_edges_of_bools() -> None:
    assert set(Draw("bool").edges().tolist()) == {True, False}


def test_tuples_tensors_and_calls_become_samples() -> None:
    def function(draw: Draw) -> Any:
        yield draw(3), 2.0
        yield draw(3)
        yield [draw(3), draw(4)], "mode"
        yield draw.call(draw(3), beta=0.5)
        yield draw.call(draw(3), smooth=False)

    a, b, c, d, e = collect(function, "float32")
    assert a.args[1] == 2.0
    assert len(b.args) == 1
    assert [t.shape[0] for t in c.tensors()] == [3, 4]
    assert d.kwargs == {"beta": 0.5}
    assert d.smooth
    assert not e.smooth


def test_a_list_in_a_tuple_is_one_argument() -> None:
    (sample,) = collect(lambda draw: [([draw(2), draw(3)],)], "float32")
    assert len(sample.args) == 1
    assert len(sample.args[0]) == 2


def test_nan_and_infinity_are_not_smooth() -> None:
    a, b, c = collect(
        lambda draw: [draw.edges(), draw(3), draw.call(draw(2), x=draw.values(math.inf))], "float32"
    )
    assert (a.smooth, b.smooth, c.smooth) == (False, True, False)


def test_the_tensors_of_a_sample_are_those_of_lists_and_keywords_too() -> None:
    x, y, z = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    assert [t.numel() for t in Sample((x, [y, None], 3), {"z": z, "k": "a"}).tensors()] == [1, 2, 3]
