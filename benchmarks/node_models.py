"""Models of one node for every version of every standard operator, made from the schemas of the `onnx` package.

Inputs have a type, and sizes only where nothing opens without; optional inputs are left out; required attributes get a
value that every kernel takes.
Which element types a runtime has a kernel for is learned by opening the models: see `measure_runtime_limits.py`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import TensorProto, helper
from onnx.defs import OpSchema

__all__ = ["Question", "op_versions", "questions", "trials"]

# Element types for the inputs that are not the one asked about, the likeliest first.
_LIKELY = ("float", "int64", "int32", "bool", "uint8", "float16", "double", "int8", "string")
_MOST_TRIALS = 16

_ATTRIBUTES: Mapping[str, Any] = {
    "axes": [0], "axis": 0, "blocksize": 1, "consumed_inputs": [0, 0, 0, 1, 1], "direction": "LEFT", "ends": [1],
    "equation": "i->i", "height_scale": 1.0, "k": 1, "kernel_shape": [1, 1], "kv_num_heads": 1, "max_gram_length": 1,
    "max_skip_count": 0, "min_gram_length": 1, "mode": "TF", "ngram_counts": [0], "ngram_indexes": [0], "num_groups": 1,
    "num_scan_inputs": 1, "paddings": [0, 0], "pads": [0, 0], "pooled_shape": [1, 1], "q_num_heads": 1, "scales": [1.0],
    "shape": [1], "size": 1, "starts": [0], "to": TensorProto.FLOAT, "width_scale": 1.0,
}  # fmt: skip
# What the schema calls optional and the runtime wants all the same.
_WANTED_ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    "GRU": {"hidden_size": 1}, "LSTM": {"hidden_size": 1}, "RNN": {"hidden_size": 1}, "Reshape": {"shape": [1]},
    "RegexFullMatch": {"pattern": "a"},
}  # fmt: skip
_WANTED_INPUTS: Mapping[str, int] = {"LinearAttention": 6, "Resize": 3, "Upsample": 2}
# Operators whose node holds a graph, and those that make something of nothing.
_LEFT_OUT = {"Constant", "RandomNormal", "RandomUniform", "If", "SequenceMap"}


@dataclass(frozen=True, slots=True)
class Question:
    """Does the operator, in a model of that opset, run with that element type at that place?

    `place`: the index of the first input that has the type variable, or "to" for the type that Cast makes.
    `dtype`: as in `tensor(...)`.
    """

    op: str
    opset: int
    place: str
    dtype: str


def op_versions(newest: int) -> dict[str, list[tuple[int, int]]]:
    """Each standard operator -> the ranges of opsets in which its schema is the same; deprecated ones left out."""
    since: dict[str, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.since_version <= newest:
            since.setdefault(schema.name, []).append(schema.since_version)
    found = {}
    for name, starts in sorted(since.items()):
        starts.sort()
        ranges = list(zip(starts, [*(s - 1 for s in starts[1:]), newest], strict=True))
        found[name] = [r for r in ranges if not onnx.defs.get_schema(name, r[0]).deprecated]
    return found


def questions(op: str, opset: int) -> Iterator[Question]:
    """What can be asked of an operator in models of an opset: every element type of every type variable."""
    schema = onnx.defs.get_schema(op, opset)
    if op in _LEFT_OUT or (op == "Cast" and opset < 6):
        return
    for variable, place in _variables(schema).items():
        kinds = _allowed(schema, variable)
        tensors = [k for k in kinds if k.startswith("tensor(")]
        for kind in tensors or [k for k in kinds if k.startswith("seq(")]:
            yield Question(op, opset, str(place), _element(kind))
    if op == "Cast":
        for kind in _allowed(schema, "T2"):
            yield Question(op, opset, "to", _element(kind))


def trials(question: Question, ir_version: int) -> Iterator[bytes]:
    """Models with the node, one for each likely choice of the other inputs' types. One that opens answers yes."""
    schema = onnx.defs.get_schema(question.op, question.opset)
    variables = _variables(schema)
    choices = []
    for variable, place in variables.items():
        allowed = _allowed(schema, variable)
        if str(place) == question.place:
            choices.append([k for k in allowed if _element(k) == question.dtype][:1])
        else:
            likely = [k for d in (*_LIKELY, question.dtype) for k in allowed if _element(k) == d]
            choices.append(likely or list(allowed[:4]))
    combinations = list(itertools.islice(itertools.product(*choices), _MOST_TRIALS))
    # a body that is written for the node at hand may ask for the sizes of its inputs
    ranks = (None, *range(5)) if schema.has_context_dependent_function else (None,)
    for rank in ranks:
        for kinds in combinations:
            yield _model(schema, question, dict(zip(variables, kinds, strict=True)), ir_version, rank)


