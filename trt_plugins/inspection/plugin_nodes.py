"""The nodes that need a plugin: found or not, a body in its place, inputs and element types that no plugin takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...native.kernel_manifest import KernelInterface
from ...symbolic.graph_inspection.findings import FAILS, HURTS, NOTE, Finding, where
from ...symbolic.graph_inspection.node_uses import Call, NodeUse
from ...symbolic.graph_inspection.standard_types import as_text, schema_at
from ...symbolic.plugin_attributes import ABSENT_INPUTS, SHAPE_INPUTS
from ..library_manifest import Plugin
from .node_attributes import attribute_findings, undescribed_findings
from .plugin_lookup import Asked, Lookup, asked_of, own_plugin
from .standard_nodes import OTHER_NAME, means_another, taken_for_standard
from .tensorrt_limits import TensorRTLimits

__all__ = ["PluginNodes", "PluginOperator"]

_NEWEST = 1 << 20  # an opset beyond all
_NODE_MODE = "Export with --custom-ops node, which leaves the bodies out"
_FIT = "for trtexec and other builders: fit_plugin_nodes (docs/tensorrt.md)"
_SHOWN = 6
_ANY = 1 << 30  # inputs


@dataclass(frozen=True, slots=True)
class PluginOperator:
    """An operator that is none of the parser's, as the model uses it.

    Attributes:
        nodes: how many.
        plugins: how many of them find a plugin; bodies: how many run as a body of the file.
        files: names of the files with the plugins.
    """

    domain: str
    op_type: str
    nodes: int
    plugins: int
    bodies: int
    files: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"files": list(self.files)}

    def __str__(self) -> str:
        facts = []
        if self.plugins:
            part = "" if self.plugins == self.nodes else f"{self.plugins} of {self.nodes} "
            facts.append(f"{part}with a plugin in {', '.join(self.files)}")
        if self.bodies:
            part = "" if self.bodies == self.nodes else f"{self.bodies} of {self.nodes} "
            facts.append(f"{part}as a body of the file")
        name = f"{self.domain}::{self.op_type}" if self.domain else self.op_type
        return f"{self.nodes} × {name} ({', '.join(facts) or 'no plugin'})"


class PluginNodes:
    """Looks the nodes of one model up."""

    def __init__(self, lookup: Lookup, bodies: Mapping[str, Sequence[tuple[str, str]]]) -> None:
        """`bodies`: names of the model's functions -> domain and overload of each, in the file's order."""
        self._lookup, self._limits, self._bodies = lookup, lookup.limits, bodies

    def is_standard(self, use: NodeUse | Call) -> bool:
        """Does the parser take it for an operator of its own, or should it?"""
        return use.op_type in self._limits.operators or (
            not use.domain and schema_at(use.op_type, _NEWEST) is not None
        )

    def runs(self, node: Any, domain: str) -> Plugin | None:
        """The plugin that runs a node: a body of its name may come first."""
        asked = asked_of(node, domain)
        if asked.name in self._limits.operators:
            return None
        if asked.name not in self._bodies:
            return self._lookup.find(asked)
        return self._lookup.as_stated(asked) if self._limits.plugin_before_body else None

    def runs_body(self, node: Any, domain: str) -> bool:
        """Whether the parser puts a body of the file in the place of a node."""
        name = as_text(node.op_type)
        own = name in self._limits.operators
        return name in self._bodies and not own and self.runs(node, domain) is None

    def native(self, call: Call) -> Sequence[str | None] | None:
        """Element types of what a plugin gives; None where a body is read."""
        if call.op_type in self._limits.operators:
            return ()
        plugin = self.runs(call.node, call.domain)
        if plugin is None:
            return None
        inputs = tuple(map(as_tensorrt, call.inputs))
        return () if plugin.interface is None else plugin.interface.output_dtypes(inputs)

    def unknown(self, use: NodeUse) -> bool:
        """Whether a plugin may be there of which nothing is known."""
        if self.is_standard(use) or use.node is None or use.op_type in self._bodies:
            return False
        asked = asked_of(use.node, use.domain)
        return self._lookup.find(asked) is None and (own_plugin(asked) or not self._lookup.complete)

    def findings(self, use: NodeUse) -> Iterator[Finding]:
        """What is wrong with a node that is not the standard's."""
        assert use.node is not None
        asked = asked_of(use.node, use.domain)
        if asked.name in self._limits.operators:
            if means_another(use.domain, asked.name) or asked.stated:
                yield self._standard(use, asked)
            return
        if asked.name in self._limits.later and self._limits.collected is not None and use.domain:
            what = f"newer TensorRTs have an operator {asked.name} of their own, and take it instead, whatever the domain"
            yield Finding(NOTE, "standard-name", where(use), what, "Choose another name for the operator")
        plugin = self.runs(use.node, use.domain)
        if plugin is not None:
            yield from self._of_plugin(use, plugin)
        elif asked.name in self._bodies:
            yield from self._body(use, asked)
            if self._limits.plugin_before_body and not self._lookup.complete:  # a plugin may come first
                yield from undescribed_findings(use)
        elif self.unknown(use):
            yield from undescribed_findings(use)
        else:
            reason = self._lookup.why_not(asked)
            yield Finding(FAILS, reason.kind, where(use), reason.what, reason.advice)

    def operators(self, uses: Sequence[NodeUse]) -> tuple[PluginOperator, ...]:
        """Each operator that is none of the parser's, by name."""
        counts: Counter[tuple[str, str]] = Counter()
        plugins: Counter[tuple[str, str]] = Counter()
        bodies: Counter[tuple[str, str]] = Counter()
        files: dict[tuple[str, str], dict[str, None]] = {}
        for use in uses:
            if self.is_standard(use) or use.node is None:
                continue
            key = (use.domain, use.op_type)
            counts[key] += 1
            plugin = self.runs(use.node, use.domain)
            if plugin is not None:
                plugins[key] += 1
                files.setdefault(key, {})[self._lookup.file_of(plugin)] = None
            elif use.op_type in self._bodies:
                bodies[key] += 1
        return tuple(
            PluginOperator(*key, count, plugins[key], bodies[key], tuple(files.get(key, ())))
            for key, count in sorted(counts.items())
        )

    def _standard(self, use: NodeUse, asked: Asked) -> Finding:
        plugin = "; the plugin of this name is never asked" if self._lookup.named(asked.name) else ""
        what = taken_for_standard(use.title, asked.name) + plugin
        return Finding(FAILS, "standard-name", where(use), what, OTHER_NAME)

    def _body(self, use: NodeUse, asked: Asked) -> Iterator[Finding]:
        assert use.node is not None
        first, *rest = self._bodies[asked.name]
        own = (use.domain, as_text(use.node.overload))
        if own != first and own in rest:
            what = (
                f"the file has {1 + len(rest)} bodies named {asked.name}, told apart by overload or domain: TensorRT's parser "
                f"runs the first of them in the place of this node, which has another"
            )
            advice = f"{_NODE_MODE}, and give a plugin; or with --custom-ops standard, which expands them"
            yield Finding(FAILS, "body-overloads", where(use), what, advice)
        elif own != first:
            what = (
                f"{use.title} has no body, but {first[0]}::{asked.name} has: TensorRT's parser looks at the name alone, and "
                "takes that"
            )
            yield Finding(FAILS, "body-of-another", where(use), what, "Give the functions names of their own")
        plugins = self._lookup.named(asked.name)
        if not plugins:
            return
        if self._lookup.find(asked) is None:
            reason = self._lookup.why_not(asked)
            what = f"a body of the file runs instead of the plugin: {reason.what}"
            yield Finding(HURTS, "body-instead-of-plugin", where(use), what, reason.advice)
        elif not self._limits.plugin_before_body:
            what = f"{self._limits.title} runs the body of {use.title} in the file, not the plugin: plugins come first since 10.7"
            yield Finding(HURTS, "body-instead-of-plugin", where(use), what, _NODE_MODE)
        else:
            what = (
                f"a body of the file runs instead of the plugin: where there is a body, TensorRT looks for the plugin in the "
                f"namespace {asked.namespace!r} alone, not in the node's domain"
            )
            advice = (
                "Export again: nodes then carry plugin_namespace; or leave out the bodies, --custom-ops node"
            )
            yield Finding(HURTS, "body-instead-of-plugin", where(use), what, advice)

    def _of_plugin(self, use: NodeUse, plugin: Plugin) -> Iterator[Finding]:
        yield from attribute_findings(use, plugin)
        if any(not name for name in use.node.input):  # type: ignore[union-attr]
            what = f"{use.title} has an absent input (''), which TensorRT's parser cannot hand to a plugin"
            if plugin.operator and ABSENT_INPUTS in use.attributes and use.node.input[0]:  # type: ignore[union-attr]
                advice = (
                    f"`deployops engine build` puts a tensor in its place, which the plugin knows; {_FIT}"
                )
                yield Finding(NOTE, "absent-input", where(use), what, advice)
            else:
                advice = "Give the input: zeros or ones, as the operator has it; at the end of the inputs, leave it out"
                yield Finding(FAILS, "absent-input", where(use), what, advice)
        elif plugin.interface is not None:
            yield from _call_findings(use, plugin, plugin.interface, self._limits)
            yield from _dtype_findings(use, plugin.interface)


