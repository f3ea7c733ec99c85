"""Layouts, scales, orders and transposed weights: named where they are planted, and only there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from torch import nn

from deployops.ort_ops.arrays import to_array
from deployops.validation import Sample
from deployops.validation.backends.torch import evaluating
from deployops.validation.diagnosis import explain, output_forms, preprocessing
from deployops.validation.diagnosis.residual import rms_of_difference
from deployops.validation.original import Original
from deployops.validation.record import Finding


def graph_of(count: int) -> onnx.GraphProto:
    names = ["y"] if count == 1 else [f"y{k}" for k in range(count)]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names]
    return helper.make_graph([], "g", [], outputs)


def seeded(module: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    for p in module.parameters():
        p.data = torch.randn(p.shape, generator=generator) / max(p.shape[-1], 1) ** 0.5
    return module.to(dtype).eval()


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


def image(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(3))


def of(model: Any, candidate: Any, *args: torch.Tensor) -> list[Finding]:
    with evaluating(model), torch.no_grad():
        original = Original(model)
        sample = Sample("example", args)
        expected = original.expected(sample)
        result = candidate(*(a.clone() for a in args))
        got = [to_array(r) for r in (result if isinstance(result, tuple) else (result,))]
        return explain(original, sample, got, expected, graph_of(len(got)))


def net() -> nn.Module:
    return seeded(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5))
    )


# What the candidate reads its input as.

MEAN = torch.tensor([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("planted", "kind", "words"),
    [
        (lambda v: v.flip(1), "layout", "BGR for RGB"),
        (lambda v: v / 255, "scale", "divided by 255"),
        (lambda v: v * 255, "scale", "multiplied by 255"),
        (lambda v: v * 2 - 1, "scale", "from [0, 1] to [-1, 1]"),
        (lambda v: (v - MEAN.to(v.dtype)) / STD.to(v.dtype), "scale", "normalised by ImageNet"),
        (lambda v: v.permute(0, 2, 3, 1).reshape(v.shape), "layout", "a reshape where a transpose is meant"),
        (lambda v: v.reshape(v.shape[0], 10, 12, 3).permute(0, 3, 1, 2), "layout", "a transpose too many"),
        (lambda v: v.transpose(2, 3).reshape(v.shape), "layout", "[0, 1, 3, 2]"),
        (lambda v: v.flip(3), "layout", "mirrored along axis 3"),
        (lambda v: -v, "sign", "with the other sign"),
    ],
    ids=["bgr", "255", "times-255", "range", "imagenet", "reshape", "transpose", "h-w", "mirror", "sign"],
)
def test_another_reading_of_an_image(
    planted: Callable[[torch.Tensor], torch.Tensor], kind: str, words: str, dtype: torch.dtype
) -> None:
    model = net().to(dtype)
    [found] = of(model, lambda v: model(planted(v)), image(2, 3, 10, 12).to(dtype))
    assert found.kind == kind
    assert words in found.text
    assert "the original on input " in found.text
    assert "all of the difference" in found.text
    assert found.severity == "note"


def test_height_and_width_swapped_in_a_square_image() -> None:
    model = net()
    [found] = of(model, lambda v: model(v.transpose(2, 3)), image(1, 3, 11, 11))
    assert found.kind == "layout"
    assert "with its axes in the order [0, 1, 3, 2]" in found.text


def test_the_input_is_named_among_several() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.a(left)) + torch.tanh(self.b(right))

    model = seeded(Two())
    [found] = of(model, lambda u, v: model(u, v / 255), x(4, 6), x(4, 6))
    assert found.where == "right"
    assert "right divided by 255" in found.text


def test_runs_are_few() -> None:
    calls = 0
    model = net()

    def counted(v: torch.Tensor) -> Any:
        nonlocal calls
        calls += 1
        return model(v)

    with torch.no_grad():
        original = Original(counted)
        sample = Sample("example", (image(1, 3, 10, 12),))
        expected = original.expected(sample)
        calls = 0
        got = [expected[0].array * 1.5 + to_array(x(1, 5))]
        assert list(preprocessing.explain(original, sample, got, expected, ["y"], ["v"])) == []
    assert 0 < calls <= preprocessing.MOST_RUNS


# The right numbers in another form.


@pytest.mark.parametrize(
    ("planted", "kind", "words"),
    [
        (lambda y: y.transpose(0, 1), "layout", "its axes in the order [1, 0]"),
        (lambda y: y.flip(1), "layout", "reversed along axis 1"),
        (lambda y: -y, "sign", "with the other sign"),
        (lambda y: y * 255, "scale", "times 255"),
        (lambda y: y + 0.5, "scale", "plus 0.5"),
        (lambda y: y / 2 + 1, "scale", "times 0.5 plus 1"),
        (lambda y: torch.sigmoid(y), "last operator", "one more sigmoid"),
        (lambda y: torch.relu(y), "last operator", "one more ReLU"),
        (lambda y: torch.softmax(y, 1), "last operator", "softmax along axis 1"),
        (lambda y: y.roll(1, 0), "shift", "shifted by +1 along axis 0"),
    ],
    ids=[
        "transposed",
        "reversed",
        "sign",
        "scale",
        "offset",
        "affine",
        "sigmoid",
        "relu",
        "softmax",
        "shift",
    ],
)
def test_another_form_of_the_output(
    planted: Callable[[torch.Tensor], torch.Tensor], kind: str, words: str
) -> None:
    model = seeded(nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 12)))
    [found] = of(model, lambda v: planted(model(v)), x(12, 6))
    assert found.kind == kind, found.text
    assert words in found.text
    assert found.where == "y"


@pytest.mark.parametrize("last", [nn.Sigmoid(), nn.Tanh()])
def test_a_last_operator_that_is_missing(last: nn.Module) -> None:
    body = seeded(nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 12)))
    [found] = of(nn.Sequential(body, last), body, x(12, 6))
    assert found.kind == "last operator"
    assert f"without its {type(last).__name__.lower()}" in found.text


def test_a_softmax_along_the_other_axis() -> None:
    body = seeded(nn.Linear(6, 7))
    [found] = of(nn.Sequential(body, nn.Softmax(-1)), lambda v: torch.softmax(body(v), 0), x(9, 6))
    assert found.kind == "last operator"
    assert "softmax along axis 0 instead of 1" in found.text


def test_another_shape_with_the_same_values_is_a_layout() -> None:
    model = seeded(nn.Linear(6, 12))
    [found] = of(model, lambda v: model(v).reshape(-1, 4), x(5, 6))
    assert found.kind == "layout"
    assert "[15, 4]" in found.text


def test_outputs_in_another_order() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.boxes, self.scores = nn.Linear(6, 4), nn.Linear(6, 4)

        def forward(self, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.boxes(v), self.scores(v)

    model = seeded(Heads())
    found = of(model, lambda v: tuple(reversed(model(v))), x(5, 6))
    assert [f.kind for f in found] == ["output order"] * 2
    assert "y0 has the values of the original's output y1" in found[0].text


# Weights.


class Square(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.mix, self.head = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 5)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(torch.relu(self.mix(torch.tanh(self.up(v)))))
        return out


def test_a_square_weight_that_is_transposed() -> None:
    model, wrong = seeded(Square()), seeded(Square())
    wrong.mix.weight.data = wrong.mix.weight.data.T.contiguous()  # type: ignore[union-attr,operator]
    [found] = of(model, wrong, x(8, 6))
    assert found.kind == "transposed weight"
    assert found.where == "mix.weight"


# Innocent failures: none of these is a form, a reading or a transposition.


class Epsilon(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16, eps=eps)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.norm(v)
        return out


def perturbed(part: str) -> nn.Module:
    model = seeded(Square())
    with torch.no_grad():
        if part == "bias":
            model.mix.bias.zero_()  # type: ignore[union-attr,operator]
        elif part == "weight":
            model.mix.weight[3, 4] += 1.0  # type: ignore[index,operator]
        elif part == "noise":
            for p in model.parameters():
                p += 0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(9))
    return model


@pytest.mark.parametrize("part", ["bias", "weight", "noise"])
def test_other_faults_are_not_explained_away(part: str) -> None:
    assert of(seeded(Square()), perturbed(part), x(8, 6)) == []


@pytest.mark.parametrize(
    ("model", "candidate", "shape"),
    [
        (Epsilon(1e-5), Epsilon(1e-3), (8, 16)),
        (nn.GELU(), nn.GELU(approximate="tanh"), (8, 16)),
        (
            nn.Sequential(nn.Conv2d(3, 4, 3, padding=1)),
            nn.Sequential(nn.Conv2d(3, 4, 3, padding=1)),
            (1, 3, 9, 9),
        ),
        (nn.MaxPool2d(2), nn.AvgPool2d(2), (1, 3, 8, 8)),
        (nn.Hardtanh(), nn.Tanh(), (8, 16)),
    ],
    ids=["epsilon", "gelu", "other-weights", "other-pool", "other-activation"],
)
def test_other_models_are_not_explained_away(
    model: nn.Module, candidate: nn.Module, shape: tuple[int, ...]
) -> None:
    if any(p.dim() > 1 for p in candidate.parameters()):
        seeded(model)
        for p in candidate.parameters():
            p.data = torch.randn(p.shape, generator=torch.Generator().manual_seed(77))
    assert of(model, candidate, x(*shape)) == []


@pytest.mark.parametrize(
    ("model", "candidate"),
    [
        (lambda v: (v > 0).float(), lambda v: (v >= 0).float()),
        (lambda v: v * 2, lambda v: (v * 2).clamp(-3, 3)),
        (lambda v: v / v.abs().clamp(min=0), lambda v: torch.nan_to_num(v / v.abs())),
    ],
    ids=["step", "clamp", "nan-swallowed"],
)
def test_a_few_elements_are_not_a_shift_nor_another_operator(model: Any, candidate: Any) -> None:
    rising = torch.arange(-20, 20).float().reshape(1, 40) / 4
    assert of(model, candidate, rising) == []


def test_an_infinity_that_was_saturated_is_not_another_operator() -> None:
    values = torch.tensor([1.0, -float("inf"), 2.0, float("inf"), 3.0, -4.0, 0.5, 9.0, -1.0])
    assert of(lambda v: v * 2, lambda v: (v * 2).clamp(-3e4, 3e4), values) == []


def test_two_numbers_are_too_few_for_a_scale() -> None:
    model = seeded(nn.Linear(6, 2))
    found = of(model, lambda v: model(v) * torch.tensor([1.5, 0.3]), x(1, 6))
    assert not [f for f in found if f.kind == "scale"]


def test_an_output_that_agrees_needs_no_explanation() -> None:
    model = net()
    assert of(model, model, image(2, 3, 10, 12)) == []


def test_what_leaves_a_rest_is_no_explanation() -> None:
    model = net()
    noise = 0.01 * x(2, 5)
    assert of(model, lambda v: model(v.flip(1)) + noise, image(2, 3, 10, 12) * 8) == []


def test_an_offset_of_rising_numbers_is_no_shift() -> None:
    """y + 1 is y moved by one place, where y counts: the simpler of the two is named."""
    rising = torch.arange(64).float().reshape(1, 64)
    [found] = of(lambda v: v * 1.0, lambda v: v + 1, rising)
    assert "plus 1" in found.text
    assert found.kind == "scale"


def test_a_scale_that_explains_only_part_is_not_named() -> None:
    model = seeded(nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 12)))
    assert of(model, lambda v: model(v) * 255 + 0.3 * torch.sin(7 * model(v)), x(12, 6)) == []


def test_an_explanation_must_hold_on_every_sample() -> None:
    """Twice the values on one sample; on the other one they agree already, or are off by something else."""
    model = seeded(nn.Linear(6, 12))
    with evaluating(model), torch.no_grad():
        original = Original(model)
        samples = [Sample("one", (x(12, 6),)), Sample("two", (2 * x(12, 6),))]
        first, second = (original.expected(s) for s in samples)
        doubled = [[2 * e.array for e in of_sample] for of_sample in (first, second)]
        for there, kinds in ((doubled[1], ["scale"]), ([second[0].array], []), ([second[0].array + 9], [])):
            found = explain(
                original,
                samples[0],
                doubled[0],
                first,
                graph_of(1),
                elsewhere=lambda there=there: [(samples[1], there, second)],
            )
            assert [f.kind for f in found] == kinds


def within(got: Any, one: Any) -> bool:
    """The elementwise budget, written out: nothing of the diagnosis is called."""
    want = one.array.astype("float64")
    tolerance = one.budget.tolerance()
    rows = (want.view("int64") >> 52) & 4095
    atol = tolerance.atol if tolerance.rows is None else tolerance.rows[rows]
    return bool((abs(got.astype("float64") - want) <= 4 * (atol + tolerance.rtol * abs(want))).all())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 9), min_size=1, max_size=3), st.floats(0.001, 3))
def test_no_random_fault_is_explained_by_what_does_not_repair_it(
    seed: int, steps: list[int], size: float
) -> None:
    """Faults put together at random: what is claimed of the output, undone by hand, gives the original's values."""
    draw = np.random.default_rng(seed)
    model = seeded(nn.Linear(6, 8))
    with evaluating(model), torch.no_grad():
        one = Original(model).expected(Sample("s", (x(8, 6),)))[0]
    got = one.array.astype("float64")
    for step in steps:
        got = [
            lambda g: g + size,
            lambda g: g * (1 + size),
            lambda g: -g,
            lambda g: g.T,
            lambda g: np.flip(g, 1),
            lambda g: np.roll(g, 1, 1),
            lambda g: g + size * draw.normal(size=g.shape),
            lambda g: g + size * (draw.random(g.shape) < 0.1),
            lambda g: np.tanh(g),
            lambda g: g * (1 + size * np.sin(g)),
        ][step](got)
    got = np.ascontiguousarray(got.astype("float32"))
    form = output_forms.form_of(0, got, one)
    if form is None:
        return
    wide, text = got.astype("float64"), form.text
    number = re.match(r"(?:times (\S+))?(?: ?plus (\S+))?$", text)
    if number and form.kind == "scale":
        undone = (wide - float(number[2] or 0)) / float(number[1] or 1)
        # six digits are shown
        assert np.abs(undone - one.array).max() <= 2e-5 * (np.abs(wide).max() + 1)
    elif form.kind == "sign":
        assert within(-got, one)
    elif "in the order [1, 0]" in text:
        assert within(got.T, one)
    elif "reversed" in text:
        assert within(np.flip(got, int(text[-1])), one)
    elif form.kind == "shift":
        axis, by = int(text[-1]), int(text.split()[2])
        inner = [slice(None)] * 2
        inner[axis] = slice(0, -1) if by == 1 else slice(1, None)
        mine = np.roll(got, -by, axis)[tuple(inner)]
        assert np.abs(mine - one.array[tuple(inner)]).max() <= 1e-5
    elif "tanh" in text:
        assert np.abs(np.tanh(one.array.astype("float64")) - got).max() <= 1e-5
    else:
        assert form.kind == "last operator"
        assert rms_of_difference(got, one.array) > 1e-3
