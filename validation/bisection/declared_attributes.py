"""The attributes of a declared operator's node beside those of the call in the original.

They are held against each other whatever the body in the file gives: a body may have a value of its call written into it
(Python's `if` on an attribute, a list that gives sizes), and then says nothing of the node's attribute, which a kernel reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...symbolic import registry
from ...symbolic.attributes import encode_attribute
from ...symbolic.nested_graphs import nested_nodes
from . import wording
from .dataflow import Dataflow
from .node_attributes import attributes_of, kind_of
from .reference import Reference
from .steps import Suspect

if TYPE_CHECKING:
    import onnx

__all__ = ["OtherAttribute", "attributes_otherwise"]


@dataclass(frozen=True, slots=True)
class OtherAttribute:
    """An attribute of a node that is not that of the call.

    Attributes:
        name: of the attribute. text: both values, for the report.
        read: whether the body in the file takes it from the node; False where the file has no body of it either.
    """

    name: str
    text: str
    read: bool


def attributes_otherwise(flow: Dataflow, reference: Reference, suspect: Suspect) -> list[OtherAttribute]:
    """Attributes in which the one declared operator among the suspect's nodes differs from the call; [] where none is known."""
    declared = reference.declared(suspect.name)
    if declared is None:
        return []
    domain, op_type, wanted = declared
    nodes = [flow.nodes[k] for k in suspect.part.nodes]
    mine = [n for n in nodes if (n.domain, n.op_type) == (domain, op_type)]
    if len(mine) != 1:
        return []
    body = _body(flow.model, mine[0])
    stated = attributes_of(mine[0].attribute)
    ours = _defaults(body, domain, op_type) | stated
    # a call with None leaves an attribute out
    wanted = {**dict.fromkeys(_optional(domain, op_type) & stated.keys()), **wanted}
    read = set() if body is None else _read(body)
    return [
        OtherAttribute(
            name, wording.other_attribute(kind_of(mine[0]), name, ours.get(name), value), name in read
        )
        for name, value in wanted.items()
        if (value is None or _plain(value)) and not _alike(ours.get(name), value)
    ]


def _body(model: onnx.ModelProto, node: onnx.NodeProto) -> onnx.FunctionProto | None:
    key = (node.domain, node.op_type, node.overload)
    return next((f for f in model.functions if (f.domain, f.name, f.overload) == key), None)


def _defaults(body: onnx.FunctionProto | None, domain: str, op_type: str) -> dict[str, Any]:
    """What holds where the node does not say: the declaration's default, or that of the body in the file."""
    op = registry.by_onnx_name(domain, op_type)
    declared: dict[str, Any] = {}
    if op is not None:
        given = [a for a in op.interface.attributes if a.default is not None]
        declared = {a.name: encode_attribute(op.name, a, a.default) for a in given}
    return declared | ({} if body is None else attributes_of(body.attribute_proto))


def _optional(domain: str, op_type: str) -> set[str]:
    """The attributes of a declared operator that a call may leave out."""
    op = registry.by_onnx_name(domain, op_type)
    return set() if op is None else {a.name for a in op.interface.attributes if a.default is None}


def _read(body: onnx.FunctionProto) -> set[str]:
    """Attributes of the call that the nodes of a body refer to, those in branches and loops too."""
    return {a.ref_attr_name for node in nested_nodes(body.node) for a in node.attribute if a.ref_attr_name}


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_plain(v) for v in value)
    return isinstance(value, bool | int | float | str | bytes)


def _alike(mine: Any, wanted: Any) -> bool:
    """A float attribute has 32 bits, a text is bytes, True is 1; whole numbers are exact, and NaN is NaN."""
    if isinstance(wanted, list | tuple):
        return (mine is None and not wanted) or (
            isinstance(mine, list | tuple)
            and len(mine) == len(wanted)
            and all(_alike(a, b) for a, b in zip(mine, wanted, strict=True))
        )
    mine, wanted = (v.encode() if isinstance(v, str) else v for v in (mine, wanted))
    if not (isinstance(mine, int | float) and isinstance(wanted, int | float)):
        return bool(mine == wanted)
    if isinstance(mine, int) and isinstance(wanted, int):
        return mine == wanted
    with np.errstate(over="ignore"):
        a, b = np.float32(mine), np.float32(wanted)
    return bool(a == b) or bool(a != a and b != b)
