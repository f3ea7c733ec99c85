"""A validation without a full sweep tries one odd, non-square size too, unless a multiple is declared."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from deployops.export.inputs.signature import signature_from_specs
from deployops.validation.inputs.samples import from_signature


class Halving(nn.Module):
    """Takes even sizes alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        return x.reshape(n, c, h // 2, 2, w // 2, 2).sum((3, 5))


def sizes(model: nn.Module, spec: str, sweep: str | None) -> list[tuple[int, int]]:
    found = from_signature(signature_from_specs([spec]), model, 3, 0, sweep)  # type: ignore[arg-type]
    return [tuple(sample.args[0].shape[2:]) for sample in found]


@pytest.mark.parametrize("sweep", [None, "quick"])
def test_an_odd_size_is_tried(sweep: str | None) -> None:
    tried = sizes(nn.Identity(), "x:float32[n,3,h,w]", sweep)
    assert any(h % 2 and w % 2 and h != w for h, w in tried)


@pytest.mark.parametrize("sweep", [None, "quick"])
def test_a_declared_multiple_is_kept(sweep: str | None) -> None:
    tried = sizes(nn.Identity(), "x:float32[n,3,h%8,w%8]", sweep)
    assert all(h % 8 == 0 and w % 8 == 0 for h, w in tried)
    assert any(h % 16 and w % 16 and h != w for h, w in tried)


def test_sizes_that_the_original_refuses_are_not_taken() -> None:
    tried = sizes(Halving(), "x:float32[n,3,h,w]", None)
    assert all(h % 2 == 0 and w % 2 == 0 for h, w in tried)
    assert any(h % 4 == 2 and w % 4 == 2 for h, w in tried)


def test_the_original_is_left_as_it_was() -> None:
    norm = nn.BatchNorm2d(3).train()
    sizes(norm, "x:float32[n,3,h,w]", None)
    assert norm.num_batches_tracked is not None
    assert norm.num_batches_tracked.item() == 0