def _variables(schema: OpSchema) -> dict[str, int]:
    """The type variables of the inputs that are given, each with the first input that has it."""
    constrained = {c.type_param_str for c in schema.type_constraints}
    found: dict[str, int] = {}
    for k, formal in _given(schema).items():
        if formal.type_str in constrained:
            found.setdefault(formal.type_str, k)
    return found


def _given(schema: OpSchema) -> dict[int, OpSchema.FormalParameter]:
    optional = OpSchema.FormalParameterOption.Optional
    wanted = _WANTED_INPUTS.get(schema.name, 0)
    return {k: f for k, f in enumerate(schema.inputs) if f.option != optional or k < wanted}


def _allowed(schema: OpSchema, variable: str) -> list[str]:
    """Tensors first, then sequences and optionals."""
    kinds = next(c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == variable)
    return sorted(kinds, key=lambda k: (k.count("("), k))


def _element(kind: str) -> str:
    found = re.search(r"tensor\((\w+)\)", kind)
    assert found is not None, kind
    return found[1]


def _model(
    schema: OpSchema, question: Question, kinds: Mapping[str, str], ir_version: int, rank: int | None
) -> bytes:
    inputs, values = [], []
    given = _given(schema)
    for k in range(max(given, default=-1) + 1):
        inputs.append(f"x{k}" if k in given else "")
        if k in given:
            kind = kinds.get(given[k].type_str, given[k].type_str)
            values.append(helper.make_value_info(f"x{k}", _type(kind, rank)))
    outputs = [f"y{k}" for k in range(max(1, schema.min_output))]
    node = helper.make_node(schema.name, inputs, outputs, name="n", **_attributes(schema, question, kinds))
    graph = helper.make_graph([node], "g", values, [onnx.ValueInfoProto(name=o) for o in outputs])
    imports = [helper.make_opsetid("", question.opset)]
    model: bytes = helper.make_model(graph, ir_version=ir_version, opset_imports=imports).SerializeToString()
    return model


def _attributes(schema: OpSchema, question: Question, kinds: Mapping[str, str]) -> dict[str, Any]:
    wanted = _WANTED_ATTRIBUTES.get(schema.name, {})
    values: dict[str, Any] = {n: v for n, v in wanted.items() if n in schema.attributes}
    for name, attribute in schema.attributes.items():
        if attribute.required:
            values[name] = _graph(schema.name, kinds) if name == "body" else _ATTRIBUTES[name]
    if question.place == "to" or schema.name == "BitCast":
        values["to"] = _number(question.dtype)
    if schema.name == "TfIdfVectorizer":
        values |= {"pool_strings": ["a"]} if kinds["T"] == "tensor(string)" else {"pool_int64s": [1]}
    return values


def _graph(op: str, kinds: Mapping[str, str]) -> onnx.GraphProto:
    """The body of a Loop or Scan that hands its one value on."""
    carried = [helper.make_value_info(n, _type(kinds["V"])) for n in ("v", "w")]
    nodes = [helper.make_node("Identity", ["v"], ["w"])]
    if op == "Scan":
        return helper.make_graph(nodes, "body", carried[:1], carried[1:])
    more = [
        helper.make_tensor_value_info(n, t, [])
        for n, t in (("i", TensorProto.INT64), ("c", TensorProto.BOOL))
    ]
    nodes.append(helper.make_node("Identity", ["c"], ["d"]))
    go_on = helper.make_tensor_value_info("d", TensorProto.BOOL, [])
    return helper.make_graph(nodes, "body", [*more, carried[0]], [go_on, carried[1]])


def _type(kind: str, rank: int | None = None) -> onnx.TypeProto:
    """`rank`: of a tensor of one element; None: its sizes are not known."""
    if kind.startswith("seq("):
        return helper.make_sequence_type_proto(_type(kind[4:-1]))
    if kind.startswith("optional("):
        return helper.make_optional_type_proto(_type(kind[9:-1]))
    return helper.make_tensor_type_proto(_number(_element(kind)), None if rank is None else [1] * rank)


def _number(dtype: str) -> int:
    return int(TensorProto.DataType.Value(dtype.upper()))
