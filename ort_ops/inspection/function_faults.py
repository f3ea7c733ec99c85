"""Model-local functions that ONNX Runtime refuses: their calls, their bodies, and how they stand in each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

from ...symbolic.graph_inspection.expansion import expansion, too_large
from ...symbolic.graph_inspection.findings import FAILS, NOTE, Finding, where
from ...symbolic.graph_inspection.node_uses import ModelUses, NodeUse, domain_key, opset_versions
from ...symbolic.graph_inspection.standard_types import as_text
from .runtime_limits import RuntimeLimits

if TYPE_CHECKING:
    import onnx

__all__ = ["function_findings"]

FunctionKey = tuple[str, str, str]  # domain, name, overload
_DEEPEST = 100  # functions in functions that ONNX Runtime 1.32 takes; what older ones take was not looked at
_AGAIN = "Export again: the file is damaged, or was put together by hand"


def function_findings(
    model: onnx.ModelProto,
    uses: ModelUses,
    limits: RuntimeLimits,
    kernels: Set[tuple[str, str]] = frozenset(),
) -> Iterator[Finding]:
    """What a runtime refuses, of functions that are called and of those that are not, or never gets to the end of.

    `kernels`: domain and type of the operators that libraries have, whose bodies are not used.
    """
    functions: dict[FunctionKey, onnx.FunctionProto] = {}
    seen: Counter[FunctionKey] = Counter()
    for function in model.functions:
        key = (domain_key(function.domain), as_text(function.name), as_text(function.overload))
        functions.setdefault(key, function)
        seen[key] += 1
    for (domain, name, _), count in seen.items():
        if count > 1:
            what = f"the model-local function {domain}::{name} is defined {count} times"
            yield Finding(FAILS, "function-twice", "", what, "Remove one, or tell them apart by `overload`")
    for title in uses.recursive:
        what = f"the model-local function {title} calls itself"
        yield Finding(FAILS, "function-recursive", "", what, "ONNX functions must not be recursive")
    expanded = expansion(model, lambda node: (domain_key(node.domain), as_text(node.op_type)) in kernels)
    if expanded.is_bomb:
        yield Finding(FAILS, "functions-expand", "", *too_large(expanded))
    if expanded.depth > _DEEPEST:
        refused = limits.release >= (1, 32)
        what = f"functions that call functions, {expanded.depth} deep: ONNX Runtime {'' if refused else '1.32 '}takes {_DEEPEST}"
        yield Finding(
            FAILS if refused else NOTE, "functions-deep", "", what, "Export it again, without functions"
        )
    for use in uses.uses:
        if use.has_body and (use.domain, use.op_type) not in kernels:
            yield from _call_findings(use, functions)
    for key, function in functions.items():
        called = key in uses.called
        yield from _body_findings(function, called)
        if not called:  # the nodes of others are looked at one by one
            yield from _import_findings(function)


def _call_findings(use: NodeUse, functions: dict[FunctionKey, onnx.FunctionProto]) -> Iterator[Finding]:
    overload = as_text(use.node.overload) if use.node is not None else ""
    function = functions.get((use.domain, use.op_type, overload))
    if function is None:
        return
    if len(use.inputs) > len(function.input):
        what = f"{use.title} has {len(use.inputs)} inputs here; its model-local function has {len(function.input)}"
        yield Finding(FAILS, "inputs", where(use), what, _AGAIN)
    if use.outputs != len(function.output):
        what = (
            f"{use.title} has {use.outputs} outputs here; its model-local function has {len(function.output)}"
        )
        advice = "Write '' for results that nobody reads" if use.outputs < len(function.output) else _AGAIN
        yield Finding(FAILS, "outputs", where(use), what, advice)


def _body_findings(function: onnx.FunctionProto, called: bool) -> Iterator[Finding]:
    """Results that nothing makes are refused at once; the rest only where the function is used."""
    title = f"the model-local function {as_text(function.domain)}::{as_text(function.name)}"
    every = {name for node in function.node for name in node.output if name}
    for name in function.output:
        if name not in every:
            what = f"nothing makes the output {as_text(name)!r} of {title}: a node in it must"
            yield Finding(FAILS, "output-not-made", "", what, _AGAIN)
    if not called:
        return
    known = {name for name in function.input if name}
    for node in function.node:
        for name in node.input:
            if name and name not in known:
                if name in every:
                    what = f"{as_text(node.op_type)} in {title} stands before the node that makes {as_text(name)!r}"
                    yield Finding(FAILS, "function-order", "", what, "Sort the nodes of the function")
                else:
                    what = f"nothing makes {as_text(name)!r}, which {as_text(node.op_type)} in {title} reads"
                    yield Finding(FAILS, "input-not-made", "", what, _AGAIN)
                known.add(name)
        for name in node.output:
            if name and name in known:
                what = f"{as_text(name)!r} is defined twice in {title}"
                yield Finding(FAILS, "value-twice", "", what, "Give each value a name of its own")
            known.add(name)


def _import_findings(function: onnx.FunctionProto) -> Iterator[Finding]:
    own = opset_versions(function.opset_import)
    for domain in sorted({domain_key(n.domain) for n in function.node} - set(own)):
        what = f"function {function.domain}::{function.name} uses the domain {domain or 'ai.onnx'!r} without importing it"
        yield Finding(FAILS, "domain-not-imported", "", what, "Add it to the function's opset_import")
