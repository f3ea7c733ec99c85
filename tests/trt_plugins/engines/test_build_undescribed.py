"""Libraries of plugins without a manifest: what needs none is refused all the same, what needs one is said to be not checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from deployops.symbolic.graph_inspection.file_kind import UNVERIFIED
from deployops.trt_plugins.engines.build import BuildError, build_engine
from deployops.trt_plugins.engines.sidecar import read_sidecar
from deployops.trt_plugins.inspection import check_model, limits_for
from deployops.trt_plugins.library import PluginLibrary
from deployops.trt_plugins.library_manifest import PluginManifest

STATED = {"plugin_version": "1", "plugin_namespace": "enginepack"}


def scaled(
    path: Path, op_type: str = "Scaled", name: str = "s", body: bool = False, **attributes: Any
) -> Path:
    """A model of one node; factor is a FLOAT for the plugin enginepack::Scaled, and all that it has."""
    tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 5]) for n in "xy"]
    node = helper.make_node(op_type, ["x"], ["y"], name=name, domain="enginepack", **(STATED | attributes))
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("enginepack", 1)]
    functions = []
    if body:
        inner = [helper.make_node("Neg", ["a"], ["b"])]
        names = list(STATED | attributes)
        functions = [helper.make_function("enginepack", op_type, ["a"], ["b"], inner, opsets, names)]
    graph = helper.make_graph([node], "g", tensors[:1], tensors[1:])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions), path)
    return path


@pytest.fixture
def bare(engine_library: PluginLibrary, tmp_path: Path) -> Path:
    """The plugin library, with no manifest beside it."""
    (tmp_path / "bare").mkdir()
    library = tmp_path / "bare" / engine_library.path.name
    library.write_bytes(engine_library.path.read_bytes())
    return library


def refusal(model: Path, library: Path) -> str:
    with pytest.raises(BuildError) as caught:
        build_engine(model, out=model.with_suffix(".engine"), archs=["sm89"], plugins=[library])
    assert not model.with_suffix(".engine").exists()
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "becomes"), [(2**40, 0), (2**31, -(2**31)), ([1, -(2**31) - 1], 2**31 - 1)]
)
def test_an_integer_that_tensorrt_would_cut_is_refused(
    rtx: Path, bare: Path, tmp_path: Path, value: Any, becomes: int
) -> None:
    text = refusal(scaled(tmp_path / "m.onnx", factor=value), bare)
    assert f"beyond 32 bits: TensorRT cuts it to {becomes} without a word" in text


@pytest.mark.parametrize("body", [False, True])
def test_it_is_refused_too_where_a_plugin_may_come_before_a_body(
    rtx: Path, bare: Path, tmp_path: Path, body: bool
) -> None:
    assert "beyond 32 bits" in refusal(scaled(tmp_path / "m.onnx", body=body, factor=2**31), bare)


@pytest.mark.parametrize("body", [False, True])
def test_an_attribute_that_the_plugin_does_not_know_is_refused(
    rtx: Path, bare: Path, tmp_path: Path, body: bool
) -> None:
    """With a body too: TensorRT-RTX 1.7 takes the plugin before it."""
    text = refusal(scaled(tmp_path / "m.onnx", body=body, factor=2.0, gamma=3), bare)
    wanted = "'s': enginepack::Scaled has the attribute 'gamma', which the plugin does not know (factor)"
    assert wanted in text
    assert "remove the attribute" in text


def test_a_body_that_runs_instead_of_a_plugin_is_told(rtx: Path, bare: Path, tmp_path: Path) -> None:
    """The plugin is in the namespace enginepack; the registry says so."""
    model = scaled(tmp_path / "m.onnx", body=True, factor=2.0, plugin_namespace="other")
    built = build_engine(model, out=tmp_path / "m.engine", archs=["sm89"], plugins=[bare])
    [told] = [t for t in built.record.warnings if "a body of the file runs instead of the plugin" in t]
    assert told.startswith("'s': ")
    # its attributes are the body's own
    gamma = scaled(tmp_path / "g.onnx", body=True, factor=2.0, gamma=3, plugin_namespace="other")
    assert build_engine(gamma, out=tmp_path / "g.engine", archs=["sm89"], plugins=[bare])


def test_what_only_the_manifest_tells_is_not_checked_and_said(
    rtx: Path, bare: Path, tmp_path: Path, command: Callable[..., Any]
) -> None:
    model, out = scaled(tmp_path / "m.onnx", factor=2.0), tmp_path / "m.engine"
    done = command("engine", "build", model, "-o", out, "--arch", "sm89", "--plugins", bare)
    assert done.code == 0
    record = read_sidecar(out)
    assert record is not None
    [told] = [text for text in record.warnings if text.startswith("not checked")]
    assert f"{bare.name} has no manifest beside it" in told
    assert "by their types and counts" in told
    assert "code for the GPUs" in told
    assert told in done.out


def test_with_the_manifest_nothing_of_that_is_said(
    rtx: Path, engine_library: PluginLibrary, tmp_path: Path
) -> None:
    model = scaled(tmp_path / "m.onnx", factor=2.0)
    built = build_engine(model, out=tmp_path / "m.engine", archs=["sm89"], plugins=[engine_library.path])
    assert built.record.warnings == (UNVERIFIED,)  # the model is of another tool


@pytest.mark.parametrize("name", ["s", ""])
def test_what_a_plugin_says_while_it_is_made_is_told(
    rtx: Path, bare: Path, tmp_path: Path, name: str
) -> None:
    text = refusal(scaled(tmp_path / "m.onnx", name=name, factor=2), bare)
    assert "attribute `factor` is int32; expected floating-point numbers" in text
    assert "(enginepack::Scaled): attribute" in text  # the node is said once


def test_inspect_finds_the_same_of_a_library_that_nothing_describes(tmp_path: Path) -> None:
    """Without TensorRT; of a text, what is behind a NUL is lost, and no plugin is given a graph."""
    unknown = [PluginManifest(Path("theirs.so"), None, is_library=False)]
    graph = helper.make_graph([], "inner", [], [])
    for attributes, kind in (
        ({"n": 2**31 - 1, "t": "a"}, None),
        ({"n": 2**31}, "attribute-range"),
        ({"n": [0, -(2**40)]}, "attribute-range"),
        ({"t": b"a\0b"}, "attribute-range"),
        ({"g": graph}, "attribute-type"),
    ):
        model = onnx.load(scaled(tmp_path / "m.onnx", **attributes))
        found = check_model(model, limits_for("tensorrt-rtx", "1.7"), unknown)
        assert {f.kind for f in found.findings} == ({kind} if kind else set()), attributes
