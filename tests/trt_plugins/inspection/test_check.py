"""What inspection knows of each TensorRT: plugins before bodies, namespaces, operators, opsets; and what it says it does not."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from deployops.errors import UsageError
from deployops.trt_plugins.inspection import Checked, check_model, limits_for
from deployops.trt_plugins.library_manifest import PluginManifest

from .conftest import plugins
from .parser_models import DOMAIN_ONLY, PLUGINS, STATED, body, model, node, value


def checked(made: onnx.ModelProto, version: str, *entries: dict[str, Any]) -> Checked:
    return check_model(made, limits_for("tensorrt", version), plugins(*entries) if entries else ())


def kinds(found: Checked) -> set[tuple[str, str]]:
    return {(f.severity, f.kind) for f in found.findings}


# --- versions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "hurts"), [("10.0", True), ("10.6", True), ("10.7", False), ("10.8", False)]
)
def test_before_10_7_the_body_runs_instead_of_the_plugin(version: str, hurts: bool) -> None:
    # onnx-tensorrt's changelog, 10.7: "Now prioritizes using plugins over local functions"
    made = model(node(**STATED), functions=[body("Blur", "Neg", attributes=list(STATED))])
    found = checked(made, version, *PLUGINS)
    assert kinds(found) == ({("hurts", "body-instead-of-plugin")} if hurts else set())
    if hurts:
        assert "--custom-ops node" in found.findings[0].advice
        assert (found.operators[0].plugins, found.operators[0].bodies) == (0, 1)


@pytest.mark.parametrize(("version", "fails"), [("10.9", True), ("10.10", False), ("11.4", False)])
def test_since_10_10_the_domain_is_the_namespace_too(version: str, fails: bool) -> None:
    # onnx-tensorrt's changelog, 10.10: "Plugin fallback importer now also reads its namespace from a Node's domain field"
    found = checked(model(node(**DOMAIN_ONLY)), version, *PLUGINS)
    assert kinds(found) == ({("would fail", "plugin-namespace")} if fails else set())


@pytest.mark.parametrize(("version", "fails"), [("10.4", True), ("10.5", False)])
def test_an_operator_that_came_with_a_version(version: str, fails: bool) -> None:
    # onnx-tensorrt's changelog, 10.5: "Added support for real-valued `STFT` operations"
    stft = helper.make_node("STFT", ["x", "step", "w"], ["y"])
    made = model(stft, inputs=[value("x"), value("step", TensorProto.INT64, ()), value("w", shape=(4,))])
    assert (("would fail", "operator-missing") in kinds(checked(made, version))) == fails


def test_a_version_whose_operators_are_not_known_is_said_as_not_checked() -> None:
    det = model(helper.make_node("Det", ["x"], ["y"]))
    newer, older = checked(det, "11.4"), checked(det, "8.6")
    assert not newer.findings
    assert any(
        "10.10, the nearest older version that is known, which lacks Det" in n for n in newer.not_checked
    )
    assert not older.findings
    assert any("8.6 has were not collected" in n for n in older.not_checked)


@pytest.mark.parametrize(
    ("version", "told"), [("0.0", True), ("99.0", True), ("11.4", False), ("10.8", False)]
)
def test_a_version_that_nobody_knows(version: str, told: bool) -> None:
    found = checked(model(helper.make_node("Relu", ["x"], ["y"])), version)
    assert any("no such version is known" in n for n in found.not_checked) == told


@pytest.mark.parametrize(("opset", "hurts"), [(8, True), (9, False), (22, False), (23, True)])
def test_opsets_that_the_parser_is_not_made_for(opset: int, hurts: bool) -> None:
    # its documentation: "TensorRT 10.8 supports operators in the inclusive range of opset 9 to opset 22"
    made = model(helper.make_node("Relu", ["x"], ["y"]), imports=(("", opset),))
    assert kinds(checked(made, "10.8")) == ({("hurts", "opset")} if hurts else set())


def test_a_name_that_newer_parsers_take_for_their_own() -> None:
    plugin = {"name": "RMSNormalization", "namespace": "acme"}
    found = checked(model(node("RMSNormalization", plugin_namespace="acme")), "10.8", plugin)
    assert kinds(found) == {("note", "standard-name")}


@pytest.mark.parametrize("version", ["", "10", "ten", "10.x", "10.8\n", "1" * 9 + ".0", "10.8.0.0.0"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(UsageError, match=r"expected X\.Y"):
        limits_for("tensorrt", version)


# --- plugins that are not known ----------------------------------------------------------------------------------


def test_a_node_without_any_plugin_fails() -> None:
    found = checked(model(node("Blur")), "10.8")
    assert kinds(found) == {("would fail", "no-plugin")}
    assert "deployops compile --target tensorrt" in found.findings[0].advice


def test_of_a_library_without_a_manifest_nothing_is_claimed() -> None:
    unknown = PluginManifest(Path("theirs.json"), None, is_library=False)
    found = check_model(model(node("Blur")), limits_for("tensorrt", "10.8"), [unknown])
    assert found.verdict == "nothing found"
    assert any("whether acme::Blur (1 node) finds a plugin" in n for n in found.not_checked)


def test_plugins_of_tensorrt_itself_are_not_judged() -> None:
    found = checked(model(node("EfficientNMS_TRT", domain="")), "10.8", *PLUGINS)
    assert not found.findings
    assert any("EfficientNMS_TRT" in n for n in found.not_checked)


def test_an_operator_that_onnx_has_and_a_plugin_serves() -> None:
    det = {"name": "Det"}
    assert not checked(model(helper.make_node("Det", ["x"], ["y"])), "10.8", det).findings


# --- element types -----------------------------------------------------------------------------------------------

TYPED = {
    **PLUGINS[0],
    "inputs": [{"name": "x", "form": "single"}, {"name": "mask", "form": "optional"}],
    "outputs": [{"name": "y", "form": "single"}],
    "signatures": [{"inputs": {"x": t, "mask": "bool"}, "outputs": {"y": t}} for t in ("float32", "float16")],
}


@pytest.mark.parametrize(
    ("dtype", "found"),
    [
        (TensorProto.FLOAT, set()),
        (TensorProto.FLOAT16, set()),
        (TensorProto.BFLOAT16, {("would fail", "dtype")}),
        (TensorProto.DOUBLE, {("hurts", "float64-as-float32")}),  # TensorRT makes float32 tensors of them
        (TensorProto.INT64, {("would fail", "dtype"), ("note", "int64")}),
    ],
)
def test_types_that_no_kernel_takes(dtype: int, found: set[tuple[str, str]]) -> None:
    made = model(node(**STATED), inputs=[value("x", dtype)], outputs=[value("y", dtype)])
    assert kinds(checked(made, "10.8", TYPED)) == found


@pytest.mark.parametrize(
    ("inputs", "outputs", "kind"),
    [(("x", "x", "x"), ("y",), "inputs"), (("x",), ("y", "z"), "outputs"), (("x", "x"), ("y",), "dtype")],
)
def test_calls_that_do_not_fit(inputs: tuple[str, ...], outputs: tuple[str, ...], kind: str) -> None:
    found = checked(model(node(inputs=inputs, outputs=outputs, **STATED)), "10.8", TYPED)
    assert kinds(found) == {("would fail", kind)}


TWO_OUTPUTS = {**TYPED, "outputs": [{"name": n, "form": "single"} for n in ("y", "count")]}


@pytest.mark.parametrize(("version", "fails"), [("10.2", False), ("10.8", True)])
def test_outputs_that_a_node_leaves_out(version: str, fails: bool) -> None:
    # ModelImporter.cpp: at most as many as the plugin's in 10.2, as many in 10.8
    found = checked(model(node(**STATED)), version, TWO_OUTPUTS)
    assert kinds(found) == ({("would fail", "outputs")} if fails else set())


def test_what_engine_build_fits_is_no_fault_of_our_plugins() -> None:
    ours = {"operator": "acme::blur", "data_sizes": ("rows",)}
    [plugin] = plugins(TYPED)[0].plugins or ()
    known = PluginManifest(Path("l.json"), (replace(plugin, **ours),), False)  # type: ignore[arg-type]
    limits = limits_for("tensorrt", "10.8")
    sizes = model(node(inputs=("x", "x"), **STATED), inputs=[value("x")])
    [found] = [f for f in check_model(sizes, limits, [known]).findings if f.kind == "outputs"]
    assert (found.severity, "fit_plugin_nodes" in found.advice) == ("note", True)
    absent = model(node(inputs=("x", "", "x"), deployops_absent_inputs="", **STATED))
    [found] = [f for f in check_model(absent, limits, [known]).findings if f.kind == "absent-input"]
    assert (found.severity, "fit_plugin_nodes" in found.advice) == ("note", True)
    strange = PluginManifest(Path("l.json"), (replace(plugin, data_sizes=("rows",)),), False)
    assert ("would fail", "outputs") in kinds(check_model(sizes, limits, [strange]))


def test_inputs_that_stand_for_absent_ones_may_be_of_any_type() -> None:
    # as `trt_plugins/fitted_nodes.py` writes them: x in the place of the mask
    made = model(node(inputs=("x", "x"), deployops_absent_inputs="1", **STATED))
    assert kinds(checked(made, "10.8", TYPED)) == set()


# --- what an engine needs ----------------------------------------------------------------------------------------


def test_sizes_that_vary_that_are_values_and_that_the_data_decides() -> None:
    reshape = helper.make_node("Reshape", ["x", "size"], ["r"])
    where = helper.make_node("NonZero", ["r"], ["y"])
    made = model(
        reshape,
        where,
        inputs=[value("x", shape=("n", "2*n")), value("size", TensorProto.INT64, (1,))],
        outputs=[value("y", TensorProto.INT64, (1, "u0"))],
    )
    found = {f.kind: f.what for f in checked(made, "10.8").findings}
    assert set(found) == {"profile", "shape-input", "data-dependent", "int64"}
    assert "x (n, 2*n)" in found["profile"]
    assert "the values of size are sizes" in found["shape-input"]
    assert "(u0)" in found["data-dependent"]


# --- hostile files -----------------------------------------------------------------------------------------------


def test_names_move_no_cursor() -> None:
    from deployops.symbolic.graph_inspection.report import report_lines

    evil = "a\x1b[2J\nFAILS nothing\u202e"
    made = model(node(evil, domain=evil, **{evil: 1}), imports=(("", 18), (evil, 1)))
    lines = report_lines(checked(made, "10.8", *PLUGINS))
    assert len(lines) > 1
    from deployops.symbolic.shown_text import printable

    assert all(printable(line).isprintable() for line in lines)  # as `deployops inspect` prints them


def test_a_hundred_thousand_nodes_take_seconds() -> None:
    nodes = [helper.make_node("Relu", [f"v{k}"], [f"v{k + 1}"]) for k in range(90_000)]
    nodes += [node("Blur", (f"v{k}",), (f"v{k + 1}",), **STATED) for k in range(90_000, 100_000)]
    for made in nodes[90_000:]:
        made.name = ""
    made = model(*nodes, inputs=[value("v0")], outputs=[value("v100000")])
    start = time.process_time()
    found = checked(made, "10.8", *PLUGINS)
    assert time.process_time() - start < 15
    assert found.operators[0].plugins == 10_000


def test_equal_nodes_with_many_plugins_stay_quick() -> None:
    """The nearest name is looked for once for each name, not for each node."""
    many = [{"name": f"Plugin{k}"} for k in range(3_000)]
    nodes = [helper.make_node("Plugim1", [f"v{k}"], [f"v{k + 1}"], domain="acme") for k in range(2_000)]
    made = model(*nodes, inputs=[value("v0")], outputs=[value("v2000")])
    start = time.process_time()
    found = checked(made, "10.8", *many)
    assert time.process_time() - start < 5
    assert {f.kind for f in found.findings} == {"plugin-name"}
    assert "Plugin" in found.findings[0].what
