"""The model's inputs, outputs and dims under the user's names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ExportError, UsageError
from ..symbolic import dims

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.export import ExportedProgram

    from .inputs.signature import Signature

__all__ = ["input_names", "name_dims", "name_inputs", "name_outputs", "output_names"]


def input_names(program: ExportedProgram, leaves: Sequence[str]) -> dict[str, str]:
    """Placeholder name in the traced graph -> the user's name, tensors only.

    `leaves`: the names of all arguments in the order of the call, scalars and None included.
    """
    from torch.export.graph_signature import InputKind, TensorArgument

    specs = [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    if len(leaves) != len(specs):
        raise UsageError(
            f"the model takes {len(specs)} inputs ({', '.join(s.arg.name for s in specs)}); {len(leaves)} are given"
        )
    return {
        s.arg.name: leaf for s, leaf in zip(specs, leaves, strict=True) if isinstance(s.arg, TensorArgument)
    }


def name_inputs(model: ir.Model, names: Mapping[str, str]) -> None:
    """Give the graph's inputs the user's names; other values that have such a name step aside."""
    wanted = {value: names[value.name or ""] for value in model.graph.inputs if value.name in names}
    _make_room(model, set(wanted.values()), keep=set(wanted))
    for value, name in wanted.items():
        value.name = name


def output_names(program: ExportedProgram, given: Sequence[str] | None) -> list[str]:
    """A name for each tensor the model returns: `output`; the keys of a dict; `output_0`, … for a tuple."""
    from torch.export.graph_signature import OutputKind, TensorArgument
    from torch.utils import _pytree as pytree

    specs = [s for s in program.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    spec = program.call_spec.out_spec
    paths: list[Any] = []
    if spec is not None and spec.num_leaves == len(specs):
        tree = pytree.tree_unflatten(list(range(len(specs))), spec)
        paths = [path for path, _ in pytree.tree_flatten_with_path(tree)[0]]
    names = []
    for k, s in enumerate(specs):
        if not isinstance(s.arg, TensorArgument):
            continue  # a constant: reported by the exporter
        path = [
            str(getattr(p, "key", getattr(p, "name", getattr(p, "idx", p))))
            for p in (paths[k] if paths else (k,))
        ]
        readable = "_".join(re.sub(r"\W", "_", p) for p in path)
        names.append(
            readable
            if readable and not readable[0].isdigit()
            else f"output_{readable}"
            if readable
            else "output"
        )
    if given is None:
        return names
    if len(given) != len(names) or len(set(given)) != len(given):
        raise UsageError(
            f"{len(given)} output names are given ({', '.join(given)}); the model returns {len(names)} tensors"
        )
    return list(given)


def name_outputs(model: ir.Model, names: Sequence[str], taken: set[str]) -> None:
    """Name the graph's outputs. One that is an input, a weight, or returned twice gets an Identity of its own."""
    import onnx_ir as ir

    outputs = model.graph.outputs
    names = [n if n not in taken else f"{n}_out" for n in names]
    seen: set[int] = set()
    for k, value in enumerate(list(outputs)):
        if value.is_graph_input() or value.is_initializer() or id(value) in seen:
            node = ir.Node("", "Identity", [value], num_outputs=1)
            node.outputs[0].shape, node.outputs[0].type = value.shape, value.type
            model.graph.append(node)
            outputs[k] = node.outputs[0]
        seen.add(id(outputs[k]))
    _make_room(model, set(names), keep=set(outputs))
    for value, name in zip(outputs, names, strict=True):
        value.name = name


def _make_room(model: ir.Model, names: set[str], keep: set[Any]) -> None:
    values = [*model.graph.inputs, *model.graph.initializers.values()]
    values += [v for node in model.graph.all_nodes() for v in node.outputs]
    used = {v.name for v in values}
    for value in values:
        if value.name in names and value not in keep:
            fresh = next(
                n for k in range(1, 10_000) if (n := f"{value.name}__{k}") not in used and n not in names
            )
            used.add(fresh)
            if value.is_initializer():
                del model.graph.initializers[value.name]
                value.name = fresh
                model.graph.initializers[fresh] = value
            else:
                value.name = fresh


def name_dims(
    model: ir.Model, program: ExportedProgram, signature: Signature, names: Mapping[str, str]
) -> None:
    """Replace torch's symbols (`s77`) by the user's, in every shape of the model.

    Raises ExportError where the program fixed a dim that was asked to vary, or merged two.
    """
    import onnx_ir as ir

    renamed: dict[str, str] = {}
    shapes = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    for placeholder, name in names.items():
        for axis, size in enumerate(getattr(shapes[placeholder], "shape", ())):
            wanted = signature.symbol_of(name, axis)
            text = str(size)
            if wanted is None:
                if not text.isdigit():  # a loaded program has variable dims that nobody named
                    for symbol in dims.names(text):
                        renamed.setdefault(symbol, f"{name}_dim_{axis}".replace(".", "_"))
                continue
            if text.isdigit():
                raise ExportError(
                    f"`{wanted}` (dim {axis} of `{name}`) is fixed at {text} in the traced program. "
                    f"Export it again with this dim variable, or give {text} for it"
                )
            if renamed.setdefault(text, wanted) != wanted and text.isidentifier():
                raise ExportError(
                    f"the model needs `{renamed[text]}` and `{wanted}` to be equal (dim {axis} of `{name}`): give both "
                    "the same name"
                )
    for value in _values(model):
        if value.shape is not None and not value.shape.is_static():
            value.shape = ir.Shape(
                [
                    d if isinstance(d, int) else None if d.value is None else dims.rename(d.value, renamed)
                    for d in value.shape
                ]
            )


def _values(model: ir.Model) -> list[Any]:
    graphs = [model.graph, *(f.graph for f in model.functions.values())]
    found: dict[int, Any] = {}
    for graph in graphs:
        for value in (*graph.inputs, *graph.outputs, *graph.initializers.values()):
            found[id(value)] = value
        for node in graph.all_nodes():
            for value in node.outputs:
                found[id(value)] = value
    return list(found.values())
