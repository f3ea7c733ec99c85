"""A model cast to float16 or bfloat16, which is how a strongly typed TensorRT is told the precision.

The converters at hand were looked at first. `onnxruntime.transformers.float16` and `onnxconverter_common.float16` (one from
the other) write weights beyond the range as 65,504 and raise an epsilon of 1e-12 to 6e-8, with a line in the debug log; they
have no bfloat16 and know nothing of plugins. NVIDIA's ModelOpt decides by running the model, needs a GPU for custom operators,
and brings a stack of its own. Hence this one, which decides by rules that the result lists.

What is cast, and how:

- Every node whose operator takes the type gets it, except those of `rules`, what is computed from sizes or
  positions, and what is next to a constant beyond the range.
- Custom operators follow their plugins: without a kernel for the type they stay float32, with casts around.
- What computes coordinates, back to the last layer, stays float32 (`digits`).
- Sums of squares and of products, up to the division that they are for, stay float32 however they are written (`normalisers`).
- Inputs and outputs of the model keep their types, and so do values that enter or leave the graphs of If, Loop and Scan.
- Model-local functions are inlined, but for those that have a plugin: their bodies compute in float32 between casts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....errors import DeployOpsError, ExportError, ModelFileError, UsageError
from ....symbolic.nested_graphs import graphs_within, nested_graphs
from ..record import KeptFloat32
from ..source_model import graphs_of
from .decisions import Decisions
from .digits import Digits, find_digits
from .flags import Flags
from .graph import Casting
from .input import check_tensors, inlined
from .narrow_weights import NarrowPrecision, element_type
from .normalisers import find_normalisers
from .plugin_dtypes import PluginDtypes
from .values import HALVES, NO_TENSOR, STANDARD, Findings, NarrowCalls, short_name

if TYPE_CHECKING:
    import onnx

__all__ = ["CastModel", "cast_model"]

_SMALL = 1024  # elements of a weight that shape inference may want the values of
_SHOWN = 5
_NO_INPUTS_NEEDED = 4  # the IR version from which weights need not be inputs too


@dataclass(frozen=True, slots=True)
class CastModel:
    """A model in a narrower type.

    Attributes:
        model: with the inputs, outputs and value names of the original.
        kept: nodes that stay float32, in order.
        narrow_nodes: how many did not.
        warnings: what may not survive the cast, a line each.
    """

    model: onnx.ModelProto
    kept: tuple[KeptFloat32, ...]
    narrow_nodes: int
    warnings: tuple[str, ...]


def cast_model(
    model: onnx.ModelProto,
    precision: NarrowPrecision,
    *,
    keep: Sequence[str] = (),
    plugins: Mapping[tuple[str, str], PluginDtypes] | None = None,
) -> CastModel:
    """Cast the float32 of a model, weights and computation, to float16 (`fp16`) or bfloat16 (`bf16`).

    Args:
        model: with its weights loaded. It is not changed.
        keep: nodes and operators that stay float32: `"/head/MatMul"`, `"Conv"`, `"acme::Norm"`.
        plugins: dtypes that custom operators take, by domain and type (`plugin_dtypes`). Others stay float32.

    Raises:
        UsageError: an entry of `keep` that nothing in the model is called; weights that are not loaded.
        ModelFileError: the model is damaged, or breaks ONNX's rules so that its types are not known; its functions call
            themselves or each other without end.
        ExportError: the result does.
    """
    import onnx

    try:
        return _cast(model, precision, keep, plugins or {})
    except DeployOpsError:
        raise
    except (ValueError, TypeError, RuntimeError, onnx.checker.ValidationError) as error:
        raise ModelFileError(
            f"the model is damaged or breaks ONNX's rules: {_one_line(error)}. Export it again"
        ) from error


def _cast(
    model: onnx.ModelProto,
    precision: NarrowPrecision,
    keep: Sequence[str],
    plugins: Mapping[tuple[str, str], PluginDtypes],
) -> CastModel:
    import onnx

    check_tensors(model)
    inputs = _io(model)
    light, weights = _without_weights(model)
    light, optional = inlined(light, plugins)
    opset = next((o.version for o in light.opset_import if o.domain in STANDARD), 0)
    types, shapes = _types(light, weights)
    light.graph.initializer.extend(weights)
    digits = find_digits(light.graph, types, shapes, plugins, precision)
    flags = Flags(precision, opset, shapes)
    normalisers = find_normalisers(light.graph, types, weights)
    decisions = Decisions(
        precision, opset, flags, plugins, frozenset(keep), optional, Findings(), digits, normalisers
    )
    casting = Casting(decisions, types, set(_all_names(light.graph)))
    casting.graph(light.graph)
    if unknown := [k for k in keep if k not in decisions.kept_by_name]:
        raise UsageError(_unknown(unknown[0], model))
    narrow = casting.narrowed_values | set(casting.renamed.values())
    for graph in nested_graphs(light.graph):
        for node in graph.node:
            for k, name in enumerate(node.input):
                if name in casting.renamed:
                    node.input[k] = casting.renamed[name]
        for value in graph.value_info:
            if value.name in narrow:
                value.type.tensor_type.elem_type = element_type(precision)
    for function in light.functions:
        calls = decisions.findings.bodies.get((function.domain, function.name))
        if calls is not None:
            _wrap(function, calls)
    if not any(o.domain in STANDARD for o in light.opset_import):
        light.opset_import.add(domain="", version=onnx.defs.onnx_opset_version())
    light.ir_version = max(light.ir_version, _NO_INPUTS_NEEDED)
    _check(light, inputs)
    return CastModel(
        light,
        tuple(decisions.findings.kept),
        decisions.findings.narrow_nodes,
        (
            *_other_half(light, types, precision),
            *_warnings(decisions.findings, precision),
            *_far(digits, precision),
        ),
    )


def _unknown(name: str, model: onnx.ModelProto) -> str:
    """What is said of an entry of `keep` that keeps nothing."""
    import difflib

    named: dict[str, str] = {}  # as one would spell it -> as it is called
    operators: dict[str, str] = {}
    for graph in graphs_of(model):
        for node in graph.node:
            operator = node.op_type if node.domain in STANDARD else f"{node.domain}::{node.op_type}"
            operators |= {_spelled(operator): operator, _spelled(node.op_type): operator}
            if node.name:
                named[_spelled(node.name)] = node.name
    there = name in {*named.values(), *operators.values()}
    if there:
        return f"--keep-float32 {name}: it has no float32 in this model, or is a function that was put where it is called"
    known = named | operators
    own = _spelled(name)
    close = [own] if own in known else difflib.get_close_matches(own, known, 1)
    meant = f". Did you mean {known[close[0]]}?" if close else ""
    return (
        f"--keep-float32 {name}: nothing in the model is called {name!r}{meant or '.'} It takes names of nodes or operators, as "
        '"/head/MatMul", "Conv" or "acme::Norm"'
    )


def _spelled(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


# --- before ------------------------------------------------------------------------------------------------------


def _without_weights(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[onnx.TensorProto]]:
    """The model without its weights, which onnx's own tools need not copy (and cannot, beyond 2 GB)."""
    light = type(model)()
    _copy_fields(model, light, "graph")
    _copy_fields(model.graph, light.graph, "initializer")
    return light, list(model.graph.initializer)


