"""Case 29: an image prepared in another way gives a plausible, wrong answer; parity is blind where both sides share it.

A golden output, stored with the real sample, is not: and the diagnosis says which preparation would have been right.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from deployops.validation import validate
from deployops.validation.backends import Sample
from deployops.validation.backends.torch import evaluating
from deployops.validation.diagnosis import explain, explain_golden
from deployops.validation.inputs.golden import golden_cells
from deployops.validation.inputs.samples import resolve
from deployops.validation.original import Original

Array = np.ndarray[Any, Any]


@pytest.fixture
def net() -> torch.nn.Module:
    """The network of the case."""
    torch.manual_seed(0)
    layers = (torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    return torch.nn.Sequential(*layers, torch.nn.Linear(4, 3)).eval()


def photo() -> Array:
    """Height, width, channels; RGB, uint8: half of it red, half without blue."""
    image = np.random.default_rng(0).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    image[:6, :, 0] = 250
    image[6:, :, 2] = 5
    return image


SCALED = photo().astype(np.float32) / 255
RIGHT = SCALED.transpose(2, 0, 1)

WRONG: dict[str, tuple[Array, str | None]] = {
    "reshape instead of transpose": (SCALED.reshape(3, 12, 12), "layout"),
    "BGR": (SCALED[..., ::-1].transpose(2, 0, 1), "layout"),
    "not scaled": (photo().astype(np.float32).transpose(2, 0, 1), "scale"),
    "H and W swapped": (SCALED.transpose(2, 1, 0), "layout"),
    # uint8 arithmetic that wraps is no change of axes or scale: it is found, and not explained
    "uint8 wrapped": ((photo() - np.uint8(128)).astype(np.float32).transpose(2, 0, 1) / 255, None),
}


def golden(net: torch.nn.Module, image: Array) -> Array:
    """In float64, convolution by its definition: nothing of torch's layout rules takes part."""
    weight, bias, head, shift = (p.detach().double().numpy() for p in net.parameters())
    windows = np.lib.stride_tricks.sliding_window_view(image.astype(np.float64), (3, 3), axis=(1, 2))
    maps = np.einsum("ocij,chwij->ohw", weight, windows) + bias[:, None, None]
    return np.maximum(maps, 0).mean((1, 2)) @ head.T + shift


def batch(image: Array) -> Array:
    return np.ascontiguousarray(image)[None]


def stored(folder: Path, image: Array, expected: Array) -> Path:
    folder.mkdir()
    np.save(folder / "input.npy", batch(image))
    np.save(folder / "expected_output.npy", expected[None])
    return folder


def read(
    net: torch.nn.Module, graph: onnx.GraphProto, folder: Path
) -> tuple[Sample, list[Any], list[Any], Original]:
    [sample] = resolve(net, graph, None, None, None, 1, 0, folder=folder)
    with evaluating(net):
        original = Original(net)
        expected = original.expected(sample)
        cells = golden_cells(sample, ["output"], [e.array for e in expected], expected, "pytorch")
    return sample, expected, cells, original


@pytest.fixture
def graph(deploy: Callable[..., Any], net: torch.nn.Module) -> onnx.GraphProto:
    exported = deploy(net, (torch.zeros(1, 3, 12, 12),), output_names=["output"])
    found: onnx.GraphProto = exported.proto.graph
    return found


def test_the_right_preparation_meets_the_golden_output(
    net: torch.nn.Module, graph: onnx.GraphProto, tmp_path: Path
) -> None:
    _, _, cells, _ = read(net, graph, stored(tmp_path / "s", RIGHT, golden(net, RIGHT)))
    assert [(c.verdict, c.judged_as) for c in cells] == [("passed", "golden")]


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_that_both_sides_share_passes_parity_and_not_the_golden_output(
    mistake: str, deploy: Callable[..., Any], net: torch.nn.Module, tmp_path: Path
) -> None:
    image, _ = WRONG[mistake]
    exported = deploy(net, (torch.zeros(1, 3, 12, 12),), output_names=["output"])
    inputs = (torch.from_numpy(batch(image)),)
    report = validate(net, exported.path, inputs, latency=False, isolate=False)
    assert report.exit_code == 0  # the same mistake on both sides: nothing to see
    _, _, cells, _ = read(net, exported.proto.graph, stored(tmp_path / "s", image, golden(net, RIGHT)))
    assert cells[0].verdict == "failed"
    assert "not the golden output" in cells[0].reason


@pytest.mark.parametrize("mistake", WRONG)
def test_the_diagnosis_names_the_preparation(
    mistake: str, net: torch.nn.Module, graph: onnx.GraphProto, tmp_path: Path
) -> None:
    image, kind = WRONG[mistake]
    sample, expected, _, original = read(net, graph, stored(tmp_path / "s", image, golden(net, RIGHT)))
    with evaluating(net):
        found = explain_golden(original, sample, expected, graph)
    assert [f.kind for f in found] == ([kind] if kind else [])
    for finding in found:
        assert "all of the difference" in finding.text
        assert "preprocessing" in finding.advice


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_on_one_side_fails_parity_and_is_named(
    mistake: str, net: torch.nn.Module, graph: onnx.GraphProto
) -> None:
    image, kind = WRONG[mistake]
    sample = Sample("example", (torch.from_numpy(batch(RIGHT)),))
    with evaluating(net):
        original = Original(net)
        expected = original.expected(sample)
        with torch.no_grad():
            got = [net(torch.from_numpy(batch(image))).numpy()]
        found = explain(original, sample, got, expected, graph)
    assert [f.kind for f in found] == ([kind] if kind else [])
