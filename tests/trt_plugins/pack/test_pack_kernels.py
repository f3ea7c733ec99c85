"""The packs' CUDA kernels compute what their references say, run on the CPU: a pack that disagrees with itself tests nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployops.symbolic import Operator, registry
from deployops.symbolic.checking.table import render
from deployops.trt_plugins.emulation.check import emulate

HERE = Path(__file__).parent
DOCS = HERE.parents[2] / "docs"
PACKS = (HERE / "pack.py", HERE.parent / "engines" / "pack" / "pack.py")
BLOCK = re.compile(r"^```(\S+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Operator]:
    """`acme::positives` of docs/operators.md, with the kernel of docs/tensorrt.md."""
    declaration = [t for k, t in BLOCK.findall((DOCS / "operators.md").read_text()) if k == "python"]
    about = [t for t in declaration if "positives" in t]
    (kernel,) = [t for _, t in BLOCK.findall((DOCS / "tensorrt.md").read_text()) if "#pragma once" in t]
    file = tmp_path / "positives_ops.py"
    file.write_text(
        "\n".join(["import torch", "from torch import Tensor", "from deployops import operator", *about])
    )
    (tmp_path / "positives.cuh").write_text(kernel)
    (op,) = registry.load([str(file)])
    yield op
    registry.remove(op)


@pytest.mark.parametrize("pack", PACKS, ids=lambda p: p.parent.parent.name)
def test_every_kernel_of_a_pack_agrees_with_its_reference(pack: Path) -> None:
    operators = list(registry.load([str(pack)]))
    results = emulate(operators)
    assert {r.operator: r.status for r in results} == {op.name: "passed" for op in operators}, render(results)


def test_the_kernel_of_the_page_agrees_with_the_declaration_of_the_page(shown: Operator) -> None:
    (result,) = emulate([shown])
    assert result.status == "passed", result.detail
