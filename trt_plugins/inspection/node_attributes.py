"""What a plugin makes of a node's attributes, by the rules by which the parser hands them on.

FLOAT and FLOATS come as 32-bit floats, INT and INTS as 32-bit integers, STRING as characters with a NUL behind them, STRINGS
as all of them in one piece; a single value is a list of one. Attributes that the plugin does not name are ignored, and
those that are missing are left out with a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ...symbolic.graph_inspection.findings import FAILS, HURTS, NOTE, Finding, where
from ...symbolic.graph_inspection.node_uses import NodeUse
from ...symbolic.graph_inspection.standard_types import as_text
from ...symbolic.plugin_attributes import PLUGIN_ATTRIBUTES, SHAPE_INPUTS
from ..library_manifest import Plugin, PluginField

if TYPE_CHECKING:
    import onnx

__all__ = ["attribute_findings", "referred_findings", "type_name", "undescribed_findings"]

_INT32 = range(-(2**31), 2**31)
_LIST_OF = {"INT": "INTS", "FLOAT": "FLOATS", "STRING": "STRINGS"}
_CARRIED = ("FLOAT", "INT", "STRING", "FLOATS", "INTS", "STRINGS", "TENSOR")


def attribute_findings(use: NodeUse, plugin: Plugin) -> Iterator[Finding]:
    """The faults of one node's attributes."""
    assert use.node is not None
    if plugin.fields is None:
        yield from undescribed_findings(use)
        return
    given = {as_text(a.name): a for a in use.node.attribute}
    fields = {f.name: f for f in plugin.fields}
    for name, kind in use.attributes.items():
        if name in fields:
            yield from _value_findings(use, fields[name], kind, given[name])
        elif name not in PLUGIN_ATTRIBUTES:
            known = ", ".join(sorted(fields)[:10]) or "it has none"
            yield Finding(
                FAILS,
                "attribute-unknown",
                where(use),
                f"{use.title} has the attribute {name!r}, which the plugin does not know ({known}); TensorRT ignores it",
                "Give the library that the model was exported for, or remove the attribute",
            )
    yield from _missing(use, fields, given)
    yield from _shape_inputs(use, given)


def undescribed_findings(use: NodeUse) -> Iterator[Finding]:
    """What no plugin is given as it stands; for a node whose plugin nothing describes."""
    assert use.node is not None
    for attribute in use.node.attribute:
        name = as_text(attribute.name)
        kind = use.attributes[name]
        if name in PLUGIN_ATTRIBUTES or attribute.ref_attr_name:
            continue
        if kind not in _CARRIED:
            yield _not_carried(use, name, kind)
        else:
            yield from _lost(use, name, kind, attribute)


def referred_findings(
    use: NodeUse, plugin: Plugin | None, name: str, given: onnx.AttributeProto
) -> Iterator[Finding]:
    """The faults of the value that an attribute of a node in a function gets from a call. `plugin`: None where not known."""
    if name in PLUGIN_ATTRIBUTES:
        return
    kind = type_name(given)
    if plugin is not None and plugin.fields is not None:
        for field in plugin.fields:
            if field.name == name:
                yield from _value_findings(use, field, kind, given)
    elif kind not in _CARRIED:
        yield _not_carried(use, name, kind)
    else:
        yield from _lost(use, name, kind, given)


def type_name(attribute: onnx.AttributeProto) -> str:
    """INT, FLOATS, ...; the number of a type that ONNX does not have."""
    import onnx

    try:
        return str(onnx.AttributeProto.AttributeType.Name(attribute.type))
    except ValueError:
        return str(attribute.type)


def _not_carried(use: NodeUse, name: str, kind: str) -> Finding:
    what = f"the attribute {name!r} of {use.title} is {kind}, which TensorRT gives to no plugin"
    return Finding(FAILS, "attribute-type", where(use), what, f"Write it as one of {', '.join(_CARRIED)}")


