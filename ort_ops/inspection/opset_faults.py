"""Opsets, IR version, and nodes that are not as the schemas of ONNX have them. ONNX Runtime refuses most of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...symbolic.graph_inspection.domains import BUILT_IN, STANDARD
from ...symbolic.graph_inspection.findings import FAILS, NOTE, Finding, where
from ...symbolic.graph_inspection.node_uses import NodeUse, domain_key, opset_versions
from ...symbolic.graph_inspection.standard_types import as_text, dtype_of_text, schema_at
from .runtime_limits import RuntimeLimits

if TYPE_CHECKING:
    import onnx
    from onnx.defs import OpSchema

__all__ = ["attribute_findings", "model_findings", "standard_findings"]

# Of the domains that come with ONNX Runtime, up to 1.32; the standard's is measured.
_NEWEST_BUILT_IN = {
    "ai.onnx.ml": 5,
    "ai.onnx.training": 1,
    "ai.onnx.preview": 1,
    "ai.onnx.preview.training": 1,
} | dict.fromkeys(BUILT_IN, 1)


def model_findings(model: onnx.ModelProto, limits: RuntimeLimits) -> Iterator[Finding]:
    """What the model says of itself, against what the runtime reads."""
    runtime = f"ONNX Runtime {limits.version}"
    opset = opset_versions(model.opset_import).get("", 0)
    if limits.measured and opset > limits.opset:
        what = f"the model uses opset {opset}; {runtime} goes up to {limits.opset}"
        yield Finding(
            FAILS, "opset-too-new", "", what, "Export with a lower --opset, or use a newer onnxruntime"
        )
    if limits.measured and model.ir_version > limits.ir:
        what = f"the model has IR version {model.ir_version}; {runtime} reads up to {limits.ir}"
        yield Finding(
            FAILS, "ir-too-new", "", what, "Use a newer onnxruntime, or lower the file's ir_version"
        )
    yield from _border_findings(model.graph)
    yield from _import_findings(model)
    yield from _version_findings(model, limits)


def _version_findings(model: onnx.ModelProto, limits: RuntimeLimits) -> Iterator[Finding]:
    """Versions of its own domains that the runtime refuses wherever they are imported, used or not."""
    runtime = f"ONNX Runtime {limits.version}"
    newest = {**_NEWEST_BUILT_IN, "": limits.opset} if limits.measured else _NEWEST_BUILT_IN
    importers = [("the model", model.opset_import)]
    importers += [
        (f"function {as_text(f.domain)}::{as_text(f.name)}", f.opset_import) for f in model.functions
    ]
    for k, (importer, imports) in enumerate(importers):
        for domain, version in opset_versions(imports).items():
            if version <= newest.get(domain, version) or (k == 0 and not domain):
                continue
            what = f"{importer} imports version {version} of {domain or 'ai.onnx'!r}; {runtime} goes up to {newest[domain]}"
            yield Finding(
                FAILS, "opset-too-new", "", what, "Export with a lower version, or use a newer onnxruntime"
            )


def _border_findings(graph: onnx.GraphProto) -> Iterator[Finding]:
    """Of what goes into the graph and comes out of it."""
    if not graph.output and not graph.node:
        what = "the graph is empty: it has no nodes and no outputs, and ONNX Runtime opens no such model"
        yield Finding(FAILS, "empty-graph", "", what, "Export the model that was meant")
    elif not graph.output:
        what = "the graph has no outputs: nothing can be got of it"
        yield Finding(NOTE, "no-outputs", "", what, "Export the model with what it is to give")
    stored = {t.name for t in graph.initializer}
    for value in graph.input:
        if value.type.WhichOneof("value") is None and value.name not in stored:
            what = f"the input {as_text(value.name)!r} has no type"
            yield Finding(FAILS, "input-type", "", what, "Export the model with the types of its inputs")


def _import_findings(model: onnx.ModelProto) -> Iterator[Finding]:
    listed: dict[str, list[int]] = {}
    for entry in model.opset_import:
        listed.setdefault(domain_key(entry.domain), []).append(entry.version)
    for domain, versions in listed.items():
        if len(set(versions)) > 1:
            what = (
                f"opset_import lists the domain {domain or 'ai.onnx'!r} {len(versions)} times, with the versions "
                f"{', '.join(map(str, versions[:10]))}: ONNX Runtime takes the last, other tools may not"
            )
            yield Finding(NOTE, "several-versions", "", what, "Leave the one that the model was exported for")
    imports = opset_versions(model.opset_import)
    for function in model.functions:
        for domain, version in opset_versions(function.opset_import).items():
            if imports.get(domain, version) != version:
                what = (
                    f"function {function.domain}::{function.name} imports version {version} of "
                    f"{domain or 'ai.onnx'!r}, the model version {imports[domain]}: ONNX Runtime reads the body with the model's"
                )
                yield Finding(NOTE, "several-versions", "", what, "Import one version in both")


def attribute_findings(uses: Sequence[NodeUse]) -> Iterator[Finding]:
    """Attributes that a node has twice: refused in a graph, and read in one of two ways in a function."""
    for use in uses:
        if use.node is None or len(use.attributes) == len(use.node.attribute):
            continue
        counts = Counter(as_text(a.name) for a in use.node.attribute)
        twice = [name for name, count in counts.items() if count > 1]
        inside = "function " in use.place
        what = f"{use.title} has the attribute {twice[0]!r} more than once"
        yield Finding(NOTE if inside else FAILS, "attribute-twice", where(use), what, "Remove one of them")


def standard_findings(uses: Sequence[NodeUse]) -> Iterator[Finding]:
    """Nodes of the standard's domain that its schemas do not allow."""
    import onnx

    known: dict[tuple[Any, ...], tuple[str, str, str] | None] = {}
    newest = onnx.defs.onnx_opset_version()
    for use in uses:
        if use.domain_version is None and use.domain in (*STANDARD, *BUILT_IN):
            yield _not_imported(use)
        if use.domain or use.domain_version is None or use.domain_version > newest:
            continue
        key = (
            use.op_type, use.domain_version, use.inputs, tuple(use.attributes.items()), use.outputs, use.absent
        )  # fmt: skip
        if key not in known:
            known[key] = _schema_fault(use)
        fault = known[key]
        if fault is not None:
            yield Finding(FAILS, fault[0], where(use), fault[1], fault[2])


