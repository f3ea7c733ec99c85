"""What makes `inspect --tensorrt` fail has its reason in `engine build` too, in the same words; no reason is empty."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from deployops.errors import DeployOpsError
from deployops.trt_plugins.engines.build import build_engine
from deployops.trt_plugins.engines.child import WorkerEnd
from deployops.trt_plugins.engines.flavor import TensorRT, find_tensorrt
from deployops.trt_plugins.engines.inspected import inspected
from deployops.trt_plugins.engines.messages import explain_end
from deployops.trt_plugins.engines.source_model import read_source_model
from deployops.trt_plugins.inspection import check_model, limits_for
from deployops.trt_plugins.library import PluginLibrary
from deployops.trt_plugins.library_manifest import PluginManifest, read_plugins

from ...packages import TENSORRT_RTX
from ..inspection.parser_models import MODELS, model, node, value
from ..inspection.test_against_parser import nested

F32 = TensorProto.FLOAT
VERSION = TENSORRT_RTX.partition("==")[2]
# Told in words of its own, with the plugins and versions that TensorRT's registry has.
BY_LOOKUP = {"no-plugin", "plugin-name", "plugin-version", "plugin-namespace", "operator-missing"}


def refusal(proto: onnx.ModelProto, folder: Path, plugins: tuple[Path, ...] = ()) -> str:
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(DeployOpsError) as caught:
        build_engine(path, out=folder / "m.engine", flavor="tensorrt-rtx", plugins=plugins)
    assert not (folder / "m.engine").exists()
    return str(caught.value)


def expect_reasons(proto: onnx.ModelProto, text: str, manifests: tuple[PluginManifest, ...] = ()) -> None:
    """All that inspection says would fail is in an error, but for plugins that are not found."""
    found = check_model(proto, limits_for("tensorrt-rtx", VERSION), manifests).findings
    failing = [f for f in found if f.severity == "would fail"]
    assert failing
    for finding in failing:
        assert finding.kind in BY_LOOKUP or finding.what in text, text
    assert not [line for line in text.splitlines() if re.search(r"\): *$", line)], "a node without a reason"


REFUSED = [
    name
    for name, (_, _, kinds) in MODELS.items()
    if kinds
    & {
        "standard-name", "body-of-another", "body-overloads", "body-inputs", "absent-input", "uint8-inside", "unknown-type",
        "operator-missing", "value-twice", "input-not-made", "output-not-made", "cycle",
    }
]  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_inspection_says_would_fail_is_the_reason_of_a_build(
    rtx: Path, tmp_path: Path, name: str
) -> None:
    made = MODELS[name][0]
    expect_reasons(made, refusal(made, tmp_path))


def test_graphs_inside_of_too_many_are_told(rtx: Path, tmp_path: Path) -> None:
    expect_reasons(nested(25), refusal(nested(25), tmp_path))


@pytest.mark.parametrize(
    "op", ["Attention", "Conv", "LSTM", "Resize", "If", "Einsum", "NonZero", "TopK", "Clip", "Swish", "Relu"]
)
def test_a_node_that_shadows_a_standard_operator_is_explained_whatever_the_parser_says(
    rtx: Path, tmp_path: Path, op: str
) -> None:
    """The parser says nothing of the first four, and something about attributes or inputs of others."""
    made = model(node(op, ("x", "x")))
    text = refusal(made, tmp_path)
    assert f"acme::{op} is taken for the standard operator {op}" in text
    assert "Give the operator another ONNX name" in text
    expect_reasons(made, text)


@pytest.mark.parametrize("op", ["Conv", "Attention", "LSTM"])
def test_of_a_standard_node_that_the_parser_refuses_without_a_word_onnx_s_checker_is_asked(
    rtx: Path, tmp_path: Path, op: str
) -> None:
    made = model(helper.make_node(op, ["x"], ["y"], name="short"), imports=(("", 23),))
    text = refusal(made, tmp_path)
    assert f"node 'short' ({op}): " in text
    assert "does not say why; ONNX's checker does: Node(short)" in text
    assert "input size 1" in text


@pytest.mark.parametrize(
    ("inputs", "dtype"),
    [(("x",), TensorProto.INT32), (("x", "x"), F32)],
    ids=["a type without a kernel", "an input too many"],
)
def test_what_inspection_says_of_a_plugin_s_node_is_told_too(
    rtx: Path, tmp_path: Path, engine_library: PluginLibrary, inputs: tuple[str, ...], dtype: int
) -> None:
    scaled = helper.make_node("Scaled", inputs, ["y"], name="odd", domain="enginepack", factor=2.0)
    made = model(
        scaled,
        inputs=[value("x", dtype)],
        outputs=[value("y", dtype)],
        imports=(("", 18), ("enginepack", 1)),
    )
    library = Path(engine_library.path)
    expect_reasons(made, refusal(made, tmp_path, (library,)), (read_plugins(library),))


def test_operators_that_both_mean_alike_are_no_fault_of_either(rtx: Path, tmp_path: Path) -> None:
    """com.microsoft::Gelu is ONNX's; com.microsoft::RotaryEmbedding is another than ONNX's."""

    def kinds(op: str) -> set[str]:
        made = model(node(op, domain="com.microsoft"), imports=(("", 20), ("com.microsoft", 1)))
        return {f.kind for f in check_model(made, limits_for("tensorrt-rtx", VERSION)).findings}

    assert kinds("RotaryEmbedding") == {"standard-name"}
    assert kinds("Gelu") == set()


def test_every_finding_that_fails_is_refused_or_told_beside_a_refusal(rtx: Path) -> None:
    """None is left out between what a build refuses itself and what it adds to TensorRT's words."""
    installed = find_tensorrt("tensorrt-rtx")
    for name, (made, _, _) in MODELS.items():
        known = inspected(made, installed, ())
        found: Any = check_model(made, limits_for("tensorrt-rtx", VERSION), (), archs=[80]).findings
        failing = [f for f in found if f.severity == "would fail"]
        assert sorted(map(str, (*known.silent, *known.refused))) == sorted(map(str, failing)), name


def test_what_only_the_parser_knows_to_be_its_own_is_told_in_the_same_words(tmp_path: Path) -> None:
    """Of a TensorRT whose operators are not in the table, the parser itself is asked."""
    path = tmp_path / "m.onnx"
    path.write_bytes(model(node("Relu"), node("Relu", domain="")).SerializeToString())
    end = WorkerEnd(outcome="refused", details={"reason": "taken", "types": ["Relu"]})
    newer = TensorRT("tensorrt", "tensorrt", "99.1", tmp_path)
    text = explain_end(end, read_source_model(path), newer)
    assert text.count("acme::Relu is taken for the standard operator Relu") == 1
    assert text.count("is taken for") == 1  # ONNX's own Relu is what it says
    assert text.endswith(
        "Give the operator another ONNX name (`onnx=` in its declaration), and export the model again"
    )
