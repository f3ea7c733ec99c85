"""What the manifest of a plugin library tells of one plugin, but for its kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..native.data_sizes import size_names
from ..native.manifest_entry import attribute_entries, signature_entries
from .carried import plugin_fingerprint

if TYPE_CHECKING:
    from ..symbolic.operator import Operator
    from .carried import PluginShapes

__all__ = ["describe"]


def describe(op: Operator, shapes: PluginShapes) -> dict[str, Any]:
    """The entry of an operator, as carried by TensorRT.

    `outputs` are those of the ONNX node; for TensorRT the plugin has the `data_sizes` after them, an INT32 number each.
    """
    return {
        "name": op.name,
        "plugin_namespace": op.domain,
        "plugin_name": op.op_type,
        "plugin_version": str(op.version),
        "fingerprint": plugin_fingerprint(op, shapes),
        "inputs": [{"name": i.name, "form": i.form} for i in op.interface.inputs],
        "shape_inputs": list(op.shape_inputs),
        "outputs": [o.name for o in op.interface.outputs],
        "data_sizes": list(size_names(op)),
        "signatures": signature_entries(op),
        "attributes": attribute_entries(op),
    }
