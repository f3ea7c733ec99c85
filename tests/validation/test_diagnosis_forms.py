"""Layouts, scales, orders and transposed weights: named where they are planted, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from deployops.ort_ops.arrays import to_array
from deployops.validation import Sample
from deployops.validation.backends.torch import evaluating
from deployops.validation.diagnosis import explain, preprocessing
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


def test_a_partial_explanation_says_how_much() -> None:
    model = net()
    noise = 0.01 * x(2, 5)
    [found] = of(model, lambda v: model(v.flip(1)) + noise, image(2, 3, 10, 12) * 8)
    assert found.kind == "layout"
    assert " % of the difference" in found.text