def _copy_fields(source: Any, target: Any, but: str) -> None:
    for field, value in source.ListFields():
        if field.name == but:
            continue
        if isinstance(value, int | float | str | bytes):
            setattr(target, field.name, value)
        elif hasattr(value, "extend"):
            getattr(target, field.name).extend(value)
        else:
            getattr(target, field.name).CopyFrom(value)


def _types(
    light: onnx.ModelProto, weights: Sequence[onnx.TensorProto]
) -> tuple[dict[str, int], dict[str, tuple[int | None, ...]]]:
    """Element types and shapes of all values that onnx can tell. Names with two types in different graphs are left out."""
    from onnx import shape_inference

    try:
        inferred = shape_inference.infer_shapes(_with_small_weights(light, weights), check_type=True)
    except Exception as error:  # it raises several kinds
        raise ModelFileError(f"the model breaks ONNX's rules: {_one_line(error)}. Export it again") from None
    types: dict[str, set[int]] = {}
    shapes: dict[str, set[tuple[int | None, ...]]] = {}
    for graph in nested_graphs(inferred.graph):
        for value in [*graph.value_info, *graph.output]:
            if value.type.HasField("tensor_type"):
                kind = value.type.tensor_type
                if kind.elem_type:
                    types.setdefault(value.name, set()).add(kind.elem_type)
                if kind.HasField("shape"):
                    dims = tuple(d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim)
                    shapes.setdefault(value.name, set()).add(dims)
            elif value.type.WhichOneof("value") is not None:
                types.setdefault(value.name, set()).add(NO_TENSOR)
    return (
        {name: kinds.pop() for name, kinds in types.items() if len(kinds) == 1},
        {name: dims.pop() for name, dims in shapes.items() if len(dims) == 1},
    )


