"""Case 16: a node that does not find its plugin is told why before anything is built: name, version, namespace, built-in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from deployops import inspect_model

# The case's own list of plugins, as its file has it.
REGISTRY = [{"name": "AcmeBlur", "version": "2", "namespace": "acme", "fields": {"radius": "int32"}}]
TENSORRT = "10.8"


def saved(folder: Path, op: str = "AcmeBlur", domain: str = "acme", **attributes: Any) -> Path:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3, 8, 8]) for n in ("x", "y"))
    inputs = ["x"] * 2 if op == "Gemm" else ["x"]
    node = helper.make_node(op, inputs, ["y"], domain=domain, **attributes)
    opsets = [helper.make_opsetid("", 18)] + [helper.make_opsetid(domain, 1)] * bool(domain)
    made = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets, ir_version=9)
    onnx.save(made, folder / "model.onnx")
    (folder / "plugin_registry.json").write_text(json.dumps(REGISTRY))
    return folder / "model.onnx"


def kinds(model: Path, tensorrt: str = TENSORRT) -> dict[str, str]:
    """What would fail: kind -> what."""
    found = inspect_model(model, tensorrt=tensorrt, plugins=[model.with_name("plugin_registry.json")])
    assert found.tensorrt is not None
    assert found.exit_code == int(found.tensorrt.verdict == "would fail")
    return {f.kind: f.what for f in found.tensorrt.findings if f.severity == "would fail"}


def test_the_right_node_is_found(tmp_path: Path) -> None:
    assert not kinds(saved(tmp_path, radius=3, plugin_version="2", plugin_namespace="acme"))


@pytest.mark.parametrize(
    ("node", "kind", "said"),
    [
        (
            {"radius": 3, "plugin_version": 2, "plugin_namespace": "acme"},
            "plugin-version",
            "plugin_version of AcmeBlur is INT; TensorRT reads a STRING",
        ),
        (
            {"radius": 3, "plugin_namespace": "acme"},
            "plugin-version",
            "version '1', which TensorRT takes by default",
        ),
        (
            {"radius": 3, "plugin_version": "2"},
            "plugin-namespace",
            "looked for in the namespace ''; the plugin's is 'acme'",
        ),
        (
            {"op": "AcmeBlurDynamic", "radius": 3, "plugin_version": "2", "plugin_namespace": "acme"},
            "plugin-name",
            "no plugin is named 'AcmeBlurDynamic'; the nearest is AcmeBlur",
        ),
        (
            {"op": "Gemm", "domain": "", "plugin_version": "2", "plugin_namespace": "acme"},
            "standard-name",
            "Gemm is taken for the standard operator Gemm",
        ),
    ],
    ids=["version_as_int", "version_defaulted", "namespace_missing", "name_misspelt", "shadowed_by_builtin"],
)
def test_the_five_others_get_their_own_reason(
    tmp_path: Path, node: dict[str, Any], kind: str, said: str
) -> None:
    found = kinds(saved(tmp_path, **node))
    assert list(found) == [kind]
    assert said in found[kind]


def test_since_10_10_the_domain_is_looked_at_too(tmp_path: Path) -> None:
    model = saved(tmp_path, radius=3, plugin_version="2")
    assert "plugin-namespace" in kinds(model, "10.9")
    assert not kinds(model, "10.10")
