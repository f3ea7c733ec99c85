"""Outputs of a million elements and more, of which the second look is shorter: sound ones pass, and one wrong element fails."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from .candidates import cell, each_node_rounded, expected, on_onnxruntime

SHAPE = (1024, 1024)
KINDS = {"gelu": nn.GELU, "layer norm": lambda: nn.LayerNorm(1024), "softmax": lambda: nn.Softmax(-1)}


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_the_least_accurate_sound_way_passes(kind: str, name: str) -> None:
    dtype = getattr(torch, name)
    net = KINDS[kind]().to(dtype).eval()
    inputs = (torch.randn(SHAPE, generator=torch.Generator().manual_seed(3)).to(dtype),)
    found = cell(expected(net, inputs), each_node_rounded(net, inputs, dtype))
    assert found.verdict == "passed", found.reason


@torch.no_grad()
def test_one_wrong_element_fails() -> None:
    net = nn.Sequential(nn.LayerNorm(1024), nn.Tanh()).eval()
    inputs = (torch.randn(SHAPE, generator=torch.Generator().manual_seed(3)),)
    reference = expected(net, inputs)
    got = np.array(on_onnxruntime(net, inputs))
    assert cell(reference, got).verdict == "passed"
    got[17, 5] += 1e-3
    assert cell(reference, got).verdict == "failed"
