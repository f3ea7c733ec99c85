"""Custom operators in a cast model follow their plugins' dtypes, and a body in the file still computes the same."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, numpy_helper, parser

from deployops.errors import UsageError
from deployops.trt_plugins.engines.casting.cast_model import CastModel, cast_model
from deployops.trt_plugins.engines.casting.plugin_dtypes import PluginDtypes, plugin_dtypes

RNG = np.random.default_rng(8)
KEY = ("acme", "Scale")


def manifest(*dtypes: str, inputs: tuple[str, ...] = ("x",), gain: str = "") -> dict[str, Any]:
    """As `trt_plugins.manifest` writes it, for an operator with one output of the dtype of `x`."""
    rows = [
        {"inputs": dict.fromkeys(inputs, d) | ({"gain": gain} if gain else {}), "outputs": {"y": d}}
        for d in dtypes
    ]
    names = [*inputs, *(["gain"] if gain else [])]
    entry = {
        "plugin_namespace": "acme",
        "plugin_name": "Scale",
        "inputs": [{"name": n, "form": "single"} for n in names],
        "outputs": ["y"],
        "signatures": rows,
    }
    return {"plugins": [entry]}


def model(calls: str, body: str = "", inputs: str = "float[n,4] x", opset: int = 18) -> onnx.ModelProto:
    function = f'<domain: "acme", opset_import: ["": {opset}]> Scale {body}' if body else ""
    made = parser.parse_model(
        f'<ir_version: 9, opset_import: ["": {opset}, "acme": 1]>\ng ({inputs}) => (float[n,4] y) {{ {calls} }}\n{function}'
    )
    weight = (RNG.standard_normal((4, 4)) * 0.4).astype(np.float32)
    made.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return made


CALLS = "h = MatMul(x, w)  s = acme.Scale(h)  y = MatMul(s, w)"
BODY = "(a) => (b) { two = Constant<value = float {2.5}>()  t = Mul(a, two)  b = Tanh(t) }"


def cast_with(made: onnx.ModelProto, given: dict[str, Any] | None, precision: Any = "fp16") -> CastModel:
    return cast_model(made, precision, plugins=plugin_dtypes([given]) if given else None)


def types_at(made: onnx.ModelProto, operator: str = "Scale") -> list[int]:
    """Of the inputs and outputs of the custom node, by the casts and products around it: no schema knows the node."""
    known = {t.name: t.data_type for t in made.graph.initializer}
    known |= {v.name: v.type.tensor_type.elem_type for v in made.graph.input}
    for node in made.graph.node:
        if node.op_type == "Cast":
            known[node.output[0]] = node.attribute[0].i
        elif node.op_type == "MatMul":
            known[node.output[0]] = known[node.input[1]]
    [node] = [n for n in made.graph.node if n.op_type == operator]
    return [known[name] for name in node.input]


def run(made: onnx.ModelProto, x: Any) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(made.SerializeToString(), options).run(None, {"x": x})[0]


def test_a_plugin_with_a_kernel_for_the_type_gets_it() -> None:
    cast = cast_with(model(CALLS), manifest("float32", "float16"))
    assert types_at(cast.model) == [TensorProto.FLOAT16]
    assert not cast.kept
    [last] = [n for n in cast.model.graph.node if "s" in n.input]
    assert last.op_type == "MatMul", "no cast after it: what it makes is float16 too"


def test_a_plugin_without_one_stays_float32_between_casts() -> None:
    cast = cast_with(model(CALLS), manifest("float32", "float16"), "bf16")
    assert types_at(cast.model) == [TensorProto.FLOAT]
    [kept] = cast.kept
    assert (kept.operator, kept.reason) == ("acme::Scale", "its plugin takes no bfloat16 here")
    [after] = [n for n in cast.model.graph.node if "s" in n.input]
    assert (after.op_type, after.attribute[0].i) == ("Cast", TensorProto.BFLOAT16)


def test_an_operator_without_a_plugin_stays_and_so_does_what_it_makes() -> None:
    cast = cast_with(model(CALLS), None)
    assert types_at(cast.model) == [TensorProto.FLOAT]
    reasons = {k.operator: k.reason for k in cast.kept}
    assert "no plugin library was given" in reasons["acme::Scale"]
    assert reasons["MatMul"] == "the type of its input s is not known"


def test_an_input_that_is_float32_in_every_row_stays() -> None:
    calls = "h = MatMul(x, w)  s = acme.Scale(h, w)  y = MatMul(s, w)"
    cast = cast_with(model(calls), manifest("float32", "float16", gain="float32"))
    assert types_at(cast.model) == [TensorProto.FLOAT16, TensorProto.FLOAT]


@pytest.mark.parametrize(("dtypes", "rows"), [(("float32", "float16"), 10), (("float32",), 1)])
def test_the_body_computes_the_same(dtypes: tuple[str, ...], rows: int) -> None:
    made = model(CALLS, BODY)
    cast = cast_with(made, manifest(*dtypes))
    onnx.checker.check_model(cast.model, full_check=True)
    [function] = cast.model.functions
    assert (function.domain, function.name, list(function.input), list(function.output)) == (
        *KEY,
        ["a"],
        ["b"],
    )
    assert types_at(cast.model) == [rows]
    x = RNG.standard_normal((5, 4)).astype(np.float32)
    was, now = run(made, x), run(cast.model, x)
    assert 0 < np.abs(was - now).max() < 4e-3 * np.abs(was).max()


def test_a_body_serves_nodes_of_both_types() -> None:
    made = model("h = MatMul(x, w)  s = acme.Scale(h)  y = acme.Scale(s)", BODY)
    made.graph.node[2].name = "last"
    cast = cast_model(made, "fp16", keep=["last"], plugins=plugin_dtypes([manifest("float32", "float16")]))
    onnx.checker.check_model(cast.model, full_check=True)
    x = RNG.standard_normal((5, 4)).astype(np.float32)
    assert np.abs(run(made, x) - run(cast.model, x)).max() < 4e-3


def test_a_body_that_cannot_be_cast_keeps_its_nodes() -> None:
    made = model("y = acme.Scale(x)", "(a) => (b) { b = Tanh(a) }", opset=13)
    [kept] = cast_with(made, manifest("float32", "float16")).kept
    assert kept.reason == "its body in the file cannot be cast"


def test_inputs_of_a_list_and_after_it() -> None:
    plugin = PluginDtypes(("first", "many", "last"), 1, ("y",), ())
    assert [plugin.name_of(k, 5) for k in range(6)] == ["first", "many", "many", "many", "last", ""]
    assert [plugin.name_of(k, 2) for k in range(2)] == ["first", "last"]


@pytest.mark.parametrize("damaged", [{}, {"plugins": 3}, {"plugins": [{}]}, {"plugins": [{"inputs": [1]}]}])
def test_a_manifest_of_another_form_is_refused(damaged: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="compile the library again"):
        plugin_dtypes([damaged])


def test_the_manifest_that_compiling_writes_is_understood(pack_library: Any) -> None:
    """Of a real library: the dtypes that the operators declare."""
    found = plugin_dtypes([json.loads(pack_library.manifest.read_text())])
    assert found
    assert all(plugin.rows for plugin in found.values())
    kinds = {dtype for plugin in found.values() for row in plugin.rows for dtype in row[0].values()}
    assert {"float32", "float16"} <= kinds


def test_a_plugin_whose_data_decides_how_many_stays_float32() -> None:
    given = manifest("float32", "float16")
    assert "data decides" not in str(cast_with(model(CALLS), given).kept)
    given["plugins"][0]["data_sizes"] = ["y_size"]
    cast = cast_with(model(CALLS), given)
    assert {k.operator: k.reason for k in cast.kept} == {
        "acme::Scale": "the data decides how many values come out: rounded, it may select others"
    }
    assert cast.narrow_nodes == 2


def test_values_beyond_the_range_are_not_given_to_a_narrow_plugin() -> None:
    made = model("f = Add(x, low)  h = Transpose(f)  t = Transpose(h)  s = acme.Scale(t)  y = MatMul(s, w)")
    made.graph.initializer.append(numpy_helper.from_array(np.float32(-3e38), "low"))
    cast = cast_with(made, manifest("float32", "float16"))
    assert "beyond the range" in {k.operator: k.reason for k in cast.kept}["acme::Scale"]