def _with_small_weights(light: onnx.ModelProto, weights: Sequence[onnx.TensorProto]) -> onnx.ModelProto:
    """For inference: large weights as inputs, which have a type and a shape and no content."""
    import math

    from onnx import helper

    whole = type(light)()
    whole.CopyFrom(light)
    given = {value.name for value in whole.graph.input}
    for tensor in weights:
        if math.prod(tensor.dims) <= _SMALL:
            whole.graph.initializer.add().CopyFrom(tensor)
        elif tensor.name not in given:
            whole.graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )
    return whole


# --- after -------------------------------------------------------------------------------------------------------


def _wrap(function: onnx.FunctionProto, calls: NarrowCalls) -> None:
    """The body computes in float32 whatever comes in, and gives back the type of its input."""
    from onnx import TensorProto, helper

    used = {
        *function.input,
        *function.output,
        *(n for node in function.node for n in (*node.input, *node.output)),
    }

    def fresh(name: str) -> str:
        while name in used:
            name += "_"
        used.add(name)
        return name

    inner = {function.input[k]: fresh(f"{function.input[k]}_float32") for k in sorted(calls.inputs)}
    outer = {function.output[k]: fresh(f"{function.output[k]}_float32") for k in sorted(calls.outputs)}
    casts = [helper.make_node("Cast", [name], [own], to=TensorProto.FLOAT) for name, own in inner.items()]
    back = [
        helper.make_node("CastLike", [outer[function.output[k]], function.input[of]], [function.output[k]])
        for k, of in sorted(calls.outputs.items())
    ]
    changed = inner | outer
    for node in function.node:
        _rename(node, changed)
    nodes = [*casts, *function.node, *back]
    copies = [_copied(node) for node in nodes]
    del function.node[:]
    function.node.extend(copies)
    for value in function.value_info:
        value.name = changed.get(value.name, value.name)


def _rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    for k, name in enumerate(node.input):
        node.input[k] = names.get(name, name)
    for k, name in enumerate(node.output):
        node.output[k] = names.get(name, name)
    for graph in graphs_within(node):
        for inside in graph.node:
            _rename(inside, names)
        for output in graph.output:
            output.name = names.get(output.name, output.name)


def _check(light: onnx.ModelProto, inputs: object) -> None:
    """The result holds what was promised: ONNX's rules, the same inputs and outputs."""
    from onnx import shape_inference

    weights = list(light.graph.initializer)
    bare, _ = _without_weights(light)
    try:
        shape_inference.infer_shapes(_with_small_weights(bare, weights), check_type=True)
    except Exception as error:
        raise ExportError(
            f"casting this model went wrong: {_one_line(error)}. Build it with --precision fp32, and report this"
        ) from None
    if _io(light) != inputs:
        raise ExportError(
            "casting changed the model's inputs or outputs. Build it with --precision fp32, and report this"
        )