def _value_findings(
    use: NodeUse, field: PluginField, kind: str, attribute: onnx.AttributeProto
) -> Iterator[Finding]:
    of, expected = f"the attribute {field.name!r} of {use.title}", " or ".join(field.types or _CARRIED)
    if kind not in _CARRIED:
        what = f"{of} is {kind}, which TensorRT gives to no plugin; the plugin's field is {expected}"
        yield Finding(FAILS, "attribute-type", where(use), what, f"Write it as {expected}")
        return
    if attribute.ref_attr_name:
        return  # the value comes from the function's call (`attribute_references`)
    count = _count(attribute)
    fits = field.length is None or field.length == count
    if field.types and kind not in field.types:
        alike = fits and (kind in _LIST_OF or count == 1) and _other_form(kind) in field.types
        what = f"{of} is {kind}; the plugin's field is {expected}"
        if alike:
            what += ": TensorRT gives a list of one and a single value alike, other runtimes refuse it"
        yield Finding(
            HURTS if alike else FAILS, "attribute-type", where(use), what, f"Write it as {expected}"
        )
        if not alike:
            return
    elif not fits:
        what = f"{of} has {count} values; the plugin's field has {field.length}"
        yield Finding(FAILS, "attribute-length", where(use), what, "Export the model again, or correct it")
        return
    yield from _lost(use, field.name, kind, attribute)


def _lost(use: NodeUse, name: str, kind: str, attribute: onnx.AttributeProto) -> Iterator[Finding]:
    """What does not survive the way into a field."""
    of = f"the attribute {name!r} of {use.title}"
    integers = [attribute.i] if kind == "INT" else attribute.ints if kind == "INTS" else ()
    far = next((v for v in integers if v not in _INT32), None)
    if far is not None:
        cut = (far + 2**31) % 2**32 - 2**31
        what = f"{of} is {far}, beyond 32 bits: TensorRT cuts it to {cut} without a word"
        yield Finding(
            FAILS, "attribute-range", where(use), what, "Use a number that int32 holds, or a tensor"
        )
    texts = [attribute.s] if kind == "STRING" else attribute.strings if kind == "STRINGS" else ()
    if any(b"\0" in text for text in texts):
        what = f"{of} holds a NUL, which ends a text in a plugin's field"
        yield Finding(FAILS, "attribute-range", where(use), what, "Use a text without")


def _missing(
    use: NodeUse, fields: Mapping[str, PluginField], given: Mapping[str, onnx.AttributeProto]
) -> Iterator[Finding]:
    for field in fields.values():
        if field.name in given:
            continue
        expected = " or ".join(field.types)
        if field.required:
            what = f"{use.title} lacks the attribute {field.name!r} ({expected}), for which the plugin has no default"
            yield Finding(FAILS, "attribute-missing", where(use), what, "Export the model again, or set it")
        elif field.default is not None:
            what = f"{use.title} lacks the attribute {field.name!r}: the plugin takes its default, {field.default!r:.80}"
            advice = "Export the model again: deployops writes every attribute"
            yield Finding(NOTE, "attribute-missing", where(use), what, advice)


def _shape_inputs(use: NodeUse, given: Mapping[str, onnx.AttributeProto]) -> Iterator[Finding]:
    attribute = given.get(SHAPE_INPUTS)
    if attribute is None:
        return
    count = len(use.inputs)
    if attribute.type != attribute.INTS:
        what = f"the attribute {SHAPE_INPUTS!r} of {use.title} must be INTS"
    elif any(not -count <= k < count for k in attribute.ints):
        what = f"the attribute {SHAPE_INPUTS!r} of {use.title} names an input that the node has not"
    else:
        return
    yield Finding(FAILS, "attribute-type", where(use), what, "Export the model again")


def _other_form(kind: str) -> str:
    """INTS for INT, INT for INTS."""
    return _LIST_OF.get(kind, kind.removesuffix("S"))


def _count(attribute: onnx.AttributeProto) -> int:
    lists = len(attribute.ints) + len(attribute.floats) + len(attribute.strings)
    return lists if attribute.type in (attribute.INTS, attribute.FLOATS, attribute.STRINGS) else 1