def as_tensorrt(dtype: str | None) -> str | None:
    """The type of the tensor that TensorRT makes of one of an ONNX type."""
    return "float32" if dtype == "float64" else dtype


def _call_findings(
    use: NodeUse, plugin: Plugin, interface: KernelInterface, limits: TensorRTLimits
) -> Iterator[Finding]:
    count, forms = len(use.inputs), [a.form for a in interface.inputs]
    # an optional one before a single one cannot be left out
    least = max((k + 1 for k, form in enumerate(forms) if form == "single"), default=0)
    most = len(forms)
    if "variadic" in forms:  # where the list may be empty
        least, most = forms.count("single"), _ANY
    if not least <= count <= most:
        takes = f"{least} or more" if most == _ANY else f"{least}" if least == most else f"{least} to {most}"
        what = f"{use.title} has {count} inputs here; the plugin takes {takes}"
        yield Finding(FAILS, "inputs", where(use), what, "Export the model again")
    gives = len(interface.outputs) + len(plugin.data_sizes)
    named = sum(bool(name) for name in use.node.output)  # type: ignore[union-attr]
    if interface.outputs and (named > gives or (named < gives and limits.wants_every_output)):
        what = f"{use.title} names {named} outputs here; the plugin gives {gives}, and TensorRT wants all of them named"
        if plugin.operator and named < gives:
            advice = f"`deployops engine build` names them; {_FIT}"
            yield Finding(NOTE, "outputs", where(use), what, advice)
        else:
            yield Finding(FAILS, "outputs", where(use), what, "Name every output of the plugin, and no more")
    places = {k for k, a in enumerate(interface.inputs) if a.name in plugin.shape_inputs}
    told = next((a for a in use.node.attribute if a.name == SHAPE_INPUTS), None)  # type: ignore[union-attr]
    if places and (told is None or {k % max(count, 1) for k in told.ints} != places):
        what = f"{use.title} does not say that {', '.join(plugin.shape_inputs)} is a shape input, which the plugin reads it as"
        advice = f"Export the model again: deployops writes {SHAPE_INPUTS}"
        yield Finding(FAILS, "shape-inputs", where(use), what, advice)


