"""The nodes of a model as ONNX Runtime looks them up: with the kernels of libraries, and bodies where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..symbolic.graph_inspection import node_uses as graph
from ..symbolic.graph_inspection.node_uses import Call, ModelUses, NodeUse

if TYPE_CHECKING:
    import onnx

    from .library_manifest import KernelOperator, LibraryManifest

__all__ = ["model_uses", "node_uses"]


def node_uses(model: onnx.ModelProto, libraries: Sequence[LibraryManifest] = ()) -> list[NodeUse]:
    """The nodes of the graph, its subgraphs, and the functions that they call.

    A function is read with the element types of each call. One for which a library has a kernel is not read: its body is
    not used.
    """
    return list(model_uses(model, libraries).uses)


def model_uses(model: onnx.ModelProto, libraries: Sequence[LibraryManifest] = ()) -> ModelUses:
    """`node_uses`, with the types and what could not be read."""
    kernels: dict[tuple[str, str], list[KernelOperator]] = {}
    for operator in (o for library in libraries for o in library.operators):
        kernels.setdefault((operator.domain, operator.op_type), []).append(operator)

    def native(call: Call) -> Sequence[str | None] | None:
        known = kernels.get((call.domain, call.op_type), ())
        serving = [o for o in known if call.version is None or o.version <= call.version]
        return max(serving, key=lambda o: o.version).output_dtypes(call.inputs) if serving else None

    return graph.model_uses(model, native)