def _not_imported(use: NodeUse) -> Finding:
    what = f"{use.title} is used, but opset_import does not list the domain {use.domain or 'ai.onnx'!r}"
    if use.place.startswith("function") or ", function" in use.place:
        return Finding(
            FAILS, "domain-not-imported", where(use), what, "Add it to the function's opset_import"
        )
    advice = "Add the version that the model was made for: ONNX Runtime takes the newest that it has, other tools refuse"
    return Finding(NOTE, "domain-not-imported", where(use), what, advice)


def _schema_fault(use: NodeUse) -> tuple[str, str, str] | None:
    """Kind, what and advice."""
    opset = use.domain_version or 0
    schema = schema_at(use.op_type, opset)
    if schema is None:
        later = schema_at(use.op_type, 1 << 20)
        if later is None:
            return (
                "default-domain",
                f"{use.op_type} is no standard operator, yet it stands in the default domain",
                "A custom operator needs a domain of its own, on the node and in opset_import",
            )
        since = _first_version(use.op_type)
        return (
            "operator-too-new",
            f"{use.op_type} exists since opset {since}, but the model imports opset {opset}",
            f"Export again with --opset {since} or higher",
        )
    if schema.deprecated:
        what = f"{use.op_type} was removed from ONNX with opset {schema.since_version}; the model imports opset {opset}"
        return ("operator-removed", what, "Export again")
    return _shape_of_call_fault(use, schema) or _attribute_fault(use, schema) or _dtype_fault(use, schema)


def _first_version(op_type: str) -> int:
    import onnx

    every = onnx.defs.get_all_schemas_with_history()
    return min(s.since_version for s in every if s.name == op_type and s.domain == "")


def _shape_of_call_fault(use: NodeUse, schema: OpSchema) -> tuple[str, str, str] | None:
    for what, count, low, high in (
        ("inputs", len(use.inputs), schema.min_input, schema.max_input),
        ("outputs", use.outputs, schema.min_output, schema.max_output),
    ):
        if not low <= count <= high:
            takes = f"{low}" if low == high else f"{low} or more" if high > 1000 else f"{low} to {high}"
            return (
                what,
                f"{use.op_type} has {count} {what} here; opset {use.domain_version} has {takes}",
                "Export again",
            )
    for place in use.absent:
        if place < len(schema.inputs) and _word(schema.inputs[place].option) == "Single":
            name = schema.inputs[place].name
            return (
                "inputs",
                f"{use.op_type} has no input {name!r} here, which is not optional",
                "Export again",
            )
    return None


def _attribute_fault(use: NodeUse, schema: OpSchema) -> tuple[str, str, str] | None:
    of = f"{use.op_type} of opset {use.domain_version}"
    for name, kind in use.attributes.items():
        known = schema.attributes.get(name)
        if known is None:
            return (
                "attribute-unknown",
                f"{of} has no attribute {name!r}",
                "The node was made for another opset: export again, or correct opset_import",
            )
        if _word(known.type) != kind:
            what = f"the attribute {name!r} of {of} is {kind}; it must be {_word(known.type)}"
            return ("attribute-type", what, f"Write it as {_word(known.type)}")
    for name, known in schema.attributes.items():
        if known.required and name not in use.attributes:
            return (
                "attribute-missing",
                f"{of} needs the attribute {name!r}, which is not there",
                "Export again",
            )
    return None


def _dtype_fault(use: NodeUse, schema: OpSchema) -> tuple[str, str, str] | None:
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    bound: dict[str, str] = {}
    for place, dtype in enumerate(use.inputs):
        formal = schema.inputs[min(place, len(schema.inputs) - 1)]
        kinds = allowed.get(formal.type_str, [formal.type_str])
        names = {name for k in kinds if (name := dtype_of_text(k)) is not None}
        if dtype is None or not names:  # a dtype is that of a tensor; sequences have none here
            continue
        if dtype not in names:
            what = (
                f"{use.op_type} of opset {use.domain_version} does not take {dtype} as input {formal.name!r}: the model is "
                "invalid for every runtime"
            )
            return ("type-not-allowed", what, f"Cast to one of {', '.join(sorted(map(str, names)))}")
        shared = formal.type_str in allowed and formal.is_homogeneous and len(names) == len(kinds)
        if shared and bound.setdefault(formal.type_str, dtype) != dtype:
            first = bound[formal.type_str]
            what = f"the inputs of {use.op_type} have the types {first} and {dtype}; they must be the same"
            return ("types-differ", what, "Cast one of them")
    return None


def _word(member: object) -> str:
    """The name of an enum member of onnx, `AttrType.INT`."""
    return str(member).rpartition(".")[2]
