"""The ONNX schema of a declared operator, registered with `onnx.defs`.

Once registered, `onnx.checker` refuses wrong attributes and dtypes, and `onnx.shape_inference` (strict too)
carries shapes through the node: it calls back into `shapes.infer`. ONNX Runtime does not see these schemas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import dtypes
from .plugin_attributes import plugin_attributes
from .shapes import Dim, ShapeError, TensorInfo, infer

if TYPE_CHECKING:
    import onnx

    from .attributes import Attribute
    from .operator import Operator

__all__ = ["onnx_schema", "register"]


def register(op: Operator) -> None:
    """Make `onnx.checker` and `onnx.shape_inference` know the operator; again after a change."""
    import onnx.defs

    if onnx.defs.has(op.op_type, op.domain):
        known = onnx.defs.get_schema(op.op_type, domain=op.domain)  # the latest: one is registered at a time
        onnx.defs.deregister_schema(op.op_type, known.since_version, op.domain)
    onnx.defs.register_schema(onnx_schema(op))


def onnx_schema(op: Operator) -> onnx.defs.OpSchema:
    """The `OpSchema` of an operator: inputs, attributes, outputs, type constraints, shape inference."""
    from onnx.defs import OpSchema

    parameter, option = OpSchema.FormalParameter, OpSchema.FormalParameterOption
    options = {"single": option.Single, "optional": option.Optional, "variadic": option.Variadic}
    every = [dtypes.onnx_text(t) for t in dtypes.ALL]
    constraints = [(v, [dtypes.onnx_text(t) for t in types], "") for v, types in op.types.variables.items()]
    inputs = [
        parameter(i.name, op.types.of_input[i.name], param_option=options[i.form])
        for i in op.interface.inputs
        if i.form != "variadic"
    ]
    lists = op.interface.variadics
    if lists:
        alike = (
            len({op.types.of_input[i.name] for i in lists}) == 1
            and op.types.variables[op.types.of_input[lists[0].name]] != dtypes.ALL
        )
        variable = op.types.of_input[lists[0].name] if alike else "TV"
        if not alike:
            constraints.append(("TV", every, ""))
        inputs.append(
            parameter(
                "_".join(i.name for i in lists),
                variable,
                param_option=option.Variadic,
                is_homogeneous=alike,
                min_arity=0,
            )
        )
    outputs = []
    for k, output in enumerate(op.interface.outputs):
        rule = op.output_types[output.name]
        if output.mutates is not None:
            variable = op.types.of_input[output.mutates]
        elif rule.variable is not None:
            variable = rule.variable
        elif len(rule.dtypes) == 1:
            variable = dtypes.onnx_text(rule.dtypes[0])
        else:
            variable = f"TO{k}"
            constraints.append((variable, [dtypes.onnx_text(t) for t in rule.dtypes], ""))
        outputs.append(
            parameter(
                output.name,
                variable,
                param_option=options[output.form],
                min_arity=0 if output.form == "variadic" else 1,
            )
        )
    used = {p.type_str for p in [*inputs, *outputs]}
    schema = OpSchema(
        op.op_type,
        op.domain,
        op.version,
        op.doc,
        inputs=inputs,
        outputs=outputs,
        type_constraints=[c for c in constraints if c[0] in used],
        attributes=[_attribute(a) for a in op.interface.attributes]
        + [
            OpSchema.Attribute(n, OpSchema.AttrType.INT, "length of a list of tensors")
            for n in op.interface.count_attributes
        ]
        + [
            OpSchema.Attribute(
                n,
                OpSchema.AttrType.STRING if isinstance(v, str) else OpSchema.AttrType.INTS,
                "for TensorRT's parser",
                required=False,
            )
            for n, v in plugin_attributes(op).items()
        ],
    )
    schema.set_type_and_shape_inference_function(lambda context: _infer_node(op, context))
    return schema


def _attribute(a: Attribute) -> Any:
    import onnx.helper
    from onnx.defs import OpSchema

    from .attributes import encode_attribute

    kind = getattr(OpSchema.AttrType, a.onnx_type)
    if a.default is None:
        return OpSchema.Attribute(a.name, kind, "", required=a.required and not a.optional)
    value = encode_attribute(a.name, a, a.default)
    proto = onnx.helper.make_attribute(a.name, value, attr_type=getattr(onnx.AttributeProto, a.onnx_type))
    return OpSchema.Attribute(a.name, proto, "")


def _infer_node(op: Operator, context: Any) -> None:
    """Called by ONNX for a node: read its inputs and attributes, write the types of its outputs."""
    import onnx
    from onnx import shape_inference

    flat = [_read_type(context.get_input_type(i)) for i in range(context.get_num_inputs())]
    attributes = {}
    for name in [a.name for a in op.interface.attributes] + list(op.interface.count_attributes):
        proto = context.get_attribute(name)
        if proto is not None and proto.type != onnx.AttributeProto.UNDEFINED:
            attributes[name] = _read_attribute(proto)
    try:
        results = infer(op, op.interface.unflatten(flat, attributes), attributes)
    except ShapeError as e:
        raise shape_inference.InferenceError(str(e)) from None
    except Exception as e:  # ONNX passes nothing but an InferenceError on to the user
        raise shape_inference.InferenceError(f"{op.name}: {type(e).__name__}: {e}") from None
    for index, result in zip(range(context.get_num_outputs()), results, strict=False):
        context.set_output_type(index, _type_proto(result))


def _read_attribute(proto: onnx.AttributeProto) -> Any:
    import onnx.helper

    value = onnx.helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (int, float, str)):
        return value
    return [v.decode() if isinstance(v, bytes) else v for v in value]


def _read_type(proto: onnx.TypeProto | None) -> TensorInfo | None:
    if proto is None or not proto.HasField("tensor_type"):
        return None
    tensor = proto.tensor_type
    dtype = dtypes.name_of(tensor.elem_type) if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return TensorInfo(dtype, None)

    def dim(d: Any) -> Dim:
        return d.dim_value if d.HasField("dim_value") else d.dim_param or None

    return TensorInfo(dtype, tuple(dim(d) for d in tensor.shape.dim))


def _type_proto(info: TensorInfo) -> onnx.TypeProto:
    import onnx

    proto = onnx.TypeProto()
    proto.tensor_type.elem_type = 0 if info.dtype is None else dtypes.onnx_number(info.dtype)
    if info.dims is not None:
        proto.tensor_type.shape.SetInParent()
        for d in info.dims:
            added = proto.tensor_type.shape.dim.add()
            if isinstance(d, int):
                added.dim_value = d
            elif d is not None:
                added.dim_param = d
    return proto
