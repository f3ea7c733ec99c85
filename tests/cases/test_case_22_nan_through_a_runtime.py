"""Case 22: a NaN or Inf that a runtime loses is found, wherever it stands; one that it keeps is no difference.

ONNX Runtime's ReduceMax sees a NaN only in the first place, MaxPool and ArgMax ignore it, Sign keeps one that torch
makes zero; Relu, Clip, Softmax and sorting agree with torch. Which is which is measured here, against torch's values.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable

import numpy as np
import onnxruntime as ort
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from deployops.validation import Sample
from deployops.validation.original import Original
from deployops.validation.parity.compare import compare_output
from deployops.validation.record import Cell

NAN, INF = float("nan"), float("inf")
POINTS = torch.tensor([[NAN, 1, 2, 3], [1, 2, 3, NAN], [1, NAN, 3, 2], [INF, -INF, 0, 1], [0, 0, 0, 0]])

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "clamp": lambda x: x.clamp(-1, 1),
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin(1),
    "argmax": lambda x: x.argmax(1),
    "maximum": lambda x: torch.maximum(x, torch.zeros_like(x)),
    "sign": torch.sign,
    "max_pool": lambda x: F.max_pool1d(x[:, None], 4)[:, 0],
    "softmax": lambda x: x.softmax(1),
    "where": lambda x: torch.where(x.isnan(), torch.zeros_like(x), x),
}


class Apply(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return FUNCTIONS[self.name](x)


def on_onnxruntime(name: str, x: torch.Tensor) -> np.ndarray:
    file = io.BytesIO()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Apply(name), (torch.ones_like(x),), file, input_names=["x"], dynamo=False, opset_version=20
        )
    session = ort.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x.numpy()})[0])


def judged(name: str, x: torch.Tensor, got: np.ndarray) -> Cell:
    with torch.no_grad():
        [expected] = Original(Apply(name)).expected(Sample("case", (x,)))
    return compare_output("case", "y", "onnxruntime", got, expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_verdict_is_whether_the_specials_agree(name: str) -> None:
    got, want = on_onnxruntime(name, POINTS), FUNCTIONS[name](POINTS).numpy()
    agree = np.array_equal(np.isnan(got), np.isnan(want)) and np.array_equal(
        np.where(np.isinf(got), got, 0), np.where(np.isinf(want), want, 0)
    )
    if want.dtype.kind == "i":
        agree = np.array_equal(got, want)
    cell = judged(name, POINTS, got)
    assert cell.verdict == ("passed" if agree else "failed"), cell.reason
    if name in ("amax", "sign", "max_pool"):
        assert not agree  # as the case says; were it otherwise, the test above would prove less
        assert "NaN on one side only" in cell.reason


@pytest.mark.parametrize("place", [0, 1, 15, 16, 31, 63])
def test_wherever_the_nan_stands(place: int) -> None:
    x = torch.ones(1, 64)
    x[0, place] = NAN
    for got, verdict in (
        (np.float32([NAN]), "passed"),
        (np.float32([1]), "failed"),
        (np.float32([INF]), "failed"),
    ):
        assert judged("amax", x, got).verdict == verdict


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("special", [NAN, INF, -INF])
def test_one_special_in_a_large_output_is_enough(special: float, dtype: torch.dtype) -> None:
    x = torch.rand(300, 300, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[211, 17] = special
    kept = x.numpy().copy()
    lost = kept.copy()
    lost[211, 17] = 0.5

    class Same(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return v * 1.0

    [expected] = Original(Same()).expected(Sample("case", (x,)))
    assert compare_output("case", "y", "onnxruntime", kept, expected).verdict == "passed"
    cell = compare_output("case", "y", "onnxruntime", lost, expected)
    assert cell.verdict == "failed"
    assert cell.metrics is not None
    assert cell.metrics.worst[0].index == (211, 17)
    assert cell.metrics.nan + cell.metrics.inf == 1
    if special == INF:
        flipped = kept.copy()
        flipped[211, 17] = -INF
        assert compare_output("case", "y", "onnxruntime", flipped, expected).verdict == "failed"
