"""What an exported node says for TensorRT's parser alone: version and namespace of its plugin, and its shape inputs.

Without the first two TensorRT looks for version 1, and in no namespace. Since 10.10 it looks in that of the node's domain
too, but not where the model has a body for the node: that is then taken instead of the plugin. Everybody else ignores them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .operator import Operator

__all__ = [
    "ABSENT_INPUTS",
    "PLUGIN_ATTRIBUTES",
    "PLUGIN_NAMESPACE",
    "PLUGIN_VERSION",
    "SHAPE_INPUTS",
    "plugin_attributes",
]

PLUGIN_VERSION = "plugin_version"
PLUGIN_NAMESPACE = "plugin_namespace"
# Which inputs TensorRT gives to the plugin as shapes.
SHAPE_INPUTS = "tensorrt_plugin_shape_input_indices"
# Which inputs of a node stand for absent ones: for our own plugins, where TensorRT takes no absent input
# (trt_plugins/fitted_nodes.py fills it in). TensorRT warns of a node without an attribute that the plugin reads.
ABSENT_INPUTS = "deployops_absent_inputs"
# All that the parser reads of a node besides the operator's own: no operator may have an attribute of these names.
PLUGIN_ATTRIBUTES = frozenset({PLUGIN_VERSION, PLUGIN_NAMESPACE, SHAPE_INPUTS, ABSENT_INPUTS})


def plugin_attributes(op: Operator) -> Mapping[str, str | list[int]]:
    """What a node of the operator carries; the places of its shape inputs only where it has some."""
    found: dict[str, str | list[int]] = {PLUGIN_VERSION: str(op.version), PLUGIN_NAMESPACE: op.domain}
    if op.shape_inputs:
        found[SHAPE_INPUTS] = [k for k, i in enumerate(op.interface.inputs) if i.name in op.shape_inputs]
    if any(i.form == "optional" for i in op.interface.inputs[:-1]):
        found[ABSENT_INPUTS] = ""
    return found
