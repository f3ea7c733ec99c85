"""Where ONNX Runtime keeps images in blocked layout (NCHWc, on x86-64): between convolutions and poolings in float32.

A node that knows only NCHW in between costs two more passes over the tensor: ReorderOutput before it, ReorderInput after.
The conditions are those of the runtime's NCHWc transformer for blocks of 8 and of 16 channels (AVX2, AVX-512) alike.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from ...symbolic.graph_inspection.graph_view import GraphView, attribute

if TYPE_CHECKING:
    import onnx

__all__ = ["is_made_blocked", "next_blocked", "previous_blocked"]

_POOLS = {"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"}
# computed on blocked tensors as they are, or inside of the Conv before them
_ANY_LAYOUT = {"Clip", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh"}
_SUMS = {"Add"}
_FARTHEST = 8  # nodes looked at in a row
_MOST_READERS = 32


def is_made_blocked(view: GraphView, value: str) -> bool:
    """Does the value come out of a convolution in blocked layout, directly or through nodes that keep it?"""
    return previous_blocked(view, value) is not None


def previous_blocked(view: GraphView, value: str) -> onnx.NodeProto | None:
    """The convolution that the value comes from in blocked layout."""
    for _ in range(_FARTHEST):
        node = view.maker(value)
        if node is None or node.domain not in ("", "ai.onnx") or not node.input:
            return None
        if node.op_type == "Conv":
            return node if _takes_blocks(view, node) else None
        if node.op_type not in _POOLS | _ANY_LAYOUT | _SUMS:
            return None
        value = node.input[0]
    return None


def next_blocked(view: GraphView, value: str) -> onnx.NodeProto | None:
    """A convolution that reads the value in blocked layout."""
    for _ in range(_FARTHEST):
        readers = [n for n in islice(view.readers(value), _MOST_READERS) if n.domain in ("", "ai.onnx")]
        for node in readers:
            if node.op_type == "Conv" and node.input[0] == value and _takes_blocks(view, node, reader=True):
                return node
        onward = [n for n in readers if n.op_type in _POOLS | _ANY_LAYOUT | _SUMS and n.output]
        if not onward:
            return None
        value = onward[0].output[0]
    return None


def _takes_blocks(view: GraphView, conv: onnx.NodeProto, *, reader: bool = False) -> bool:
    """`reader`: its input must be blocked too, which that of a Conv with few channels is not."""
    if len(conv.input) < 2 or conv.input[1] not in view.constants or view.dtype(conv.input[1]) != "float32":
        return False
    size = view.size(conv.input[1])
    if size is None or len(size) != 4 or not all(isinstance(d, int) for d in size):
        return False
    made, read = int(size[0]), int(size[1])
    groups = attribute(conv, "group", 1)
    if not isinstance(groups, int):
        return False
    if groups == 1:
        return read % 4 == 0 and read >= 16 if reader else read < 8 or read % 4 == 0
    if read == 1 and made == groups:
        return made % 16 == 0
    return groups > 0 and read % 16 == 0 and made % groups == 0 and (made // groups) % 16 == 0
