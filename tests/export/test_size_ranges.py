"""Sizes that a model does not take: the answer is given, tiny images are left out with a word, nothing else is."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from deployops.errors import ExportError


class Pyramid(torch.nn.Module):
    """Halves its image twice and adds what comes back: it takes images of 8 pixels and more."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        half = F.max_pool2d(self.conv(x), 2)
        quarter = self.conv(F.max_pool2d(half, 2))
        back = F.interpolate(quarter, size=half.shape[-2:], mode="nearest") + half
        return F.interpolate(back, size=x.shape[-2:], mode="nearest") + x


def test_spatial_dims_without_a_range_are_narrowed_with_a_warning_and_recorded(deploy: Any) -> None:
    net = Pyramid()
    exported = deploy(net, ["x:float32[batch,3,h,w]"])
    warning = next(n for n in exported.result.notes if n.text.startswith("the file is for"))
    assert warning.level == "warning"
    manifest = json.loads(
        next(p.value for p in exported.proto.metadata_props if p.key == "deployops.manifest")
    )
    (spec,) = manifest["inputs"]
    lows = dict(part.split("=") for part in spec[spec.index("[") + 1 : -1].split(",") if "=" in part)
    assert lows.keys() <= {"h", "w"}
    assert all(f"{name}={low}" in warning.text for name, low in lows.items())
    for h in (int(lows.get("h", "1..").strip(".")), 31):
        for w in (int(lows.get("w", "1..").strip(".")), 17):
            x = torch.randn(2, 3, h, w)
            np.testing.assert_allclose(exported.run(x)[0], net(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spec", ["x:float32[batch,3,h=1..512,w=1..512]", "x:float32[2,3,h=2..,w=3..]"])
def test_a_declared_range_is_refused_and_the_answer_stands_first_and_works(deploy: Any, spec: str) -> None:
    with pytest.raises(ExportError) as refused:
        deploy(Pyramid(), [spec])
    first = str(refused.value).splitlines()[0]
    assert "Write " in first
    answer = dict(part.split("=") for part in first.partition("Write ")[2].partition(" in ")[0].split(", "))
    for name, sizes in answer.items():
        start = spec.index(f"{name}=")
        end = min(k for k in (spec.find(",", start), spec.find("]", start)) if k > 0)
        spec = spec[:start] + f"{name}={sizes}" + spec[end:]
    deploy(Pyramid(), [spec])


def test_a_multiple_is_found_and_never_assumed(deploy: Any) -> None:
    class Branch(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2 if x.shape[2] % 8 == 0 else x * 3

    with pytest.raises(ExportError, match=r"Write h%8 in the inputs"):
        deploy(Branch(), ["x:float32[2,3,h,5]"])
    deploy(Branch(), ["x:float32[2,3,h%8,5]"])


def test_a_program_that_runs_at_its_example_alone_is_refused(deploy: Any) -> None:
    class Checked(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            torch._assert(x.shape[0] * 1 >= 1, "")
            return refuse(x)

    program = torch.export.export(
        Checked(), (torch.randn(4, 2),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
    )
    with pytest.raises(ExportError, match="fails at every other one tried"):
        deploy(program)


@torch.library.custom_op("size_test::only_four", mutates_args=())
def refuse(x: Tensor) -> Tensor:
    if x.shape[0] != 4:
        raise ValueError("four rows")
    return x * 2


refuse.register_fake(torch.empty_like)


@pytest.fixture(autouse=True)
def _declared() -> Any:
    import deployops
    from deployops.symbolic import registry

    op = deployops.adopt("size_test::only_four")
    yield
    registry.remove(op)
