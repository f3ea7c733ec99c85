"""Everything that is checked of an ONNX model for a TensorRT, in order, and what could not be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import UsageError
from ...symbolic.graph_inspection.findings import Finding, sorted_findings, verdict_of
from ...symbolic.graph_inspection.node_uses import ModelUses, NodeUse, domain_key, model_uses
from ...symbolic.graph_inspection.standard_types import as_text
from ...symbolic.graph_inspection.structure import structure_findings
from ...symbolic.plugin_attributes import PLUGIN_NAMESPACE, PLUGIN_VERSION
from ..library_manifest import PluginManifest
from .attribute_references import reference_findings
from .bodies import body_findings
from .engine_needs import engine_findings
from .libraries import library_findings
from .plugin_lookup import Lookup
from .plugin_nodes import PluginNodes, PluginOperator
from .standard_nodes import operator_findings, opset_findings, type_findings, unknown_operators
from .tensorrt_limits import TensorRTLimits

if TYPE_CHECKING:
    import onnx

__all__ = ["Checked", "check_model"]

# What ONNX Runtime refuses and TensorRT's parser does not: it sorts the nodes of every graph, and warns of equal names.
_NO_FAULT = {"node-name-twice", "subgraph-order"}


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found of a model, for one TensorRT and a set of plugins.

    `not_checked`: what could not be, one sentence each. `unread`: parts of the model that nothing was looked at in.
    """

    tensorrt: TensorRTLimits
    plugins: tuple[PluginManifest, ...]
    operators: tuple[PluginOperator, ...]
    findings: tuple[Finding, ...]
    not_checked: tuple[str, ...]
    unread: tuple[str, ...] = ()
    label: ClassVar[str] = "plugin"
    hurting: ClassVar[str] = "worse than meant"

    @property
    def title(self) -> str:
        """`TensorRT 10.8`."""
        return self.tensorrt.title

    @property
    def verdict(self) -> str:
        """As `verdict_of` says it."""
        return verdict_of(self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for `--json`."""
        return {
            "verdict": self.verdict,
            "tensorrt": self.tensorrt.to_dict(),
            "plugins": [
                {
                    "name": m.name,
                    "sha256": m.sha256 or None,
                    "plugins": None if m.plugins is None else len(m.plugins),
                    "archs": list(m.archs),
                }
                for m in self.plugins
            ],
            "operators": [o.to_dict() for o in self.operators],
            "findings": [f.to_dict() for f in self.findings],
            "not_checked": list(self.not_checked),
        }


def check_model(
    model: onnx.ModelProto,
    tensorrt: TensorRTLimits,
    plugins: Sequence[PluginManifest] = (),
    *,
    archs: Sequence[int] = (),
) -> Checked:
    """Hold a parsed model against a TensorRT and plugins. Nothing of either is loaded, and nothing is run.

    Args:
        model: with or without its external weights: they are not looked at.
        tensorrt: as `limits_for` gives them.
        plugins: as `library_manifest.read_plugins` reads them.
        archs: GPUs that the libraries shall run on, 89 for compute capability 8.9.

    Raises UsageError for archs that are none.
    """
    if not all(type(a) is int and 50 <= a < 1000 for a in archs):
        raise UsageError(f"archs = {list(archs)}: compute capabilities are expected, 89 for 8.9")
    bodies: dict[str, list[tuple[str, str]]] = {}
    for function in model.functions:
        own = (domain_key(function.domain), as_text(function.overload))
        bodies.setdefault(as_text(function.name), []).append(own)
    nodes = PluginNodes(Lookup(plugins, tensorrt), bodies)
    uses = model_uses(model, nodes.native)
    others = [use for use in uses.uses if use.domain or not nodes.is_standard(use) or _states_plugin(use)]
    findings = [
        *opset_findings(model, tensorrt),
        *(f for f in structure_findings(model) if f.kind not in _NO_FAULT),
        *library_findings(plugins, tensorrt, archs),
        *(finding for use in others for finding in nodes.findings(use)),
        *body_findings(model, uses, nodes),
        *reference_findings(model, nodes),
        *operator_findings([use for use in uses.uses if not _has_plugin(use, nodes)], tensorrt),
        *type_findings(model, uses.uses, tensorrt),
        *engine_findings(model.graph),
    ]
    return Checked(
        tensorrt,
        tuple(plugins),
        nodes.operators(others),
        sorted_findings(findings),
        tuple(_not_checked(uses, nodes, tensorrt, plugins)),
        tuple(uses.incomplete),
    )


def _states_plugin(use: NodeUse) -> bool:
    return PLUGIN_VERSION in use.attributes or PLUGIN_NAMESPACE in use.attributes


def _has_plugin(use: NodeUse, nodes: PluginNodes) -> bool:
    return use.node is not None and nodes.runs(use.node, use.domain) is not None


def _not_checked(
    uses: ModelUses, nodes: PluginNodes, limits: TensorRTLimits, plugins: Sequence[PluginManifest]
) -> Iterator[str]:
    if not limits.is_known:
        yield f"what {limits.title} takes: no such version is known{limits.taken_from}"
    yield from unknown_operators(uses.uses, limits)
    for manifest in plugins:
        if manifest.plugins is None:
            yield (
                f"which plugins {manifest.name} has: there is no manifest beside it, and it is not loaded. Describe them in a "
                "JSON file (--plugins FILE.json)"
            )
    counts = Counter(use.title for use in uses.uses if nodes.unknown(use))
    for title, count in sorted(counts.items()):
        yield f"whether {title} ({count} node{'' if count == 1 else 's'}) finds a plugin: none is known to have it"
    without = sum(
        use.node is not None
        and (plugin := nodes.runs(use.node, use.domain)) is not None
        and plugin.interface is None
        for use in uses.uses
    )
    if without:
        yield f"inputs and element types of {without} plugin node{'' if without == 1 else 's'}: the description does not tell them"
    unknown = sum(
        any(d is None and k not in use.absent for k, d in enumerate(use.inputs)) for use in uses.uses
    )
    if unknown:
        yield f"the element types at {unknown} nodes, which the file does not tell"
    yield from (f"{text} (the file has more than is read)" for text in uses.incomplete)
