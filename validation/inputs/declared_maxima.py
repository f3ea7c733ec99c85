"""The declared maxima that a quick sweep tries as well: those that cost little, by what the file would compute there.

A kernel that leaves out what is beyond its block passes every small size. A maximum may be far from the example, though,
and a model of images takes minutes there: what is not tried is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ...symbolic.graph_inspection.domains import is_custom
from .file_inputs import file_inputs
from .sizes import OpenDim, highest

if TYPE_CHECKING:
    import onnx

    from ...export.inputs.signature import Signature
    from ..latency.graph_cost import NodeCost

__all__ = ["MOST_FLOPS", "MOST_TRAFFIC", "cheap_sizes", "declared_maxima"]

# Of one run of the file: a tenth of a second on a few cores. A sample takes some ten of these on all sides.
MOST_FLOPS = 2**29
MOST_TRAFFIC = 2**27  # bytes that its nodes read and write
_CONTROL = frozenset({"If", "Loop", "Scan"})
MOST_ALONE = 4  # dims that are tried alone, where all together cost too much

Sizes = Mapping[str, int]


def declared_maxima(
    dims: Sequence[OpenDim],
    tried: Sequence[Sizes],
    cheap: Callable[[Sizes], bool],
    notes: dict[str, None],
) -> list[dict[str, int]]:
    """Sizes to try besides `tried`: every dim at its declared maximum, else each alone; what is not tried is noted.

    Args:
        tried: size sets, the example's first.
        cheap: whether a run at these sizes costs little.
    """
    ends = {d.name: highest(d) for d in dims if d.high is not None}
    if not ends or any(_at(sizes, ends) for sizes in tried):
        return []
    example = {d.name: d.example for d in dims}
    together = example | ends
    if cheap(together):
        return [together]
    found: list[dict[str, int]] = []
    for name, size in ends.items():
        alone = example | {name: size}
        known = [*tried, *found]
        if len(ends) > 1 and len(found) < MOST_ALONE and not any(s[name] == size for s in known):
            found += [alone] if cheap(alone) else []
    notes |= dict.fromkeys(_untried(ends, [*tried, *found]))
    return found


def _at(sizes: Sizes, ends: Sizes) -> bool:
    return all(sizes[name] == size for name, size in ends.items())


def _untried(ends: Sizes, tried: Sequence[Sizes]) -> Iterator[str]:
    missed = {n: size for n, size in ends.items() if not any(s[n] == size for s in tried)}
    if missed:
        one = len(missed) == 1
        listed = ", ".join(f"{size} of {name}" for name, size in missed.items())
        yield (
            f"the declared {'maximum' if one else 'maxima'} {listed} {'was' if one else 'were'} not tried, for the cost: "
            f"--sweep full tries {'it' if one else 'them'}"
        )
    else:
        listed = " with ".join(f"{name}={size}" for name, size in ends.items())
        yield f"the declared maxima were tried one by one, and not {listed}, for the cost: --sweep full tries that"


def _may_be_much(node: NodeCost) -> bool:
    """Whether a node whose operations are not known may do far more of them than it has numbers."""
    return is_custom(node.domain) or node.op_type in _CONTROL


def cheap_sizes(model: onnx.ModelProto | None, signature: Signature) -> Callable[[Sizes], bool]:
    """Whether one run of the file at given sizes is within `MOST_FLOPS` and `MOST_TRAFFIC`; what is not known is not cheap."""
    from ...export.inputs.input_spec import Symbol
    from ..latency.graph_cost import model_cost
    from ..latency.values import Value

    declared = {s.name: s for s in signature.specs if s.is_tensor and s.shape is not None}

    def cheap(sizes: Sizes) -> bool:
        if model is None:
            return False
        inputs = file_inputs(model.graph)
        specs = [declared.get(i.name) for i in inputs]
        if None in specs:
            specs = [*declared.values()] if len(declared) == len(inputs) else []
        values = {
            i.name: Value(
                i.dtype, tuple(sizes[d.name] if isinstance(d, Symbol) else d for d in s.shape or ())
            )
            for i, s in zip(inputs, specs, strict=False)
            if s is not None
        }
        if len(values) != len(inputs) or sum(v.size for v in values.values()) > MOST_TRAFFIC:
            return False
        try:
            cost = model_cost(model, values)
        except Exception:  # onnx's shape inference raises of every kind on files of others
            return False
        known = all(
            node.cost is not None and (node.cost.counted or not _may_be_much(node)) for node in cost.nodes
        )
        traffic = sum(node.cost.bytes for node in cost.nodes if node.cost is not None)
        return known and sum(cost.flops.values()) <= MOST_FLOPS and traffic <= MOST_TRAFFIC

    return cheap
