"""A model that branches on a size inside the declared range is refused, whatever the size it was traced at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from deployops.errors import ExportError
from deployops.export.inputs.dim_guards import evaluated
from deployops.export.inputs.input_spec import Symbol


class Branch(torch.nn.Module):
    def __init__(self, condition: Callable[[Tensor], bool]) -> None:
        super().__init__()
        self.condition = condition

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if self.condition(x) else x + 1


@pytest.mark.parametrize(
    ("condition", "spec"),
    [
        (lambda x: x.shape[1] > 2048, "x:float32[b,seq]"),
        (lambda x: x.shape[1] == 300, "x:float32[b,seq=1..512]"),
        (lambda x: x.shape[1] == 77, "x:float32[b,seq]"),
        (lambda x: x.shape[1] % 100 == 50, "x:float32[b,seq]"),
        (lambda x: x.shape[1] == 1 and x.shape[0] > 2, "x:float32[b,seq]"),
        (lambda x: x.shape[0] == 1, "x:float32[b,seq=4..64]"),
        (lambda x: x.shape[0] * x.shape[1] > 4096, "x:float32[b,seq]"),
    ],
)
def test_a_branch_on_a_size_in_the_range_is_found(
    deploy: Any, condition: Callable[[Tensor], bool], spec: str
) -> None:
    with pytest.raises(ExportError):
        deploy(Branch(condition), [spec])


def test_a_range_that_leaves_the_branch_out_is_enough(deploy: Any) -> None:
    deploy(Branch(lambda x: x.shape[1] > 2048), ["x:float32[b,seq=1..2048]"])


def test_a_scaled_size_is_weighed() -> None:
    text = "math.trunc(0.6*torch.sym_float(h)) >= 2"
    assert evaluated(text, {"h": Symbol("h", low=4)}) is None
    broken = evaluated(text, {"h": Symbol("h", low=1)})
    assert broken is not None
    assert broken.breaks_at == {"h": 2}
