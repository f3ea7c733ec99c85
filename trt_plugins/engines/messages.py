"""What TensorRT said, told to the user: at which node of the model, what is wrong, what to do.

The error that came first is told first, each once. A text that is not known is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...symbolic.node_source import source_words
from ..inspection.standard_nodes import OTHER_NAME, means_another, taken_for_standard
from .advice import advice_for
from .child import BEFORE_BUILDER, Said, WorkerEnd
from .flavor import TensorRT
from .log_text import errors_in, plain, shortened
from .source_model import STANDARD_DOMAINS, SourceModel, graphs_of

if TYPE_CHECKING:
    import onnx

__all__ = ["explain_crash", "explain_end", "explain_late", "warnings_in"]

_MOST_ERRORS = 8
_MOST_WARNINGS = 20
_LOG_LINES = 3
_NAME_LENGTH = 120

_PLUGIN = "[deployops] "  # before each line of `report_error` (trt_plugins/cpp/messages.cpp)

_NOT_FOUND = re.compile(r"Plugin not found|could not find plugin|getPluginCreator|plugin creator version")
# True of every model with such inputs; nothing is to be done about them.
_NO_WARNING = re.compile(r"Make sure input .* has Int64 binding")


def explain_end(
    end: WorkerEnd,
    source: SourceModel,
    tensorrt: TensorRT,
    plugins: Sequence[Path] = (),
    workspace: int | None = None,
) -> str:
    """Why a build ended without an engine, for an error. `workspace`: its limit in bytes, where there was one."""
    details, said = end.details, [*_plugin_errors(end.log), *end.said]
    reason, text = details.get("reason"), details.get("text", "")
    what = f"{tensorrt.name} builds no engine of {source.path.name}"
    if reason == "parse":
        errors = list(_parse_errors(details, said, source, tensorrt, plugins))
        return _listed(f"{what}: its parser refuses", errors)
    if reason == "taken":
        return _taken(details["types"], source, tensorrt)
    if reason == "ignored":
        return _ignored(details["attributes"], source, tensorrt)
    if reason == "dtypes":
        return _other_dtypes(details["tensors"], source, tensorrt)
    if reason == "values":
        return _no_values(details["inputs"], source)
    if reason == "memory":
        return f"{what}: memory ran out while {end.step}. Build on a machine with more"
    told = [_advised(_located(one, source), workspace) for one in errors_in([("error", text), *said])]
    if reason == "profile":
        return _listed(f"{tensorrt.name} refuses profile {details['number']}", told)
    return "\n  ".join(told) if end.outcome == "usage" else _listed(what, told)


def _plugin_errors(log: str) -> list[Said]:
    """What plugins of ours wrote on the standard error: while a model is parsed, TensorRT-RTX 1.7 gives them no logger."""
    lines = [line.removeprefix(_PLUGIN) for line in log.splitlines() if line.startswith(_PLUGIN)]
    return [("error", line) for line in dict.fromkeys(lines) if line.strip()]


def explain_crash(end: WorkerEnd, tensorrt: TensorRT) -> str:
    """That the process ended while it worked, in what, and its last words."""
    said = [plain(text) for kind, text in end.said if kind == "error"]
    lines = [line.strip() for line in end.log.splitlines() if line.strip()]
    words = " / ".join(dict.fromkeys(shortened(w, 200) for w in [*said[-1:], *lines[-_LOG_LINES:]]))
    who = "The library" if "plugins of" in end.step else f"{tensorrt.name}, or a plugin,"
    last = f". Its last words: {words}" if words else ""
    if end.ending == "SIGKILL":  # nobody does that to itself
        who = "The system, which does so where memory runs out, or somebody else"
        return f"the process of {tensorrt.name} was ended while {end.step}: SIGKILL. {who} did it{last}"
    return f"the process of {tensorrt.name} ended while {end.step}: {end.ending}. {who} is at fault{last}"


def explain_late(end: WorkerEnd, tensorrt: TensorRT, timeout: float | None) -> str:
    """That the process was ended as its time was over. `timeout`: what the user gave, in seconds."""
    at = f"{end.step} ({end.phase})" if end.phase else end.step
    if timeout is None:
        return (
            f"{tensorrt.name} was ended after {BEFORE_BUILDER:g} s, while {at}: before the builder starts, that takes seconds. "
            "Where this model or its plugins need longer, give the time for the whole build: --timeout SECONDS (timeout=…)"
        )
    less = "fewer compute capabilities" if tensorrt.flavor == "tensorrt-rtx" else "a --timing-cache"
    return (
        f"{tensorrt.name} was ended after the {timeout:g} s of the timeout, while {at}: no engine is written. Give it longer, or "
        f"less to do: {less}, fewer profiles, a smaller model"
    )


def warnings_in(said: Sequence[Said], source: SourceModel) -> tuple[str, ...]:
    """TensorRT's warnings, each once, with the nodes that they name."""
    texts = (plain(text) for kind, text in said if kind == "warning" and not _NO_WARNING.search(text))
    found = list(dict.fromkeys(_located(shortened(text), source) for text in texts if text))
    if len(found) > _MOST_WARNINGS:
        found = [*found[:_MOST_WARNINGS], f"… and {len(found) - _MOST_WARNINGS} more warnings"]
    return tuple(found)


