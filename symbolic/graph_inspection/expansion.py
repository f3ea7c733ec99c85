"""How many nodes a model has once its functions are put where they are called.

Forty functions that each call the next one twice are a file of a few kilobytes and a trillion nodes; whoever expands them
never comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..nested_graphs import nested_nodes
from .node_uses import domain_key
from .standard_types import as_text

if TYPE_CHECKING:
    import onnx

__all__ = ["MOST_NODES", "Expansion", "counted_in_words", "expansion", "too_large"]

MOST_NODES = 1_000_000  # of real models the largest have some ten thousand
_COUNTED = 10**18  # no further: a chain of functions that double makes numbers of any length

FunctionKey = tuple[str, str, str]  # domain, name, overload


@dataclass(frozen=True, slots=True)
class Expansion:
    """What a model would become.

    Attributes:
        nodes: of the expanded model.
        largest: the function that becomes the most, `domain::name`, called or not; "" without functions.
        largest_nodes: how many.
        recursive: functions that call themselves; they count as one node.
        depth: of functions called in functions, from the main graph on; 0 where it calls none.
    """

    nodes: int
    largest: str = ""
    largest_nodes: int = 0
    recursive: tuple[str, ...] = ()
    depth: int = 0

    @property
    def is_bomb(self) -> bool:
        """Whether nobody should expand it."""
        return self.nodes > MOST_NODES


def expansion(
    model: onnx.ModelProto, stays: Callable[[onnx.NodeProto], bool] = lambda node: False
) -> Expansion:
    """Count the nodes, each function once. `stays`: a node that something native runs, so that its body is not used."""
    bodies: dict[FunctionKey, onnx.FunctionProto] = {}
    for f in model.functions:
        bodies.setdefault((domain_key(f.domain), as_text(f.name), as_text(f.overload)), f)
    calls: dict[FunctionKey, dict[FunctionKey, int]] = {}
    plain: dict[FunctionKey, int] = {}
    for key, body in bodies.items():
        calls[key], plain[key] = _called(body.node, bodies, stays)
    sizes: dict[FunctionKey, int] = {}
    depths: dict[FunctionKey, int] = {}
    recursive: dict[FunctionKey, None] = {}
    for start in bodies:
        opened = (
            {} if start in sizes else {start: iter(calls[start])}
        )  # in the order in which they were opened
        while opened:
            key = next(reversed(opened))
            inner = next((c for c in opened[key] if c not in sizes), None)
            if inner is None:
                size = plain[key] + sum(n * sizes.get(c, 1) for c, n in calls[key].items())
                sizes[key] = min(size, _COUNTED)
                depths[key] = 1 + max((depths.get(c, 0) for c in calls[key]), default=0)
                del opened[key]
            elif inner in opened:
                recursive[inner] = None
            else:
                opened[inner] = iter(calls[inner])
    main, total = _called(model.graph.node, bodies, stays)
    total += sum(n * sizes[c] for c, n in main.items())
    largest = max(sizes, key=lambda key: sizes[key], default=None)
    return Expansion(
        min(total, _COUNTED),
        _title(largest) if largest else "",
        sizes[largest] if largest else 0,
        tuple(map(_title, recursive)),
        max((depths[c] for c in main), default=0),
    )


def counted_in_words(nodes: int) -> str:
    """`1,048,575`; `1.1e+16` where nobody reads the digits."""
    if nodes >= _COUNTED:
        return f"more than {_COUNTED:.0e}"
    return f"{nodes:,}" if nodes < 10**15 else f"{nodes:.1e}"


def too_large(expanded: Expansion) -> tuple[str, str]:
    """What to say of a bomb, and what to do."""
    nodes = expanded.nodes if expanded.is_bomb else expanded.largest_nodes
    what = (
        f"the model has functions that call each other: without them it is {counted_in_words(nodes)} nodes, and more "
        f"than {MOST_NODES:,} are refused. The largest is {expanded.largest}"
    )
    return what, "Export it again, without functions"


def _title(key: FunctionKey) -> str:
    return f"{key[0]}::{key[1]}"[:200]


def _called(
    nodes: Iterable[onnx.NodeProto],
    bodies: dict[FunctionKey, onnx.FunctionProto],
    stays: Callable[[onnx.NodeProto], bool],
) -> tuple[dict[FunctionKey, int], int]:
    """Each function that is called with how often, and how many other nodes there are."""
    called: dict[FunctionKey, int] = {}
    plain = 0
    for node in nested_nodes(nodes):
        key = (domain_key(node.domain), as_text(node.op_type), as_text(node.overload))
        if key in bodies and not stays(node):
            called[key] = called.get(key, 0) + 1
        else:
            plain += 1
    return called, plain
