"""How TensorRT's parser finds the plugin of a node, and why it finds none."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...symbolic.graph_inspection.standard_types import as_text
from ...symbolic.plugin_attributes import PLUGIN_NAMESPACE, PLUGIN_VERSION
from ..library_manifest import Plugin, PluginManifest
from .tensorrt_limits import TensorRTLimits

if TYPE_CHECKING:
    import onnx

__all__ = ["Asked", "Lookup", "NotFound", "asked_of", "own_plugin"]

_SHOWN = 6  # alternatives in a message
_MOST_SEARCHES = 50  # names of nodes for which the nearest plugin is looked for: a file may have any number


@dataclass(frozen=True, slots=True)
class Asked:
    """What a node asks the registry for.

    Attributes:
        version, namespace: as the parser reads them, "" where an attribute is no text.
        odd: attributes that are no texts, with their types.
        stated: those of these attributes that the node has.
    """

    name: str
    version: str
    namespace: str
    domain: str
    odd: tuple[tuple[str, str], ...] = ()
    stated: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NotFound:
    """Why there is no plugin. `kind`: no-plugin, plugin-name, plugin-version or plugin-namespace."""

    kind: str
    what: str
    advice: str


def asked_of(node: onnx.NodeProto, domain: str) -> Asked:
    """Read a node as the parser does: version "1" and namespace "" where it does not say them."""
    read = {PLUGIN_VERSION: "1", PLUGIN_NAMESPACE: ""}
    odd, stated = [], set()
    for a in node.attribute:
        if a.name not in read:
            continue
        stated.add(a.name)
        read[a.name] = (
            as_text(a.s) if a.type == a.STRING else ""
        )  # the parser reads the text, and there is none
        if a.type != a.STRING:
            odd.append((a.name, _type_of(a)))
    name = as_text(node.op_type)
    return Asked(name, read[PLUGIN_VERSION], read[PLUGIN_NAMESPACE], domain, tuple(odd), frozenset(stated))


def own_plugin(asked: Asked) -> bool:
    """Does the name look like that of a plugin which comes with TensorRT, of which no manifest tells?"""
    return asked.name.endswith("_TRT")


class Lookup:
    """The plugins that are given, as TensorRT's registry would hold them."""

    def __init__(self, manifests: Sequence[PluginManifest], limits: TensorRTLimits) -> None:
        self.limits = limits
        self.complete = all(m.plugins is not None for m in manifests)
        self.given = bool(manifests)
        self._by_key: dict[tuple[str, str, str], tuple[Plugin, PluginManifest]] = {}
        self._by_name: dict[str, list[Plugin]] = {}
        self._reasons: dict[Asked, NotFound] = {}
        self._searches = 0
        for manifest in manifests:
            for plugin in manifest.plugins or ():
                self._by_key.setdefault((plugin.name, plugin.version, plugin.namespace), (plugin, manifest))
                self._by_name.setdefault(plugin.name, []).append(plugin)

    def as_stated(self, asked: Asked) -> Plugin | None:
        """The plugin by what the node's attributes say; where a body stands in the model, the parser looks no further."""
        found = self._by_key.get((asked.name, asked.version, asked.namespace))
        return None if found is None else found[0]

    def find(self, asked: Asked) -> Plugin | None:
        """The plugin that the parser finds."""
        found = self.as_stated(asked)
        if found is None and self.limits.finds_by_domain:
            by_domain = self._by_key.get((asked.name, asked.version, asked.domain))
            found = None if by_domain is None else by_domain[0]
        return found

    def file_of(self, plugin: Plugin) -> str:
        """The name of the file that has it."""
        return self._by_key[plugin.name, plugin.version, plugin.namespace][1].name

    def named(self, name: str) -> Sequence[Plugin]:
        """Every plugin of a name, whatever its version and namespace."""
        return self._by_name.get(name, ())

    def why_not(self, asked: Asked) -> NotFound:
        """Why `find` gave nothing; worked out once for equal nodes."""
        if asked not in self._reasons:
            self._reasons[asked] = self._reason(asked)
        return self._reasons[asked]

    def _reason(self, asked: Asked) -> NotFound:
        alike = self.named(asked.name)
        if not alike:
            return self._no_name(asked)
        at_version = [p for p in alike if p.version == asked.version]
        if not at_version:
            return self._no_version(asked, alike)
        return self._no_namespace(asked, at_version)

    def _no_name(self, asked: Asked) -> NotFound:
        wanted = f"{asked.domain}::{asked.name}" if asked.domain else asked.name
        if not self.given:
            return NotFound(
                "no-plugin",
                f"{wanted} needs a plugin, and no library of plugins is given",
                "Give the library that has it (--plugins, or plugins=[…] in Python); `deployops compile --target tensorrt` "
                "builds one",
            )
        near: list[str] = []
        if self._searches < _MOST_SEARCHES:
            self._searches += 1
            near = difflib.get_close_matches(asked.name[:200], sorted(self._by_name)[:5_000], n=1, cutoff=0.5)
        there = f"the nearest is {near[0]}" if near else f"there are {_some(sorted(self._by_name))}"
        return NotFound(
            "plugin-name",
            f"no plugin is named {asked.name!r}; {there}",
            "Correct the node's type, or give the library that has the plugin",
        )

    def _no_version(self, asked: Asked, alike: Sequence[Plugin]) -> NotFound:
        versions = _some(sorted({repr(p.version) for p in alike}))
        odd = dict(asked.odd).get(PLUGIN_VERSION)
        if odd is not None:
            what = (
                f"{PLUGIN_VERSION} of {asked.name} is {odd}; TensorRT reads a STRING and takes '' here; the plugin's version is "
                f"{versions}"
            )
            return NotFound("plugin-version", what, f"Write {PLUGIN_VERSION} as a text")
        stated = PLUGIN_VERSION in asked.stated
        said = "by its attribute" if stated else "which TensorRT takes by default"
        return NotFound(
            "plugin-version",
            f"{asked.name} is looked for in version {asked.version!r}, {said}; the plugin's is {versions}",
            f"Set the attribute {PLUGIN_VERSION} (a text) to the plugin's version, or give the library that has the other; "
            "deployops export writes it",
        )

    def _no_namespace(self, asked: Asked, alike: Sequence[Plugin]) -> NotFound:
        there = _some(sorted({repr(p.namespace) for p in alike}))
        places = [repr(asked.namespace)]
        if self.limits.finds_by_domain and asked.domain != asked.namespace:
            places.append(f"{asked.domain!r} (the node's domain)")
        what = f"{asked.name} is looked for in the namespace {' and '.join(places)}; the plugin's is {there}"
        odd = dict(asked.odd).get(PLUGIN_NAMESPACE)
        if odd is not None:
            what += f" ({PLUGIN_NAMESPACE} is {odd}, and TensorRT reads a STRING)"
        advice = f"Set the attribute {PLUGIN_NAMESPACE} to the plugin's namespace; deployops export writes it"
        if not self.limits.finds_by_domain and any(p.namespace == asked.domain for p in alike):
            advice += ". TensorRT 10.10 and newer look in that of the node's domain too"
        return NotFound("plugin-namespace", what, advice)


def _type_of(attribute: onnx.AttributeProto) -> str:
    import onnx

    try:
        return str(onnx.AttributeProto.AttributeType.Name(attribute.type))
    except ValueError:
        return str(attribute.type)


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    rest = len(listed) - _SHOWN
    return ", ".join(listed[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
