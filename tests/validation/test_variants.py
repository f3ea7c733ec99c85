"""A file that computes a known variant of the original is told so; one that computes something else is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from deployops.validation import Sample
from deployops.validation.diagnosis.variants import followed_variant
from deployops.validation.original import Original

from .candidates import Net

Function = Callable[[torch.Tensor], torch.Tensor]
X = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0))
HALVES = torch.arange(-8, 8).reshape(1, 1, 4, 4) / 2
MEAN, VARIANCE = torch.zeros(4), torch.full((4,), 0.01)


@torch.no_grad()
def told(original: Function, file: Function, x: torch.Tensor = X) -> str | None:
    model = Original(Net(lambda v, _: original(v)).eval())
    sample = Sample("s", (x,))
    return followed_variant(model, sample, [np.asarray(file(x))], model.expected(sample))


def pool(count: bool) -> Function:
    return lambda v: F.avg_pool2d(v, 3, 1, 1, count_include_pad=count)


def resize(corners: bool) -> Function:
    return lambda v: F.interpolate(v, scale_factor=2, mode="bilinear", align_corners=corners)


@pytest.mark.parametrize(
    ("original", "file", "words"),
    [
        (lambda v: F.gelu(v), lambda v: F.gelu(v, approximate="tanh"), "GELU by tanh"),
        (lambda v: F.gelu(v, approximate="tanh"), lambda v: F.gelu(v), "GELU by erf"),
        (lambda v: F.gelu(v), lambda v: v * torch.sigmoid(1.702 * v), "1.702"),
        (
            lambda v: F.layer_norm(0.01 * v, (8,)),
            lambda v: F.layer_norm(0.01 * v, (8,), eps=1e-6),
            "epsilon 1e-06",
        ),
        (
            lambda v: F.layer_norm(0.01 * v, (8,), eps=1e-3),
            lambda v: F.layer_norm(0.01 * v, (8,)),
            "epsilon 1e-05",
        ),
        (
            lambda v: F.batch_norm(v, MEAN, VARIANCE, eps=1e-5),
            lambda v: F.batch_norm(v, MEAN, VARIANCE, eps=1e-3),
            "batch normalisation with epsilon 0.001",
        ),
        (lambda v: torch.remainder(v, 1.5), lambda v: torch.fmod(v, 1.5), "sign of the dividend"),
        (lambda v: torch.fmod(v, 1.5), lambda v: torch.remainder(v, 1.5), "sign of the divisor"),
        (pool(False), pool(True), "counts the padding"),
        (resize(True), resize(False), "align_corners"),
        (lambda v: F.elu(v, 0.8), lambda v: F.elu(v), "ELU with alpha 1"),
        (lambda v: F.leaky_relu(v, 0.2), lambda v: F.leaky_relu(v), "slope 0.01"),
        (lambda v: F.softplus(v, 2.0), lambda v: F.softplus(v), "beta 1"),
    ],
)
def test_the_variant_is_named(original: Function, file: Function, words: str) -> None:
    text = told(original, file)
    assert text is not None
    assert words in text


def test_halves_rounded_away() -> None:
    text = told(torch.round, lambda v: torch.sign(v) * torch.floor(v.abs() + 0.5), HALVES)
    assert text is not None
    assert "halves away" in text


def test_something_else_is_not_explained() -> None:
    assert told(F.gelu, lambda v: F.gelu(v) + 1e-3) is None
    assert told(torch.relu, lambda v: F.gelu(v)) is None


def test_a_variant_that_the_original_does_not_contain_explains_nothing() -> None:
    """An output that is right for another reason must not be laid to an operator that is not there."""
    assert told(torch.relu, torch.relu) is None
