"""The verdict of inspection is that of TensorRT-RTX 1.7's own parser, for models of every kind; no GPU is needed."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from deployops.trt_plugins.inspection import check_model, limits_for
from deployops.trt_plugins.inspection.tensorrt_limits import TensorRTLimits

from .conftest import Parse, plugins
from .parser_models import MODELS, PLUGINS, body, model, node, value

# What the parser takes without a word, and makes into something else than the model says.
TAKEN_WRONGLY = {
    "attribute-type",
    "attribute-range",
    "attribute-unknown",
    "standard-name",
    "body-of-another",
    "body-overloads",
    "rank-unknown",
}


@pytest.fixture(scope="module")
def rtx() -> TensorRTLimits:
    return limits_for("tensorrt-rtx", "1.7")


@pytest.fixture(scope="module")
def parsed(parse: Parse) -> dict[str, Any]:
    return parse({name: made for name, (made, _, _) in MODELS.items()})


@pytest.mark.parametrize("name", MODELS)
def test_inspection_says_what_the_parser_does(name: str, parsed: dict[str, Any], rtx: TensorRTLimits) -> None:
    made, layers, kinds = MODELS[name]
    assert parsed[name]["layers"] == layers
    checked = check_model(made, rtx, plugins(*PLUGINS))
    assert {f.kind for f in checked.findings} == kinds
    failing = {f.kind for f in checked.findings if f.severity == "would fail"}
    if layers is None:
        assert failing
    else:
        assert failing <= TAKEN_WRONGLY


def test_the_plugin_gets_what_inspection_says_it_gets(parsed: dict[str, Any]) -> None:
    assert parsed["beyond 32 bits"]["fields"]["radius"] == ["INT32", 0]
    assert parsed["float for integer"]["fields"]["radius"] == ["FLOAT32", 3.0]
    assert "foo" not in parsed["undeclared attribute"]["fields"]
    assert "sizes" not in parsed["a default is taken"]["fields"]
    assert parsed["rank unknown"]["inputs"] == [[]]  # a single number


def test_the_second_of_two_bodies_is_never_run(parsed: dict[str, Any]) -> None:
    # Neg is UNARY, Relu is ACTIVATION; the node asks for the body with Relu
    assert parsed["second of two bodies"]["layers"] == parsed["first of two bodies"]["layers"] == ["UNARY"]


def test_a_function_that_calls_itself_ends_the_process(parse: Parse, rtx: TensorRTLimits) -> None:
    endless = body("Nope", "Neg")
    endless.node[0].CopyFrom(helper.make_node("Nope", ["a"], ["b"], domain="acme"))
    made = model(node("Nope"), functions=[endless])
    [finding] = [f for f in check_model(made, rtx).findings if f.kind == "function-recursive"]
    assert finding.severity == "would fail"
    assert parse({"endless": made}) == {"signal": 11}


def test_what_the_table_says_of_rtx_is_what_its_parser_says(parse: Parse, rtx: TensorRTLimits) -> None:
    """Operators by the parser's own check, not by the way in which the table was made."""
    names = ["Relu", "Attention", "Det", "Unique", "StringSplit", "Swish", "DeformConv"]
    made = {
        n: model(helper.make_node(n, ["x"], ["y"]), imports=(("", 24),))
        for n in names
        if n not in rtx.operators
    }
    assert set(made) == {"Det", "Unique", "StringSplit", "DeformConv"}
    assert {name: found["layers"] for name, found in parse(made).items()} == dict.fromkeys(made)


def nested(levels: int) -> onnx.ModelProto:
    """An If inside of an If, and so on, with a Relu in the innermost branch."""
    flat = [helper.make_node("Relu", ["x"], ["y"])]
    nodes = flat
    for _ in range(levels):
        inner, other = (helper.make_graph(n, "s", [], [value("y")]) for n in (nodes, flat))
        nodes = [helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=other)]
    return model(*nodes, inputs=[value("x"), value("c", TensorProto.BOOL, ())])


def test_graphs_inside_of_graphs_go_as_deep_as_the_parser_takes_them(
    parse: Parse, rtx: TensorRTLimits
) -> None:
    made = {str(levels): nested(levels) for levels in (1, 24, 25)}
    taken = {name: found["layers"] is not None for name, found in parse(made).items()}
    assert taken == {"1": True, "24": True, "25": False}
    for name, proto in made.items():
        kinds = {f.kind for f in check_model(proto, rtx).findings if f.severity == "would fail"}
        assert kinds == (set() if taken[name] else {"too-deep"})
