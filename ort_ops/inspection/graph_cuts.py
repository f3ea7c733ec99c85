"""Where a custom node keeps ONNX Runtime from what it would do with the standard nodes around it.

Looked for: fusions of two neighbours (`fusions.py`), norms written as many nodes (`decomposed_norms.py`), blocked layout
(`blocked_layout.py`), constants that are not folded, equal nodes that are computed twice, and casts around float16. A node
whose body the runtime expands cuts nothing and is passed over; nodes inside of functions are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...symbolic.graph_inspection.domains import is_custom
from ...symbolic.graph_inspection.findings import HURTS, NOTE, Finding, where
from ...symbolic.graph_inspection.graph_view import GraphView, GraphViews
from ...symbolic.graph_inspection.node_uses import GraphUses, ModelUses, NodeUse
from ...symbolic.node_source import source_words
from ..shipped_operators import shipped_versions
from .blocked_layout import next_blocked, previous_blocked
from .custom_nodes import Kernels
from .decomposed_norms import interrupted_pattern
from .fusions import Pair, rules_for
from .runtime_limits import RuntimeLimits
from .stand_ins import STAND_INS

if TYPE_CHECKING:
    import onnx

__all__ = ["cut_findings"]

# What no model has, and a file made to take forever may have.
_MOST_INPUTS = 16
_MOST_STEPS = 1_000_000

_EXPANDED = "Without the library ONNX Runtime expands the body in the file, and fuses it. "


def cut_findings(
    uses: ModelUses, kernels: Kernels, limits: RuntimeLimits, views: GraphViews
) -> Iterator[Finding]:
    """What the custom nodes of the main graph and its subgraphs cut."""
    for graph in uses.graphs:
        staying = {k: u for k, u in graph.custom.items() if is_custom(u.domain) and kernels.stays_a_node(u)}
        if staying:
            yield from _Cuts(graph, views.of(graph), limits).findings(staying)


class _Cuts:
    """The search in one graph."""

    def __init__(self, graph: GraphUses, view: GraphView, limits: RuntimeLimits) -> None:
        self._view = view
        self._limits = limits
        self._runtime = f"ONNX Runtime {limits.version}"
        self._opset = graph.opset
        self._steps = 0  # spent on counting what would be folded
        self._seen: dict[tuple[object, ...], NodeUse] = {}

    def findings(self, staying: dict[int, NodeUse]) -> Iterator[Finding]:
        for k, use in staying.items():
            node = self._view.nodes[k]
            live = self._view.data_inputs(node)
            yield from self._repeated(node, use)
            if not live:
                yield from self._not_folded(node, use)
                continue
            yield from self._casts(node, use, live)
            if len(node.input) > _MOST_INPUTS:
                continue
            yield from self._stand_in(node, use)
            yield from self._layout(node, use, live)
            if len(live) == 1 and node.output:
                yield from self._between(node, use, live[0])

    def _between(self, node: onnx.NodeProto, use: NodeUse, into: str) -> Iterator[Finding]:
        view = self._view
        before, after = view.maker(into), view.only_reader(node.output[0])
        if view.dtype(into) == "float32" and before is not None and after is not None:
            alone = view.only_reader(into) is node
            few = max(len(before.input), len(after.input)) <= _MOST_INPUTS
            if alone and few and not before.domain and not after.domain:
                pair = Pair(view, before, into, node.output[0], after)
                for rule in rules_for(before.op_type):
                    if rule.name in self._limits.fusions and rule.matches(pair):
                        does = rule.does.format(before=before.op_type, after=after.op_type)
                        what = f"{self._runtime} {does}; {use.title} stands between {_named(before)} and {_named(after)}"
                        yield Finding(HURTS, "cut-fusion", where(use), what, _advice(use, after.op_type))
                        break
        if view.dtype(into) == "float32" and (pattern := interrupted_pattern(view, node, into)):
            name, made = pattern
            if name in self._limits.fusions:
                what = f"{self._runtime} makes the nodes around {use.title} one {made}, but for that node in the middle of them"
                yield Finding(HURTS, "cut-fusion", where(use), what, _advice(use, made))

    def _stand_in(self, node: onnx.NodeProto, use: NodeUse) -> Iterator[Finding]:
        """A shipped operator where the standard one would be fused away."""
        for name, standard, fits in STAND_INS.get(use.title, ()):
            for into in node.input:
                before = self._view.maker(into)
                right = name in self._limits.fusions and self._view.dtype(into) == "float32"
                if (
                    right
                    and before is not None
                    and not before.domain
                    and fits(self._view, into, before, node)
                ):
                    what = (
                        f"{self._runtime} computes {standard} together with {_named(before)} before it; {use.title} is a "
                        "node of its own"
                    )
                    yield Finding(HURTS, "cut-fusion", where(use), what, _advice(use, standard))
                    return

    def _layout(self, node: onnx.NodeProto, use: NodeUse, live: list[str]) -> Iterator[Finding]:
        if "layout" not in self._limits.fusions or not node.output:
            return
        for into in live:
            if self._view.dtype(into) != "float32":
                continue
            before, after = previous_blocked(self._view, into), next_blocked(self._view, node.output[0])
            if before is not None and after is not None:
                what = (
                    f"{self._runtime} keeps tensors between convolutions in blocked layout (NCHWc, x86-64); {use.title} between "
                    f"{_named(before)} and {_named(after)} works in NCHW: one more pass over the tensor before it, one after"
                )
                yield Finding(HURTS, "cut-layout", where(use), what, _advice(use, ""))
                return

    def _not_folded(self, node: onnx.NodeProto, use: NodeUse) -> Iterator[Finding]:
        if not node.input or "constants" not in self._limits.fusions:
            return
        behind = self._folded_with(node)
        more = f", and {behind} nodes after it that would be folded with it" if behind else ""
        what = f"all inputs of {use.title} are constants, and {self._runtime} folds no custom node: it runs every time{more}"
        advice = "Compute it before the export and store the result as a weight"
        yield Finding(HURTS, "not-folded", where(use), what, advice)

    def _folded_with(self, node: onnx.NodeProto) -> int:
        """How many standard nodes have nothing but constants and this node's results as inputs."""
        constant, count, border = set(node.output), 0, [node]
        seen: set[int] = set()
        while border and self._steps < _MOST_STEPS:
            following = []
            for value in (name for n in border for name in n.output):
                for reader in self._view.readers(value):
                    self._steps += len(reader.input)
                    if self._steps > _MOST_STEPS:
                        return count
                    fixed = all(not n or n in constant or n in self._view.constants for n in reader.input)
                    if fixed and not reader.domain and id(reader) not in seen:
                        seen.add(id(reader))
                        constant.update(reader.output)
                        following.append(reader)
                        count += 1
            border = following
        return count

    def _repeated(self, node: onnx.NodeProto, use: NodeUse) -> Iterator[Finding]:
        key = (
            node.domain, node.op_type, tuple(node.input), tuple(sorted(a.SerializeToString() for a in node.attribute))
        )  # fmt: skip
        first = self._seen.setdefault(key, use)
        if first is not use and node.input:
            what = f"{use.title} is computed from the same inputs as {where(first)}, and ONNX Runtime merges no custom nodes"
            yield Finding(
                NOTE, "repeated", where(use), what, "Unless it is random, compute it once in the model"
            )

    def _casts(self, node: onnx.NodeProto, use: NodeUse, live: list[str]) -> Iterator[Finding]:
        """float16 between standard nodes that the runtime computes in float32."""
        if self._opset is None or not any(self._view.dtype(name) == "float16" for name in live):
            return
        makers = [m for name in live if (m := self._view.maker(name)) is not None]
        readers = [r for name in node.output for r in self._view.readers(name)]
        emulated = [n for n in (*makers, *readers) if self._is_emulated(n, self._opset)]
        if emulated:
            what = (
                f"{self._runtime} computes {_named(emulated[0])} in float32, and {use.title} is given float16: a cast at each "
                "of its borders"
            )
            yield Finding(HURTS, "cut-float32", where(use), what, "On this provider deploy in float32")

    def _is_emulated(self, node: onnx.NodeProto, opset: int) -> bool:
        return not node.domain and "float16" in self._limits.gaps(node.op_type, opset).get("cast", "").split()


def _named(node: onnx.NodeProto) -> str:
    source = source_words(node)
    if node.name:
        return f"{node.op_type} {node.name!r}" + (f" ({source})" if source else "")
    made = f"makes {node.output[0] if node.output else ''!r}"
    return f"{node.op_type} ({made}{', ' if source else ''}{source})"


def _advice(use: NodeUse, other: str) -> str:
    if use.has_body or shipped_versions(use.domain, use.op_type):
        return f"{_EXPANDED if use.has_body else ''}Export with --custom-ops standard to leave it to ONNX Runtime, or move it"
    if not other:
        return "Move it to where no convolution follows, or export it with a body of standard operators"
    return f"Move it from between, or let its kernel do the work of {other} too"
