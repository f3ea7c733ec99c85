"""A body with an operator that ONNX has not in the dtype: that is not checked, and no fault of the operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from deployops.symbolic import registry
from deployops.symbolic.operator import Operator, operator
from deployops.validation.body_types import unfit_body
from deployops.validation.operator_run import validate_operators
from deployops.validation.operators import operator_subjects
from deployops.validation.options import Options
from deployops.validation.record import Report

BUILD = Callable[..., Path]


@pytest.fixture
def best() -> Iterator[Operator]:
    """In every floating dtype, as `adopt` has it without dtypes. TopK has no bfloat16 in ONNX (opset 11 to 24)."""

    @operator("body_types::best", onnx="body_types::Best")
    def found(x: Tensor) -> Tensor:
        return x.topk(2, -1).values

    @found.fake
    def _(x: Tensor) -> Tensor:
        return x.new_empty((*x.shape[:-1], 2))

    @found.body
    def _(op: Any, x: Any) -> Any:
        return op.TopK(x, op.tensor([2], "int64"), axis=-1, _outputs=2)[0]

    @found.samples
    def _(draw: Any) -> Iterator[Any]:
        yield (draw(3, 5),)
        yield (draw(2, 7),)

    yield found
    registry.remove(found)


def run(op: Operator, *dtypes: str) -> Report:
    options = Options(backends=("onnxruntime",), latency=False, isolate=False)
    return validate_operators([op], dtypes=dtypes, options=options)


def test_topk_has_no_bfloat16_and_that_is_not_checked(best: Operator) -> None:
    report = run(best, "float32", "bfloat16")
    cells = [c for c in report.cells if c.backend == "onnxruntime"]
    assert {c.verdict for c in cells if c.sample.startswith("float32")} == {"passed"}
    narrow = [c for c in cells if c.sample.startswith("bfloat16")]
    assert len(narrow) == 2
    assert {c.verdict for c in narrow} == {"not checked"}
    assert all("TopK takes no bfloat16 in opset 20" in c.reason for c in narrow)
    assert report.exit_code == 0


def test_in_that_dtype_alone_nothing_was_checked(best: Operator) -> None:
    assert run(best, "bfloat16").exit_code == 3


def test_files_of_one_operator_have_one_name_for_its_output(best: Operator) -> None:
    """Whether the exporter wrote the file, or the bare node was written."""
    names = {c.output for c in run(best, "float32", "float16").cells if c.backend == "onnxruntime"}
    assert names == {"output"}


def test_only_a_node_alone_is_judged(best: Operator, tmp_path: Path, build: BUILD) -> None:
    from onnx import helper

    bare = next(s.onnx for s in operator_subjects(best, ("bfloat16",), tmp_path) if s.onnx is not None)
    assert "TopK takes no bfloat16" in unfit_body(bare)
    sound = next(s.onnx for s in operator_subjects(best, ("float16",), tmp_path) if s.onnx is not None)
    assert unfit_body(sound) == ""
    nodes = [helper.make_node("TopK", ["x", "k"], ["y", "i"])]
    given = [("x", "bfloat16", [3]), ("k", "int64", [1])]
    assert unfit_body(build(nodes, given, [("y", "bfloat16", None)])) == ""


def test_a_wrong_body_is_still_a_failure() -> None:
    @operator("body_types::wrong", onnx="body_types::Wrong", dtypes="float32")
    def wrong(x: Tensor) -> Tensor:
        return x * 2

    @wrong.fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    @wrong.body
    def _(op: Any, x: Any) -> Any:
        return op.Mul(x, 3.0)

    @wrong.samples
    def _(draw: Any) -> Iterator[Any]:
        yield (draw(3, 5),)

    try:
        assert run(wrong, "float32").exit_code == 1
    finally:
        registry.remove(wrong)


def test_a_file_of_a_node_that_nobody_declared_is_for_the_runtime_to_judge(
    best: Operator, tmp_path: Path
) -> None:
    bare = next(s.onnx for s in operator_subjects(best, ("bfloat16",), tmp_path) if s.onnx is not None)
    registry.remove(best)
    try:
        assert unfit_body(bare) == ""
    finally:
        registry.add(best)
