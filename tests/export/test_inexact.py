"""Where torch's ONNX form differs from PyTorch at values that a check may not hit, the export says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


def test_floor_division_of_floats_is_said(deploy: Any) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x // 0.1

    exported = deploy(Net(), ["x:float32[b,4]"])
    assert "on floats" in exported.notes
    assert "test_inexact.py" in exported.notes


def test_floor_division_of_integers_needs_no_word(deploy: Any) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x // 3

    exported = deploy(Net(), ["x:int64[b,4]=-50..50"])
    assert "on floats" not in exported.notes
    x = np.array([[-7, 7, -6, 50]])
    np.testing.assert_array_equal(exported.run(x)[0], np.floor_divide(x, 3))


def test_attention_with_a_boolean_mask_is_said(deploy: Any) -> None:
    class Net(torch.nn.Module):
        def forward(self, q: Tensor, mask: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, q, q, attn_mask=mask | torch.eye(8, dtype=torch.bool))

    exported = deploy(Net(), ["q:float32[b,2,8,4]", "mask:bool[8,8]"])
    assert "boolean mask" in exported.notes
