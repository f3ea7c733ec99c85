"""A row of attention that sees nothing is named where the sides disagree on NaN, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import helper
from torch import nn

from deployops.validation import Sample
from deployops.validation.diagnosis import masked_rows
from deployops.validation.original import Original
from deployops.validation.record import Finding

MASK = torch.tensor([[True, False, False], [False, False, False], [True, True, True]])
GRAPH = helper.make_graph([], "g", [], [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)])


class Manual(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = (x @ x.transpose(-1, -2)).masked_fill(~mask, -torch.inf)
        return torch.softmax(scores, -1) @ x


class Fused(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


def explained(
    model: nn.Module,
    mask: torch.Tensor,
    change: Callable[[np.ndarray], np.ndarray],  # type: ignore[type-arg]
) -> list[Finding]:
    x = torch.randn(1, 1, 3, 4, generator=torch.Generator().manual_seed(0))
    original = Original(model.eval())
    sample = Sample("s", (x, mask))
    with torch.no_grad():
        expected = original.expected(sample)
        return masked_rows.explain(original, sample, [change(expected[0].array.copy())], expected, GRAPH)


def other_nan(array: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """NaN where there is none, and none where there is."""
    row = array[..., 1, :]
    array[..., 1, :] = np.where(np.isnan(row), 0, np.nan)
    return array


@pytest.mark.parametrize("model", [Manual(), Fused()], ids=["softmax", "scaled_dot_product_attention"])
def test_a_wholly_masked_row_is_named(model: nn.Module) -> None:
    (found,) = explained(model, MASK, other_nan)
    assert found.kind == "masked row"
    assert found.where == "y"
    assert "1 of 3 rows of an attention see nothing" in found.text
    has = "the original has NaN" if isinstance(model, Manual) else "the file has NaN"
    assert f"{has} in 4 elements of y" in found.text


def test_nothing_is_said_where_every_row_sees_something() -> None:
    assert explained(Manual(), torch.ones(3, 3, dtype=torch.bool), other_nan) == []


def test_nothing_is_said_where_the_sides_agree_on_nan() -> None:
    assert explained(Manual(), MASK, lambda array: array + 1) == []
