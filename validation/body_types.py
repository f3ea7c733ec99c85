"""Whether ONNX has the operators of a body in the dtype that a sample brings: TopK takes no bfloat16, in any opset so far."""

from __future__ import annotations

from pathlib import Path

from ..symbolic import dtypes, registry

__all__ = ["unfit_body"]


def unfit_body(path: Path) -> str:
    """Of a file that is one custom node: the first operator in its body without the dtype it gets in the file's opset.

    The node's operator is a declared one, whose kernels may have dtypes that ONNX has not for its body. Empty where there is
    none, and for every other file: a model with such a node in it is wrong, and that is for the runtime to say. Only types
    that follow from those of the inputs are judged; nothing is run.
    """
    import onnx.inliner

    model = onnx.load(str(path), load_external_data=False)
    node = model.graph.node[0] if len(model.graph.node) == 1 else None
    op = None if node is None else registry.by_onnx_name(node.domain, node.op_type)
    if op is None:
        return ""
    versions = {o.domain: o.version for o in model.opset_import}
    try:
        model = onnx.shape_inference.infer_shapes(onnx.inliner.inline_local_functions(model))
    except Exception:  # onnx raises of every kind: then nothing is said
        return ""
    graph = model.graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info)}
    types |= {t.name: t.data_type for t in graph.initializer}
    for node in graph.node:
        try:
            schema = onnx.defs.get_schema(node.op_type, versions.get("", 1), node.domain)
        except onnx.defs.SchemaError:  # of another domain
            continue
        allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
        for position, name in enumerate(node.input):
            formal = schema.inputs[min(position, len(schema.inputs) - 1)] if schema.inputs else None
            if formal is None or not types.get(name):
                continue
            try:
                dtype = dtypes.name_of(types[name])
                kind = onnx.helper.tensor_dtype_to_string(types[name]).rpartition(".")[2].lower()
            except KeyError:
                continue
            if f"tensor({kind})" not in allowed.get(formal.type_str, {formal.type_str}):
                return (
                    f"{node.op_type} takes no {dtype} in opset {versions.get('', 1)}, so that the body does not run in it: cast "
                    f"in the body (`op.widen`), or declare the dtypes that the operator has"
                )
    return ""
