"""Attributes of a plugin's node that refer to those of the function around it: judged by what each call gives."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper

from deployops.trt_plugins.inspection import check_model, limits_for
from deployops.trt_plugins.inspection.tensorrt_limits import TensorRTLimits

from .conftest import Parse, plugins
from .parser_models import PLUGINS, STATED, model, value

IMPORTS = (("", 18), ("acme", 1), ("f", 1))
REST = {k: v for k, v in STATED.items() if k != "radius"}


def reference(name: str, to: str, kind: int = AttributeProto.INT) -> onnx.AttributeProto:
    return AttributeProto(name=name, ref_attr_name=to, type=kind)  # type: ignore[arg-type]


def referring(kind: int = AttributeProto.INT, to: str = "r", source: str = "a") -> onnx.NodeProto:
    made = helper.make_node("Blur", [source], ["b"], domain="acme", name="blur", **REST)
    made.attribute.append(reference("radius", to, kind))
    return made


def function(
    name: str, nodes: Sequence[onnx.NodeProto], names: Sequence[str] = ("r",), **defaults: Any
) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1), helper.make_opsetid("f", 1)]
    own = [helper.make_attribute(k, v) for k, v in defaults.items()]
    return helper.make_function("f", name, ["a"], ["b"], list(nodes), opsets, list(names), own)


def call(name: str = "F", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(name, ["x"], ["y"], domain="f", name=f"call_{name}", **attributes)


def calling(*functions: onnx.FunctionProto, **attributes: Any) -> onnx.ModelProto:
    return model(call(functions[-1].name, **attributes), functions=functions, imports=IMPORTS)


def passing_on(inner: str, to: str, **attributes: Any) -> onnx.NodeProto:
    made = helper.make_node(inner, ["a"], ["b"], domain="f", name=f"call_{inner}", **attributes)
    made.attribute.append(reference("r", to))
    return made


def inside_of_a_branch() -> onnx.ModelProto:
    then = helper.make_graph([referring()], "t", [], [value("b")])
    other = helper.make_graph([helper.make_node("Relu", ["a"], ["e"])], "e", [], [value("e")])
    yes = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", TensorProto.BOOL, [], [True]))
    both = helper.make_node("If", ["c"], ["b"], name="if", then_branch=then, else_branch=other)
    return calling(function("F", [yes, both]), r=3.0)


def alone() -> onnx.ModelProto:
    made = helper.make_node("Blur", ["x"], ["y"], domain="acme", name="blur", **REST)
    made.attribute.append(reference("radius", "r"))
    return model(made)


INNER = function("F", [referring()])
PLACE = "'blur' in function f::F, called by 'call_F'"
WITHIN = f"{PLACE} in function f::G, called by 'call_G'"
# name -> model, the radius that the plugin gets from TensorRT-RTX 1.7's parser, kinds of findings and their places
MODELS: dict[str, tuple[onnx.ModelProto, list[int], dict[str, str]]] = {
    "as it is": (calling(INNER, r=3), [3], {}),
    "a default": (calling(function("F", [referring()], (), r=5)), [5], {}),
    "over the default": (calling(function("F", [referring()], (), r=5), r=7), [7], {}),
    "given inside": (
        calling(INNER, function("G", [helper.make_node("F", ["a"], ["b"], domain="f", r=4)], ())), [4], {},
    ),
    "FLOAT for INT": (calling(INNER, r=3.0), [0], {"attribute-type": PLACE}),
    "STRING for INT": (calling(INNER, r="three"), [0], {"attribute-type": PLACE}),
    "INTS for INT": (calling(INNER, r=[3]), [0], {"attribute-type": PLACE}),
    "INT for INTS": (calling(function("F", [referring(AttributeProto.INTS)]), r=3), [], {"attribute-type": PLACE}),
    "a default of another type": (
        calling(function("F", [referring()], (), r=5.0)), [0], {"attribute-type": PLACE},
    ),
    "beyond 32 bits": (calling(INNER, r=2**40), [0], {"attribute-range": PLACE}),
    "a default beyond 32 bits": (
        calling(function("F", [referring()], (), r=2**40)), [0], {"attribute-range": PLACE},
    ),
    "absent": (calling(INNER), [0], {"attribute-missing": PLACE}),
    "passed on": (
        calling(INNER, function("G", [passing_on("F", "q")], ("q",)), q=3), [0], {"attribute-reference": WITHIN},
    ),
    "only at the outer call": (
        calling(INNER, function("G", [helper.make_node("F", ["a"], ["b"], domain="f", name="call_F")]), r=4), [0],
        {"attribute-missing": WITHIN},
    ),
    "in a branch": (inside_of_a_branch(), [0], {"attribute-type": PLACE}),
    "in no function": (alone(), [0], {"attribute-reference": "'blur'"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def rtx() -> TensorRTLimits:
    return limits_for("tensorrt-rtx", "1.7")


@pytest.mark.parametrize("name", MODELS)
def test_what_a_call_gives_is_judged_at_the_node_that_reads_it(name: str, rtx: TensorRTLimits) -> None:
    made, _, expected = MODELS[name]
    found = check_model(made, rtx, plugins(*PLUGINS))
    assert {f.kind: f.where for f in found.findings} == expected
    assert {f.severity for f in found.findings} == ({"would fail"} if expected else set())


def test_the_parser_gives_the_plugin_what_inspection_says(parse: Parse) -> None:
    """Where nothing is found it gets what the model says; where something is, zero or nothing, without a word."""
    parsed = parse({name: made for name, (made, _, _) in MODELS.items()})
    assert {name: found["fields"].get("radius") for name, found in parsed.items()} == {
        name: ["INT32", *radius] for name, (_, radius, _) in MODELS.items()
    }


def test_each_call_is_judged_for_itself(rtx: TensorRTLimits) -> None:
    calls = [
        helper.make_node("F", [source], [made], domain="f", name=name, **given)
        for source, made, name, given in (
            ("x", "p", "good", {"r": 3}),
            ("p", "q", "wrong", {"r": 3.0}),
            ("q", "y", "none", {}),
        )
    ]
    made = model(*calls, functions=[INNER], imports=IMPORTS)
    found = check_model(made, rtx, plugins(*PLUGINS)).findings
    assert {(f.kind, f.where.rpartition(", ")[2]) for f in found} == {
        ("attribute-type", "called by 'wrong'"),
        ("attribute-missing", "called by 'none'"),
    }


def test_a_standard_operator_reads_zero_too(rtx: TensorRTLimits) -> None:
    # ONNX leaves an attribute out whose function is not given it: alpha is then 0.01
    leaky = helper.make_node("LeakyRelu", ["a"], ["b"], name="leaky")
    leaky.attribute.append(reference("alpha", "r", AttributeProto.FLOAT))
    [finding] = check_model(calling(function("F", [leaky])), rtx).findings
    assert (finding.kind, finding.where) == (
        "attribute-missing", "'leaky' in function f::F, called by 'call_F'",
    )  # fmt: skip
    assert "0.0" in finding.what
    assert not check_model(calling(function("F", [leaky]), r=0.5), rtx).findings


def test_a_function_in_whose_place_a_plugin_runs_is_not_read(rtx: TensorRTLimits) -> None:
    own = function("F", [referring()])
    made = calling(own)
    described = {"name": "F", "version": "1", "namespace": "f", "fields": {}}
    made.graph.node[0].attribute.append(helper.make_attribute("plugin_namespace", "f"))
    assert not check_model(made, rtx, plugins(*PLUGINS, described)).findings


def test_plugins_that_nothing_describes_are_given_int32_all_the_same(rtx: TensorRTLimits) -> None:
    kinds = {f.kind for f in check_model(calling(INNER, r=2**40), rtx).findings}
    assert "attribute-range" in kinds


def test_functions_that_call_each_other_in_every_way_are_read_within_bounds(rtx: TensorRTLimits) -> None:
    levels = [function("F0", [referring()])]
    for k in range(1, 30):
        calls = [
            helper.make_node(f"F{k - 1}", [a], [b], domain="f", name=a, r=n)
            for a, b, n in (("a", "m", 1), ("m", "b", 2))
        ]
        levels.append(function(f"F{k}", calls, ()))
    start = time.perf_counter()
    check_model(calling(*levels), rtx, plugins(*PLUGINS))
    assert time.perf_counter() - start < 20