def _warnings(found: Findings, precision: NarrowPrecision) -> Iterator[str]:
    name, limit, exact = (
        ("float16", "65,504", "2,048") if precision == "fp16" else ("bfloat16", "3.39e38", "256")
    )
    if found.zeros:
        yield f"weights that became zero in {name}: {_counts(found.zeros)}"
    if found.subnormal:
        yield f"weights that have lost digits, being smaller than {name}'s normal numbers: {_counts(found.subnormal)}"
    if found.rounded:
        yield f"weights with whole numbers beyond {exact} that {name} rounds: {_counts(found.rounded)}"
    if found.integers:
        yield (
            f"whole numbers that become {name}: {_listed(found.integers)}. Beyond {exact} they are rounded"
            + (f", beyond {limit} infinite" if precision == "fp16" else "")
            + "; name the node that takes them in --keep-float32 where they can be that large"
        )
    if found.huge:
        yield f"values that may be beyond {limit}, and are then infinite: {_listed(found.huge)}"
    if found.digits:
        yield (
            f"values that need their digits, and that a plugin makes in {name}: {_listed(found.digits)}; name its node in "
            "--keep-float32 where they count"
        )
    if found.newer:
        opset = max(found.newer.values())
        yield (
            f"with a newer operator set, these take {name}: "
            f"{', '.join(f'{op} from {v} on' for op, v in sorted(found.newer.items()))}: export the model with --opset {opset}"
        )
    if found.quantized:
        yield (
            "the model is quantized: casts now stand between its DequantizeLinear nodes and the layers after them. Whether "
            "TensorRT still runs those in 8 bits is not checked; a model that was float16 before it was quantized has none"
        )


def _other_half(
    model: onnx.ModelProto, types: Mapping[str, int], precision: NarrowPrecision
) -> Iterator[str]:
    """Of a model that is in the other type of 16 bits already."""
    graph = model.graph
    kinds = {
        *types.values(),
        *(t.data_type for t in graph.initializer),
        *(v.type.tensor_type.elem_type for v in graph.input),
    }
    own = short_name(precision)
    others = [name for number, name in HALVES.items() if number in kinds and name != own]
    if others:
        lost = (
            "values beyond 65,504, which bfloat16 holds, become infinite (weights are checked)"
            if precision == "fp16"
            else "values have fewer digits than float16 holds"
        )
        yield (
            f"the model computes in {others[0]}, which stays as it is: what is float32 in it becomes {own}, where {lost}. Leave "
            "--precision out to build the model in the types it has"
        )


def _far(digits: Digits, precision: NarrowPrecision) -> Iterator[str]:
    if digits.far:
        yield (
            f"values that are many steps from the coordinates computed of them, and are {short_name(precision)}: "
            f"{_listed(digits.far)}; name the nodes that make them in --keep-float32 where the digits count"
        )


def _counts(found: Mapping[str, tuple[int, int]]) -> str:
    worst = sorted(found.items(), key=lambda item: (-item[1][0] / max(item[1][1], 1), item[0]))
    shown = ", ".join(f"{n} {k} of {count}" for n, (k, count) in worst[:_SHOWN])
    return shown + (f", and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")


def _listed(names: Sequence[str]) -> str:
    own = list(dict.fromkeys(names))
    return ", ".join(own[:_SHOWN]) + (f" and {len(own) - _SHOWN} more" if len(own) > _SHOWN else "")


# --- graphs ------------------------------------------------------------------------------------------------------


def _all_names(graph: onnx.GraphProto) -> Iterator[str]:
    for each in nested_graphs(graph):
        yield from (value.name for value in (*each.input, *each.output))
        yield from (tensor.name for tensor in each.initializer)
        for node in each.node:
            yield node.name
            yield from node.output


def _io(model: onnx.ModelProto) -> list[tuple[str, int, str]]:
    values = [*model.graph.input, *model.graph.output]
    return [(v.name, v.type.tensor_type.elem_type, str(v.type.WhichOneof("value"))) for v in values]


def _copied(message: Any) -> Any:
    made = type(message)()
    made.CopyFrom(message)
    return made


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) < 300 else f"{text[:300]}…"
