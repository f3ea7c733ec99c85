"""Nodes of plugins as TensorRT's parser takes them, where it takes less than ONNX allows.

- An optional input that is left out before one that is given: ONNX writes `''`, the parser hands the plugin a null pointer,
  and TensorRT refuses it. The node is given its first input once more in that place, and says in an attribute which inputs
  stand for nothing; our plugins read it, and the kernel sees them as absent.
- Outputs: newer parsers (TensorRT-RTX 1.7) want a name for every output of the plugin. Those that a model does not use get
  one, and so do the sizes that the data decides, which are outputs for TensorRT alone.

The model is then for TensorRT: ONNX Runtime would take a stand-in for the input that it is not, and more outputs than an
operator has for a fault. It says so in its metadata, and has no digest of an export any more: it is another file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..symbolic.nested_graphs import nested_nodes
from ..symbolic.plugin_attributes import ABSENT_INPUTS, SHAPE_INPUTS

if TYPE_CHECKING:
    import onnx

__all__ = ["FITTED", "fit_plugin_nodes"]

FITTED = (
    "deployops.fitted"  # metadata of a model that was changed here; its value is the runtime that it is for
)
_DIGEST, _DATA = "deployops.digest", "deployops.data"


def fit_plugin_nodes(model: onnx.ModelProto, plugins: Sequence[Mapping[str, Any]]) -> list[str]:
    """Change the model in place; returns what was changed, a line for each node.

    A model that was changed loses the digest of its export, and `deployops.fitted` in its metadata says that it is for
    TensorRT: `deployops inspect` and `engine build` take the file that `onnx.save` makes of it.

    Args:
        plugins: the entries of a library's manifest. Nodes of other plugins, of which nothing is known, are left alone.

    Raises:
        UsageError: a node leaves out an input, and has none that can stand in.
    """
    known = {(p["plugin_namespace"], p["plugin_name"]): p for p in plugins}
    nodes = list(nested_nodes(model.graph.node))
    names = {name for node in nodes for name in (*node.input, *node.output)}
    names |= {value.name for value in (*model.graph.input, *model.graph.initializer)}
    changed = []
    for node in nodes:
        plugin = known.get((node.domain, node.op_type))
        if plugin is None:
            continue
        told = [*_fill_inputs(node), *_name_outputs(node, plugin, names)]
        if told:
            name = node.name or f"the node of {node.output[0]}"
            changed.append(f"{name} ({node.domain}::{node.op_type}): {'; '.join(told)}")
    if changed:
        _mark(model)
    return changed


def _mark(model: onnx.ModelProto) -> None:
    from .engines.source_model import has_side_files

    gone = {_DIGEST, FITTED} if has_side_files(model) else {_DIGEST, FITTED, _DATA}
    kept = [(entry.key, entry.value) for entry in model.metadata_props if entry.key not in gone]
    del model.metadata_props[:]
    for key, value in (*kept, (FITTED, "tensorrt")):
        model.metadata_props.add(key=key, value=value)


def _fill_inputs(node: onnx.NodeProto) -> Iterator[str]:
    while node.input and not node.input[-1]:
        del node.input[-1]
    absent = [k for k, name in enumerate(node.input) if not name]
    if not absent:
        return
    shapes = {k for a in node.attribute if a.name == SHAPE_INPUTS for k in a.ints}
    # What is not a shape input comes to the plugin in its order; the first of these is what stands in for the others.
    first = next((name for k, name in enumerate(node.input) if k not in shapes), "")
    if not first:
        raise UsageError(
            f"node `{node.name}` ({node.domain}::{node.op_type}) leaves out its first input; TensorRT's parser takes no node of "
            "a plugin that leaves out an input before one that it gives"
        )
    for k in absent:
        node.input[k] = first
    attribute = next((a for a in node.attribute if a.name == ABSENT_INPUTS), None) or node.attribute.add(
        name=ABSENT_INPUTS
    )
    attribute.s, attribute.type = ",".join(map(str, absent)).encode(), attribute.STRING
    yield f"`{first}` stands for the absent input {', '.join(map(str, absent))}"


def _name_outputs(node: onnx.NodeProto, plugin: Mapping[str, Any], names: set[str]) -> Iterator[str]:
    wanted = [*plugin["outputs"], *plugin.get("data_sizes", ())]
    stem = node.name or next(name for name in node.output if name)
    made = []
    for k, output in enumerate(wanted):
        if k < len(node.output) and node.output[k]:
            continue
        name = f"{stem}_{output}"
        while name in names:
            name += "_"
        names.add(name)
        made.append(name)
        if k < len(node.output):
            node.output[k] = name
        else:
            node.output.append(name)
    if made:
        yield f"output {', '.join(made)} named"
