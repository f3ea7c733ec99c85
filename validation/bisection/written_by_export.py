"""What an export writes for a step of the original, beside what the file has there: operators, constants, attributes.

Only the step is exported, not the model: its operators of torch, from the values before it, the weights as constants.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..parity.float_types import is_float
from . import wording
from .dataflow import Dataflow
from .node_attributes import attributes_of, kind_of
from .reference import Fragment, Reference
from .steps import Suspect

if TYPE_CHECKING:
    import onnx

__all__ = ["written_otherwise"]

Array = npt.NDArray[Any]


def written_otherwise(
    flow: Dataflow, reference: Reference, suspect: Suspect, held: Callable[[str], Array | None]
) -> list[str]:
    """Operators, constants or attributes that an export writes otherwise than the suspect's nodes; [] where none is known.

    Args:
        held: the value of a constant of the file.
    """
    if reference.declared(suspect.name) is not None:
        return []  # its attributes are those of the call: see `declared_attributes`
    ours = [n for n in (flow.nodes[k] for k in suspect.part.nodes) if _computes(flow, n)]
    version = next((o.version for o in flow.model.opset_import if o.domain in ("", "ai.onnx")), 20)
    try:
        fragment = reference.fragment(suspect.name)
        if fragment is None:
            return []
        model = _exported(fragment, version)
    except Exception:  # torch raises of every kind here, and the culprit is known without it
        return []
    written = Dataflow(model)
    theirs = [n for n in written.nodes if _computes(written, n)]
    kinds, wanted = [kind_of(n) for n in ours], [kind_of(n) for n in theirs]
    if kinds != wanted:
        return [wording.other_operators(kinds, wanted)] if wanted else []
    if own_constants := [
        line
        for mine, theirs_of_it in zip(ours, theirs, strict=True)
        for line in _constants(mine, theirs_of_it, held, written)
    ]:
        return own_constants
    arrays = [reference.values[n] for n in (*suspect.part.given, suspect.name) if n in reference.values]
    ranks = {array.ndim for array in arrays}
    return [
        wording.other_attribute(kind_of(mine), name, value, expected)
        for mine, theirs_of_it in zip(ours, theirs, strict=True)
        for name, value, expected in _differing(mine, theirs_of_it, version, ranks)
    ]


def _computes(flow: Dataflow, node: onnx.NodeProto) -> bool:
    """Not from constants alone, and more than another name."""
    return any(name not in flow.constant for name in node.output if name)


def _constants(
    mine: onnx.NodeProto, theirs: onnx.NodeProto, held: Callable[[str], Array | None], written: Dataflow
) -> Iterator[str]:
    """Floating constants; the others are sizes, which an export of one step at one size writes otherwise anyway."""
    from onnx import numpy_helper

    for position, (name, expected) in enumerate(zip(mine.input, theirs.input, strict=False)):
        array, stored = held(name), written.stored.get(expected)
        if array is None or stored is None or not hasattr(stored, "raw_data") or not is_float(array):
            continue
        value = numpy_helper.to_array(stored)
        if array.shape != value.shape:
            yield wording.other_constant(
                kind_of(mine), position, list(array.shape), list(value.shape), shapes=True
            )
        elif not bool(((array == value) | ((array != array) & (value != value))).all()):
            if array.size == 1:
                yield wording.other_constant(
                    kind_of(mine), position, float(array.flat[0]), float(value.flat[0])
                )
            else:
                at = np.unravel_index(int((array != value).argmax()), array.shape)
                yield wording.other_constant(
                    kind_of(mine), position, float(array[at]), float(value[at]), [int(i) for i in at]
                )


def _exported(fragment: Fragment, opset: int) -> onnx.ModelProto:
    import onnx_ir as ir
    import torch

    from ...export.graph import passes
    from ...export.graph.translation import OPSETS, translate

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(fragment.module, fragment.inputs)
        model = translate(program, opset=min(max(opset, OPSETS[0]), OPSETS[-1]))
    passes.optimize(model)
    written: onnx.ModelProto = ir.to_proto(model)
    return written


def _differing(
    mine: onnx.NodeProto, theirs: onnx.NodeProto, version: int, ranks: set[int]
) -> Iterator[tuple[str, Any, Any]]:
    defaults = _defaults(mine, version)
    ours, wanted = (defaults | attributes_of(node.attribute) for node in (mine, theirs))
    for name in dict.fromkeys((*ours, *wanted)):
        a, b = ours.get(name), wanted.get(name)
        if a != b and not (name.startswith("ax") and _same_axes(a, b, ranks)):
            yield name, a, b


def _defaults(node: onnx.NodeProto, version: int) -> dict[str, Any]:
    """What the standard says of attributes that are not written."""
    import onnx

    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return {}
    # one that is written carries its name; without a default there is none
    return attributes_of(a.default_value for a in schema.attributes.values() if a.default_value.name)


def _same_axes(a: Any, b: Any, ranks: set[int]) -> bool:
    """Counted from the front and from the end."""
    if isinstance(a, int) and isinstance(b, int):
        return (a < 0) != (b < 0) and abs(a - b) in ranks
    both: Sequence[Any] = (a, b)
    if not all(isinstance(v, list) for v in both) or len(a) != len(b):
        return False
    return all(x == y or _same_axes(x, y, ranks) for x, y in zip(a, b, strict=True))