def _dtype_findings(use: NodeUse, interface: KernelInterface) -> Iterator[Finding]:
    absent = _filled_in(use)
    inputs = tuple(None if k in absent else as_tensorrt(d) for k, d in enumerate(use.inputs))
    strange = any(interface.input_at(k) is None for k in range(len(inputs)))  # too many, which is told
    if strange or any(interface.takes(s, inputs) for s in interface.signatures):
        return
    names = [a.name if a else "?" for a in (interface.input_at(k) for k in range(len(inputs)))]
    asked = ", ".join(f"{n}: {d}" for n, d in zip(names, inputs, strict=True) if d is not None)
    rows = ["(" + ", ".join(f"{n}: {d}" for n, d in s.inputs.items()) + ")" for s in interface.signatures]
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    what = f"{use.title}: the plugin has no kernel for ({asked}); there are {', '.join(rows[:_SHOWN]) or 'none'}{more}"
    yield Finding(
        FAILS, "dtype", where(use), what, "Cast around the node, deploy in another dtype, or declare it"
    )


def _filled_in(use: NodeUse) -> set[int]:
    """Inputs that stand for absent ones, of any type (`trt_plugins/fitted_nodes.py`)."""
    told = next((a for a in use.node.attribute if a.name == ABSENT_INPUTS), None)  # type: ignore[union-attr]
    parts = [] if told is None or told.type != told.STRING else as_text(told.s).split(",")
    return {int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 6}
