"""The call of `validate`: its samples, its refusals, its report, its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper
from torch import nn

from deployops.errors import ModelFileError, UsageError
from deployops.validation import Sample, validate
from deployops.validation.parity.budget import Budget
from deployops.validation.parity.metrics import Metrics
from deployops.validation.record import BackendRecord, Cell, Report

Build = Callable[..., Path]
X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()


def run(model: Any, path: Path, inputs: Any = None, **options: Any) -> Report:
    return validate(model, path, inputs, latency=False, isolate=False, **options)


# Samples.


@pytest.mark.parametrize("inputs", [X, (X,), {"input": X}, ["input:float32[batch,8]"]])
def test_ways_to_give_inputs(net: nn.Module, export: Build, inputs: Any) -> None:
    report = run(net, export(net, (X,)), inputs)
    assert report.exit_code == 0, report.text()
    assert len({c.sample for c in report.cells}) == 3


def test_a_signature_gives_names_and_sizes(net: nn.Module, export: Build) -> None:
    from deployops.export.inputs.signature import signature_from_specs

    report = run(net, export(net, (X,)), signature=signature_from_specs(["input:float32[n=3..9,8]"]), sizes=2)
    assert report.exit_code == 0
    labels = list(dict.fromkeys(c.sample for c in report.cells))
    assert len(labels) == 2
    assert all(label.startswith("n=") for label in labels)


def test_fixed_dims_leave_one_size(net: nn.Module, export: Build) -> None:
    report = run(net, export(net, (X,), open_axis=False), (X,))
    assert {c.sample for c in report.cells} == {"example"}


def test_inputs_by_name_whatever_their_order(build: Build) -> None:
    class Minus(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a - b

    node = helper.make_node("Sub", ["a", "b"], ["y"])
    swapped = build([node], [("b", "float", [3]), ("a", "float", [3])], [("y", "float", [3])])
    assert run(Minus(), swapped, (torch.ones(3), torch.zeros(3))).exit_code == 0


def test_python_scalars_are_constants_unless_the_file_wants_them(build: Build) -> None:
    class Scale(nn.Module):
        def forward(self, a: torch.Tensor, k: float) -> torch.Tensor:
            return a * k

    node = helper.make_node("Mul", ["a", "k"], ["y"])
    frozen = build([node], [("a", "float", [3])], [("y", "float", [3])], {"k": np.float32(2)})
    asked = build([node], [("a", "float", [3]), ("k", "float", [])], [("y", "float", [3])])
    assert run(Scale(), frozen, (torch.ones(3), 2.0)).exit_code == 0
    assert run(Scale(), asked, (torch.ones(3), 5.0)).exit_code == 0


def test_pruned_inputs_are_left_out_with_a_note(build: Build) -> None:
    class Ignores(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a + 0

    path = build([helper.make_node("Identity", ["a"], ["y"])], [("a", "float", [3])], [("y", "float", [3])])
    report = run(Ignores(), path, (torch.ones(3), torch.ones(5)))
    assert report.exit_code == 0
    assert "not inputs of the ONNX model, so not fed: b" in report.notes


def test_a_missing_input_is_wrong_use(build: Build) -> None:
    node = helper.make_node("Add", ["a", "b"], ["y"])
    path = build([node], [("a", "float", [3]), ("b", "float", [3])], [("y", "float", [3])])
    with pytest.raises(UsageError, match=r"takes 2 inputs \(a, b\).*Missing: b"):
        run(lambda a: a, path, (torch.ones(3),))


def test_another_input_dtype_is_a_failure(build: Build) -> None:
    path = build([helper.make_node("Identity", ["x"], ["y"])], [("x", "double", [3])], [("y", "double", [3])])
    report = run(nn.Identity(), path, (torch.ones(3),))
    assert report.exit_code == 1
    assert "the original takes float32, the ONNX model takes float64" in report.cells[0].reason


def test_nested_arguments(build: Build) -> None:
    class Sum(nn.Module):
        def forward(self, xs: list[torch.Tensor], scale: dict[str, torch.Tensor]) -> torch.Tensor:
            return (xs[0] + xs[1]) * scale["k"]

    nodes = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Mul", ["s", "c"], ["y"])]
    inputs = [(n, "float", [3]) for n in "abc"]
    path = build(nodes, inputs, [("y", "float", [3])])
    args = ([torch.ones(3), torch.zeros(3)], {"k": torch.full((3,), 2.0)})
    assert run(Sum(), path, args).exit_code == 0


def test_token_ids_stay_in_their_range_at_other_sizes(build: Build) -> None:
    table = torch.randn(5, 4)

    class Embed(nn.Module):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return table[ids]

    node = helper.make_node("Gather", ["table", "ids"], ["y"])
    path = build(
        [node], [("ids", "int64", ["n", "t"])], [("y", "float", ["n", "t", 4])], {"table": table.numpy()}
    )
    report = run(Embed(), path, (torch.tensor([[0, 4, 2]]),))
    assert report.exit_code == 0, report.text()
    assert {c.sample for c in report.cells} == {"example", "n=2, t=5", "n=2, t=6"}


# Refusals.


def test_one_source_of_samples(net: nn.Module, export: Build) -> None:
    path = export(net, (X,))
    with pytest.raises(UsageError, match="no inputs are given"):
        run(net, path)
    with pytest.raises(UsageError, match="got inputs, samples"):
        run(net, path, (X,), samples=[("a", (X,))])
    with pytest.raises(UsageError, match="nothing to compare"):
        run(net, path, samples=[])


@pytest.mark.parametrize("options", [{"atol": -1.0}, {"rtol": float("nan")}, {"sizes": 0}, {"threads": 0}])
def test_senseless_options(net: nn.Module, export: Build, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        run(net, export(net, (X,)), (X,), **options)


def test_files_that_are_no_models(net: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        run(net, tmp_path / "none.onnx", (X,))
    (tmp_path / "x.onnx").write_bytes(b"nonsense")
    with pytest.raises(ModelFileError, match="not an ONNX model"):
        run(net, tmp_path / "x.onnx", (X,))


def test_a_flipped_bit_in_a_weight_is_refused_before_anything_runs(net: nn.Module, tmp_path: Path) -> None:
    from deployops import export_model

    path = tmp_path / "net.onnx"
    export_model(net, (X,), out=path)
    content = bytearray(path.read_bytes())
    weight = net[0].weight.detach().numpy().tobytes()
    content[content.index(weight) + 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="digest"):
        run(net, path, (X,))


# Verdicts.


def test_user_tolerance_is_used_and_said(net: nn.Module, export: Build) -> None:
    path = export(net, (X,))
    net[0].bias.data += 1e-3
    assert run(net, path, (X,)).exit_code == 1
    wide = run(net, path, (X,), atol=1e-2)
    assert wide.exit_code == 0
    assert "budget: user tolerance" in wide.text()
    assert run(net, path, (X,), atol=1e-5, rtol=0.0).exit_code == 1


def test_runtime_missing_is_not_checked(
    net: nn.Module, export: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = export(net, (X,))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    report = run(net, path, (X,))
    assert report.exit_code == 3
    assert 'pip install "deployops[cpu]"' in report.text()


def test_no_kernel_for_the_dtype_is_not_checked(export: Build) -> None:
    half = nn.Linear(8, 8).bfloat16().eval()
    report = run(half, export(half, (X.bfloat16(),)), (X.bfloat16(),))
    assert report.exit_code == 3
    assert "no kernel for Gemm(bfloat16)" in report.text()


def test_invalid_model_is_a_failure(build: Build) -> None:
    node = helper.make_node("Nonsense", ["x"], ["y"])
    path = build([node], [("x", "float", [3])], [("y", "float", [3])])
    assert run(nn.Identity(), path, (torch.ones(3),)).exit_code == 1


def test_an_original_that_runs_nowhere(build: Build) -> None:
    class Never(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("needs a GPU")

    path = build([helper.make_node("Identity", ["v"], ["y"])], [("v", "float", [3])], [("y", "float", [3])])
    report = run(Never(), path, (torch.ones(3),))
    assert report.exit_code == 3
    assert "RuntimeError: needs a GPU" in report.text()


def test_empty_tensors_are_compared_by_shape(net: nn.Module, export: Build) -> None:
    report = run(net, export(net, (X,)), samples=[Sample("empty", (torch.zeros(0, 8),))])
    assert {c.verdict for c in report.cells} == {"passed"}
    assert report.cells[0].reason == "equal (empty)"
    assert report.exit_code == 3  # not one number was compared
    whole = [Sample("empty", (torch.zeros(0, 8),)), Sample("some", (X,))]
    assert run(net, export(net, (X,)), samples=whole).exit_code == 0


def test_sizes_that_were_not_tried_are_said(net: nn.Module, export: Build) -> None:
    path = export(net, (X,))
    empty = run(net, path, (torch.zeros(0, 8),))
    assert {c.sample for c in empty.cells} == {"example"}  # nothing is called n=1 that has no elements
    assert empty.exit_code == 3
    assert any("is 0 in the example" in n for n in empty.notes)
    many = run(net, path, (X,), sizes=20)
    assert any("sizes were tried, not 20" in n for n in many.notes)


def test_a_baseline_of_another_model_is_noted(net: nn.Module, export: Build) -> None:
    path = export(net, (X,))
    earlier = replace(run(net, path, (X,)), model="another.pt")
    report = run(net, path, (X,), baseline=earlier)
    assert [f.text for f in report.findings if f.kind == "baseline"] == [
        f"the baseline is of another.pt against {path.name}"
    ]


def test_an_output_that_is_nan_throughout_proves_nothing(net: nn.Module, export: Build) -> None:
    report = run(net, export(net, (X,)), samples=[Sample("nan", (torch.full((2, 8), float("nan")),))])
    assert report.exit_code == 3


def test_every_output_must_have_been_compared_somewhere() -> None:
    def cell(output: str, verdict: str, backend: str = "onnxruntime") -> Cell:
        return Cell("s", output, backend, verdict)

    def code(*cells: Cell) -> int:
        return Report("m", "o", cells, (BackendRecord("onnxruntime", required=True),)).exit_code

    assert code() == 3
    assert code(cell("a", "passed")) == 0
    assert code(cell("a", "passed"), cell("*", "not checked")) == 0  # another sample could not be run
    assert code(cell("a", "passed"), cell("b", "not checked")) == 3
    assert code(cell("a", "passed"), cell("b", "failed")) == 1
    assert code(cell("a", "passed", "another")) == 3


# The report.


def test_worst_comes_first() -> None:
    budget = Budget(1.0, 0.0, float("inf"), "test")

    def cell(output: str, verdict: str, excess: float) -> Cell:
        metrics = Metrics(3, 3, max_abs=excess, excess=excess, identical=False)
        return Cell("s", output, "onnxruntime", verdict, "why", "float32", (3,), metrics, budget)

    cells = (cell("good", "passed", 0.1), cell("worse", "failed", 9.0), cell("bad", "failed", 2.0))
    lines = Report("m", "o", cells).text().splitlines()
    assert lines[0] == "FAILED: m against o (2 failed, 1 passed)"
    assert [line.split()[1] for line in lines[3:6]] == ["worse", "bad", "good"]
    assert "900%" in lines[3]


def test_long_reports_are_cut_and_say_so() -> None:
    cells = tuple(Cell("s", str(i), "onnxruntime", "passed") for i in range(500))
    text = Report("m", "o", cells).text()
    assert len(text.splitlines()) < 25
    assert "more (0 failed, 0 not checked, 488 passed)" in text


def test_json_is_strict_and_reproducible(net: nn.Module, export: Build) -> None:
    path = export(net, (X,))
    net[0].bias.data[0] = float("nan")
    one, two = (run(net, path, (X,), seed=5).to_dict() for _ in range(2))
    text = json.dumps(one, allow_nan=False)
    assert text == json.dumps(two, allow_nan=False)
    assert json.loads(text)["verdict"] == "failed"
    assert json.loads(text)["environment"]["seed"] == 5


# The package.


def test_import_needs_no_torch_and_no_runtime() -> None:
    code = "import sys, deployops.validation; print({'torch', 'onnx', 'onnxruntime'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


@pytest.mark.parametrize("first", ["deployops.validation.files", "deployops.validation.record", "deployops"])
def test_the_function_is_not_hidden_by_its_module(first: str) -> None:
    code = f"import {first}, deployops; from deployops.validation import validate; print(validate.__name__)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "validate\n"


def test_buffers_that_the_model_writes_are_put_back(tmp_path: Path) -> None:
    from deployops import export_model

    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x + self.count

    net = Counts()
    export_model(net, (X,), out=tmp_path / "counts.onnx")
    assert net.count == 0
    report = run(net, tmp_path / "counts.onnx", (X,))
    assert {c.verdict for c in report.cells} == {"passed"}
    assert report.exit_code == 3  # of a second call the file knows nothing, and that is said
    assert net.count == 0


def test_a_model_that_counts_its_calls_is_compared_from_the_same_start(tmp_path: Path) -> None:
    from deployops import export_model

    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.full((), 4.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x + self.count

    net = Counts()
    export_model(net, ["x:float32[n,3]"], out=tmp_path / "counts.onnx")
    report = run(net, tmp_path / "counts.onnx", ["x:float32[n,3]"])
    assert report.verdict == "not checked"
    assert [f.kind for f in report.findings if f.severity == "not checked"] == ["state"]
    assert {c.verdict for c in report.cells} == {"passed"}
    net.count += 1  # the file starts from 4, the model now from 5
    assert run(net, tmp_path / "counts.onnx", ["x:float32[n,3]"]).verdict == "failed"