def _listed(what: str, errors: Sequence[str]) -> str:
    if not errors:
        return f"{what}, and it does not say why"
    shown = "\n  ".join(errors[:_MOST_ERRORS])
    more = f"\n  … and {len(errors) - _MOST_ERRORS} more" if len(errors) > _MOST_ERRORS else ""
    return f"{what}:\n  {shown}{more}"


def _advised(text: str, workspace: int | None = None) -> str:
    advice = advice_for(text, workspace)
    return f"{shortened(text)}\n    {advice}" if advice else shortened(text)


# --- nodes -------------------------------------------------------------------------------------------------------


def _label(node: onnx.NodeProto) -> str:
    kind = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    name = node.name or next((f"-> {output}" for output in node.output if output), "")
    source = source_words(node)
    return f"node '{shortened(name, _NAME_LENGTH)}' ({kind}{f', from {source}' if source else ''})"


def _located(text: str, source: SourceModel) -> str:
    """The message, and the nodes of the model that it names."""
    words = re.findall(r"[^\s\[\](){},:;'\"`]+", text)
    names = {*words, *(word.rstrip(".") for word in words)} - {""}
    nodes = (node for graph in graphs_of(source.proto) for node in graph.node if node.name in names)
    unknown = [label for node in nodes if (label := _label(node)) not in text][:2]
    return f"{text} [{', '.join(unknown)}]" if unknown else text


# --- the parser --------------------------------------------------------------------------------------------------


def _parse_errors(
    details: Mapping[str, Any],
    said: Sequence[Said],
    source: SourceModel,
    tensorrt: TensorRT,
    plugins: Sequence[Path],
) -> Iterator[str]:
    for error in details["errors"]:
        node = _node(error, source)
        where = _where(error, node, source)
        if _NOT_FOUND.search(error["text"]) and error["operator"]:
            text = _not_found(node, error, details["creators"], tensorrt, plugins)
        elif error["text"] == "false" and error["operator"]:  # the whole of what it says of some operators
            text = _no_operator(error["operator"], tensorrt)
        else:
            ours = [] if node is None else _plugin_words(node, said)
            told = plain(error["text"]).removeprefix(f"{error['name']}: ")
            said_of_it = "; ".join(filter(None, dict.fromkeys([*ours, told])))
            text = _advised(said_of_it) if said_of_it else _no_reason(node, source, tensorrt)
        yield f"{where}: {text}" if where else text
    if not details["errors"]:
        yield from (_advised(_located(text, source)) for text in errors_in(said))


def _plugin_words(node: onnx.NodeProto, said: Sequence[Said]) -> list[str]:
    """What a plugin of ours said of this node, which `title_of` begins with it (trt_plugins/cpp/plugin.cpp)."""
    name = re.escape(node.name) if node.name else ".*?"  # the parser gives a name to one that has none
    title = re.compile(rf"{re.escape(f'{node.domain}::{node.op_type}')}( \(node '{name}'\))?: ")
    return [plain(text[m.end() :]) for _, text in said if (m := title.match(text))]


def _where(error: Mapping[str, Any], node: onnx.NodeProto | None, source: SourceModel) -> str:
    inside = f" in the body of {', '.join(error['stack'])}" if error["stack"] else ""
    if node is not None:
        return f"{_label(node)}{inside}"
    if error["operator"]:
        return f"node '{shortened(error['name'], _NAME_LENGTH)}' ({error['operator']}){inside}"
    # of an input, its name stands in the place of the source file
    if error["function"] != "importInput":
        return ""
    dtype = next((f" ({i.dtype})" for i in source.inputs if i.name == error["file"]), "")
    return f"input `{error['file']}`{dtype}"


def _node(error: Mapping[str, Any], source: SourceModel) -> onnx.NodeProto | None:
    """The node that an error is about: by its name, else by its number in the graph."""
    nodes: list[onnx.NodeProto] = [
        n for graph in graphs_of(source.proto) for n in graph.node if n.op_type == error["operator"]
    ]
    named = [n for n in nodes if n.name and n.name == error["name"]]
    if named:
        return named[0]
    main, number = source.proto.graph.node, error["node"]
    if not error["stack"] and 0 <= number < len(main) and main[number].op_type == error["operator"]:
        nodes = [main[number]]
    return nodes[0] if len(nodes) == 1 else None


