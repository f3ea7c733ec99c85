"""Case 17: attributes that the plugin would read as something else, or not at all, are named with both types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from deployops import inspect_model

# The case's own fields, as its file has them.
FIELDS = {"axis": ["INT", 1], "alpha": ["FLOAT", 1], "sizes": ["INTS", None], "mode": ["STRING", 1]}
GOOD: dict[str, Any] = {"axis": 1, "alpha": 0.5, "sizes": [2, 4], "mode": "full"}


def findings(folder: Path, **attributes: Any) -> list[tuple[str, str, str]]:
    """Severity, kind and what."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 4]) for n in ("x", "y"))
    node = helper.make_node("AcmePool", ["x"], ["y"], domain="acme", plugin_namespace="acme", **attributes)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    made = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets, ir_version=9)
    onnx.save(made, folder / "model.onnx")
    plugin = {"name": "AcmePool", "namespace": "acme", "fields": FIELDS}
    (folder / "plugins.json").write_text(json.dumps([plugin]))
    found = inspect_model(folder / "model.onnx", tensorrt="10.8", plugins=[folder / "plugins.json"])
    assert found.tensorrt is not None
    return [(f.severity, f.kind, f.what) for f in found.tensorrt.findings]


def test_the_match(tmp_path: Path) -> None:
    assert findings(tmp_path, **GOOD) == []


@pytest.mark.parametrize(
    ("attributes", "severity", "kind", "said"),
    [
        (
            {**GOOD, "axis": 1.0},
            "would fail",
            "attribute-type",
            "'axis' of acme::AcmePool is FLOAT; the plugin's field is INT",
        ),
        (
            {**GOOD, "alpha": 1},
            "would fail",
            "attribute-type",
            "'alpha' of acme::AcmePool is INT; the plugin's field is FLOAT",
        ),
        # TensorRT tells a list of one from a single value not: the plugin works, other runtimes refuse the node.
        (
            {**GOOD, "axis": [1]},
            "hurts",
            "attribute-type",
            "'axis' of acme::AcmePool is INTS; the plugin's field is INT",
        ),
        (
            {**GOOD, "sizes": 2},
            "hurts",
            "attribute-type",
            "'sizes' of acme::AcmePool is INT; the plugin's field is INTS",
        ),
        (
            {k: v for k, v in GOOD.items() if k != "alpha"},
            "would fail",
            "attribute-missing",
            "lacks the attribute 'alpha' (FLOAT)",
        ),
        (
            {**GOOD, "type_id": 0},
            "would fail",
            "attribute-unknown",
            "'type_id', which the plugin does not know",
        ),
        (
            {**GOOD, "axis": 2**40},
            "would fail",
            "attribute-range",
            "'axis' of acme::AcmePool is 1099511627776",
        ),
    ],
    ids=[
        "axis_float",
        "alpha_int",
        "axis_list",
        "sizes_scalar",
        "alpha_missing",
        "extra_attr",
        "axis_beyond_int32",
    ],
)
def test_the_seven_mismatches(
    tmp_path: Path, attributes: dict[str, Any], severity: str, kind: str, said: str
) -> None:
    [found] = findings(tmp_path, **attributes)
    assert found[:2] == (severity, kind)
    assert said in found[2]


def test_a_list_of_two_is_no_single_value(tmp_path: Path) -> None:
    [found] = findings(tmp_path, **{**GOOD, "axis": [1, 2]})
    assert found[:2] == ("would fail", "attribute-type")
