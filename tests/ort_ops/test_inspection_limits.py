"""What was measured of ONNX Runtimes is true of the installed one, and is not stretched to others without a word."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from deployops.errors import UsageError
from deployops.ort_ops.inspection import runtime_limits
from deployops.ort_ops.inspection.check import check_model
from deployops.ort_ops.inspection.runtime_limits import (
    RuntimeLimits,
    installed_version,
    limits_for,
    limits_of,
)
from deployops.symbolic import dtypes

from .twice_library import optimised, refusal

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "ort_ops" / "runtime_limits.json"


def benchmark(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def installed() -> RuntimeLimits:
    limits = limits_for("installed")
    if limits.note:
        pytest.skip(f"not checked: {limits.note}")
    return limits


def relu(opset: int = 13, ir: int = 8, dtype: int = TensorProto.FLOAT, op: str = "Relu") -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(n, dtype, [2, 2]) for n in ("x", "y")]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", ends[:1], ends[1:])
    return helper.make_model(graph, ir_version=ir, opset_imports=[helper.make_opsetid("", opset)])


def kinds(model: onnx.ModelProto, limits: RuntimeLimits) -> list[str]:
    return [f.kind for f in check_model(model, limits).findings]


def test_the_newest_opset_and_ir_version(installed: RuntimeLimits) -> None:
    for opset, ir in ((installed.opset, installed.ir), (installed.opset + 1, 8), (13, installed.ir + 1)):
        model = relu(opset, ir)
        assert (refusal(model) is None) == (not kinds(model, installed))
    assert kinds(relu(installed.opset + 1), installed) == ["opset-too-new"]
    assert kinds(relu(13, installed.ir + 1), installed) == ["ir-too-new"]


def test_gaps_are_gaps_in_the_installed_runtime(installed: RuntimeLimits) -> None:
    """A sample of what was measured, asked again with the optimiser on, as users open models."""
    node_models = benchmark("node_models")
    questions = [
        q
        for name, ranges in node_models.op_versions(installed.opset).items()
        for first, last in ranges
        for at in {max(first, 7), last}
        if first <= at
        for q in node_models.questions(name, at)
        if q.place == "0"
    ]
    wrong, refused = [], 0
    for q in random.Random(0).sample(questions, 700):
        dtype = runtime_limits_name(q.dtype)
        gap = dtype in installed.gaps(q.op, q.opset).get("0", "").split() or dtype in installed.unknown_types
        opens = any(
            refusal(onnx.ModelProto.FromString(m)) is None for m in node_models.trials(q, installed.ir)
        )
        refused += gap
        if opens == gap:
            wrong.append(q)
    assert not wrong
    assert 50 < refused < 650


def runtime_limits_name(onnx_text: str) -> str:
    number = TensorProto.DataType.Value(onnx_text.upper())
    try:
        return dtypes.name_of(int(number))
    except KeyError:
        return onnx_text


@pytest.mark.parametrize("op", ["Sqrt", "Exp", "Identity", "Relu", "Neg", "Abs"])
def test_float16_that_runs_in_float32(op: str, installed: RuntimeLimits) -> None:
    model = relu(20, 9, TensorProto.FLOAT16, op)
    emulated = "Cast" in optimised(model, None) and op in optimised(model, None)
    assert (kinds(model, installed) == ["float16-in-float32"]) == emulated


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_example_of_the_standard_is_refused_in_vain(installed: RuntimeLimits) -> None:
    """Of the 1,900 models that ONNX tests itself with: what is said to fail does, and little that fails is missed."""
    from onnx.backend.test.case.node import collect_testcases

    in_vain, missed, told = [], [], 0
    for case in collect_testcases(None):
        if case.model is None or any(o.domain not in ("", "ai.onnx") for o in case.model.opset_import):
            continue
        failing = [f.what for f in check_model(case.model, installed).findings if f.severity == "would fail"]
        opens = refusal(case.model) is None
        told += bool(failing)
        if failing and opens:
            in_vain.append((case.name, failing[0]))
        elif not failing and not opens:
            missed.append(case.name)
    assert not in_vain
    assert told > 50
    assert len(missed) < 30, missed  # sequences and optionals, whose types are not followed


# The files of case 11: valid models without a kernel, and one dtype that the standard does not have.

CASE_11 = {
    "MatMul": ("bfloat16", "uint8"), "Add": ("bfloat16", ""), "Relu": ("bfloat16 int64", "uint8"),
    "Softmax": ("bfloat16", "int64 uint8"), "Abs": ("bfloat16", ""), "Erf": ("bfloat16 float64", "int64 uint8"),
    "ReduceMean": ("bfloat16", "uint8"),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64", "float64", "uint8"])
@pytest.mark.parametrize("op", CASE_11)
def test_case_11(op: str, dtype: str) -> None:
    number = dtypes.onnx_number(dtype)
    names = ["a", "b"] if op in ("MatMul", "Add") else ["a"]
    inputs = [helper.make_tensor_value_info(n, number, [2, 2]) for n in names]
    outputs = [helper.make_tensor_value_info("y", number, ["p", "q"])]
    graph = helper.make_graph([helper.make_node(op, names, ["y"], name="n")], "g", inputs, outputs)
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 20)])
    gap, not_allowed = (dtype in text.split() for text in CASE_11[op])
    failing = [
        f
        for f in check_model(model, limits_for("onnxruntime==1.32.0")).findings
        if f.severity == "would fail"
    ]
    assert [f.kind for f in failing] == ["no-kernel"] * gap + ["type-not-allowed"] * not_allowed
    for finding in failing:
        assert finding.where == "'n'"
        assert op in finding.what
        assert dtype in finding.what
        assert ("valid" if gap else "invalid for every runtime") in finding.what
    if installed_version() == "1.32.0":
        assert (refusal(model) is not None) == bool(failing)


def test_gaps_close_with_newer_runtimes() -> None:
    """uint8 Add of opset 14: none in 1.17, one in 1.32."""
    model = relu(14, 7, TensorProto.UINT8, "Add")
    model.graph.node[0].input.append("x")
    assert kinds(model, limits_for("onnxruntime==1.17.3")) == ["no-kernel"]
    assert kinds(model, limits_for("onnxruntime==1.32.0")) == []
    if tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 32):
        assert refusal(model) is None


def test_operators_that_a_newer_opset_leaves_without_a_kernel() -> None:
    """ONNX Runtime 1.32 runs RoiAlign of opset 16, and has none for that of opset 22."""
    limits = limits_for("onnxruntime==1.32.0")
    assert "float32" not in limits.gaps("RoiAlign", 21).get("0", "").split()
    assert "float32" in limits.gaps("RoiAlign", 22)["0"].split()


# Which measurement stands for which version.


def test_a_measured_version_is_itself() -> None:
    limits = limits_for("onnxruntime==1.23.2")
    assert (limits.version, limits.measured, limits.note, limits.source) == ("1.23.2", "1.23.2", "", "given")
    assert (limits.opset, limits.ir) == (23, 11)


@pytest.mark.parametrize(
    ("asked", "measured", "words"),
    [
        ("1.20.0", "1.20.1", "another release of the same"),
        ("1.20.2", "1.20.1", "another release of the same"),
        ("1.99.0", "1.32.0", "the nearest older one measured"),
        ("2.0", "1.32.0", "the nearest older one measured"),
        ("1.32.0.dev20261101001", "1.32.0", ""),
    ],
)
def test_a_version_in_between_is_held_against_the_nearest_older_one(
    asked: str, measured: str, words: str
) -> None:
    limits = limits_of(asked, "given")
    assert limits.measured == measured
    assert words in limits.note
    assert bool(words) == bool(limits.note)
    checked = check_model(relu(), limits)
    assert (limits.note in checked.not_checked) == bool(words)


def test_a_version_before_all_measured_ones_is_not_checked() -> None:
    limits = limits_for("onnxruntime==1.15.1")
    assert limits.measured is None
    checked = check_model(relu(99, 99, TensorProto.BFLOAT16), limits)
    assert not checked.findings
    assert "was not measured" in checked.not_checked[0]


@pytest.mark.parametrize(
    "text",
    ["", "1.20.1", "onnxruntime", "onnxruntime==", "onnxruntime==x", "onnxruntime>=1.2", "tensorrt==10.0",
     "onnxruntime-gpu==1.20.1", "onnxruntime==1.20.1; rm -rf", "onnxruntime==" + "9" * 5000, "onnxruntime==1.\x1b[2J"],
)  # fmt: skip
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected onnxruntime=="):
        limits_for(text)


def test_a_long_text_is_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        limits_for("onnxruntime==" + "9" * 5000)
    assert len(str(caught.value)) < 300


def test_without_an_installed_runtime_the_newest_measured_one_is_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime_limits, "installed_version", lambda: None)
    limits = limits_for(None)
    newest = list(json.loads(FILE.read_text())["runtimes"])[-1]
    assert (limits.version, limits.source) == (newest, "newest measured")
    with pytest.raises(UsageError, match="no onnxruntime is installed"):
        limits_for("installed")


def test_the_installed_runtime_is_meant_where_there_is_one() -> None:
    assert limits_for(None).version == onnxruntime.__version__
    assert limits_for(None).source == "installed"


def test_the_file_is_small_and_complete() -> None:
    content: dict[str, Any] = json.loads(FILE.read_text())
    assert FILE.stat().st_size < 100_000
    assert {"1.17.3", "1.20.1", "1.23.2", "1.26.0", "1.32.0"} <= set(content["runtimes"])
    assert len(content["operators"]) > 150


def test_a_file_and_the_measurements_it_was_made_of_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = benchmark("measure_runtime_limits")
    content = json.loads(FILE.read_text())
    assert json.loads(json.dumps(script.merged(script.unmerged(content)))) == content