def _no_reason(node: onnx.NodeProto | None, source: SourceModel, tensorrt: TensorRT) -> str:
    """Of some nodes the parser says that it refuses them, and no more; ONNX's checker may."""
    text = f"{tensorrt.name} refuses it and does not say why"
    if node is None or node.domain not in STANDARD_DOMAINS:
        return text
    import onnx

    context = onnx.checker.C.CheckerContext()
    context.ir_version = source.proto.ir_version
    context.opset_imports = {o.domain: o.version for o in source.proto.opset_import}
    try:
        onnx.checker.check_node(node, context)
    except (onnx.checker.ValidationError, RuntimeError) as error:
        line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        return f"{text}; ONNX's checker does: {shortened(line)}" if line else text
    return f"{text}; ONNX's checker finds no fault: try another opset, or other operators in its place"


def _no_operator(name: str, tensorrt: TensorRT) -> str:
    return (
        f"{tensorrt.name} does not have this operator of ONNX, or not like this\n    change the model so that it is exported "
        f"without {name}, try another opset, or give a plugin called {name} with --plugins"
    )


def _not_found(
    node: onnx.NodeProto | None,
    error: Mapping[str, Any],
    creators: Sequence[Sequence[str]],
    tensorrt: TensorRT,
    plugins: Sequence[Path],
) -> str:
    """Which plugin was looked for, which near ones there are, and how to get it."""
    name = error["operator"]
    domain = node.domain if node is not None else ""
    texts = {a.name: a.s.decode(errors="replace") for a in node.attribute} if node is not None else {}
    if domain in STANDARD_DOMAINS and "plugin_version" not in texts and "plugin_namespace" not in texts:
        return _no_operator(name, tensorrt)
    version, namespace = texts.get("plugin_version") or "1", texts.get("plugin_namespace") or domain
    text = f"no plugin is called {name}, version {version}, in namespace '{namespace}'"
    near = [c for c in creators if _folded(c[1]) == _folded(name)]
    if near:
        listed = ", ".join(f"{c[1]}, version {c[2]}, in '{c[0]}'" for c in near[:5])
        advice = "all three must be equal: compile the plugins and export the model from one declaration"
        return f"{text}; there is {listed}\n    {advice}"
    ours = ", ".join(path.name for path in plugins)
    missing = f"{ours} has none" if ours else "no library was given"
    return (
        f"{text}: {missing}\n    build one with `deployops compile --target tensorrt --ops …` and give it with --plugins; or "
        "export with --custom-ops standard, where the operator has a body"
    )


def _folded(name: str) -> str:
    return name.lower().replace("_", "")


# --- what deployops refuses itself -------------------------------------------------------------------------------


def _taken(types: Sequence[str], source: SourceModel, tensorrt: TensorRT) -> str:
    nodes = [
        n
        for g in graphs_of(source.proto)
        for n in g.node
        if n.op_type in types and means_another(n.domain, n.op_type)
    ]
    what = f"{tensorrt.name} would compute something else than {source.path.name} says"
    told = [f"{_label(n)}: {taken_for_standard(f'{n.domain}::{n.op_type}', n.op_type)}" for n in nodes]
    return f"{_listed(what, told)}\n{OTHER_NAME}"


def _ignored(
    found: Sequence[tuple[str, Sequence[str], Sequence[str]]], source: SourceModel, tensorrt: TensorRT
) -> str:
    listed = []
    for kind, names, known in found:
        fields = ", ".join(known[:10]) or "it has none"
        listed += [
            f"{_label(node)}: the plugin knows no attribute {', '.join(map(repr, unknown))} ({shortened(fields)})"
            for node in (n for g in graphs_of(source.proto) for n in g.node if n.op_type == kind)
            if (unknown := [a.name for a in node.attribute if a.name in names])
        ]
    what = f"{tensorrt.name} would leave out attributes of nodes of {source.path.name} without a word"
    return (
        f"{_listed(what, listed)}\nGive the library that the model was exported for, or remove the attributes"
    )


def _other_dtypes(tensors: Sequence[Sequence[str]], source: SourceModel, tensorrt: TensorRT) -> str:
    listed = [
        f"`{name}` is {ours} in the model, and {theirs} in the engine" for name, ours, theirs in tensors
    ]
    what = f"{tensorrt.name} has no such types, and would take others without a word, in {source.path.name}"
    return f"{_listed(what, listed)}\nCast them in the model, and export it again"


def _no_values(names: Sequence[str], source: SourceModel) -> str:
    listed = ", ".join(f"`{name}`" for name in names)
    counts = {i.name: int(i.dims[0]) if i.dims and isinstance(i.dims[0], int) else 1 for i in source.inputs}
    example = ",".join("x".join([value] * counts.get(names[0], 1)) for value in ("1", "8", "32"))
    return (
        f"{source.path.name} makes shapes of the values of {listed}, and TensorRT wants a range for each value: give the "
        f"smallest, the best and the largest, as in --profile '{names[0]}={example}', beside the shapes of the other inputs"
    )
