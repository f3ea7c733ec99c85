"""A model that branches on a size inside the declared range is refused, whatever the size it was traced at."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deployops.errors import ExportError
from deployops.export.diverging_line import diverging_line
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


# A size of 1, which torch traces as if it could not be


class Squeezed(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.squeeze().sum(-1)


def test_squeeze_that_drops_the_batch_is_said_to(deploy: Any) -> None:
    with pytest.raises(ExportError) as refused:
        deploy(Squeezed(), ["x:float32[b,1,4]"])
    assert "squeeze drops every dim that is 1, at b=1 the variable one too" in str(refused.value)
    assert "test_size_branches.py:" in str(refused.value)
    assert "fake kernel" not in str(refused.value)
    x = torch.arange(12.0).reshape(3, 1, 4)
    (got,) = deploy(Squeezed(), ["x:float32[b=2..,1,4]"]).run(x.numpy())
    np.testing.assert_allclose(got, [6, 22, 38])


def test_squeeze_of_the_variable_dim_itself(deploy: Any) -> None:
    class First(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.squeeze(0) * 2

    with pytest.raises(ExportError, match=r"squeeze of a dim of variable size, at test_size_branches\.py:"):
        deploy(First(), ["x:float32[b,4]"])


def test_a_branch_on_a_size_of_one_is_named_by_its_line(deploy: Any) -> None:
    class Statement(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.shape[0] == 1:
                return x + 1
            return x * 2

    class Expression(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1 if x.shape[0] == 1 else x * 2

    for net in (Statement(), torch.nn.Sequential(torch.nn.Linear(4, 4), Expression())):
        kind = Statement if isinstance(net, Statement) else Expression
        line = kind.forward.__code__.co_firstlineno + 1
        with pytest.raises(ExportError) as refused:
            deploy(net, ["x:float32[b,4]"])
        assert f"at test_size_branches.py:{line} in " in str(refused.value)
        assert "declare b=2.." in str(refused.value)


def test_where_two_runs_part() -> None:
    def steps(n: int) -> int:
        total = 0
        for k in range(n):
            total += k
        return total

    loop = steps.__code__.co_firstlineno + 2
    parted = diverging_line(partial(steps, 2), partial(steps, 3))
    assert parted is not None
    assert f"test_size_branches.py:{loop} in " in parted
    assert diverging_line(partial(steps, 3), partial(steps, 3)) is None
