"""Why a custom node has no kernel in the given libraries, in one line, before ONNX Runtime sees the model.

The runtime's own refusals name neither the version nor the types that there are, and what it lets pass is worse: an
attribute that the kernel does not know is ignored, and a domain version that the library never heard of gets the newest
operator it has. Here both are faults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..symbolic.graph_inspection.node_uses import NodeUse
from ..symbolic.plugin_attributes import PLUGIN_ATTRIBUTES
from ..symbolic.shown_text import printable
from .library_manifest import KernelOperator, LibraryManifest
from .shipped_operators import newest_shipped, shipped_versions

__all__ = ["KernelFault", "Kind", "kernel_fault", "kernel_library", "why_no_kernel"]

Kind = Literal[
    "domain-not-imported",
    "no-library",
    "operator-missing",
    "domain-version",
    "inputs",
    "outputs",
    "attribute-unknown",
    "attribute-type",
    "attribute-missing",
    "dtype",
]
_SHOWN = 6  # alternatives listed in a message
_LONGEST = 2_000  # characters of a message
_BUILD = (
    "`deployops compile --target ort-cpu` builds a library with it (ort-cuda: for CUDA); give it with --ort-library, or "
    "libraries=[…] in Python (a session finds it by itself)"
)
_GIVE = "Give the library that has it (--ort-library, or libraries=[…] in Python)"


@dataclass(frozen=True, slots=True)
class KernelFault:
    """`text`: one line. `advice`: what to do, one line.

    `body_runs`: no kernel would be found at all, so that a model-local function of the node's name is used instead. With
    any other fault the runtime takes the kernel, and the body does not help.
    """

    kind: Kind
    text: str
    advice: str
    body_runs: bool = False


def why_no_kernel(node: NodeUse, libraries: Sequence[LibraryManifest]) -> str | None:
    """One line with the reason and what to do; None where one of the libraries has a kernel for the node.

    A model-local function of the node's name is not looked at: see `KernelFault.body_runs`.
    """
    fault = kernel_fault(node, libraries)
    return None if fault is None else f"{fault.text}. {fault.advice}"


def kernel_library(node: NodeUse, libraries: Sequence[LibraryManifest]) -> LibraryManifest | None:
    """The first library with a kernel for the node."""
    return next((library for library in libraries if kernel_fault(node, [library]) is None), None)


def kernel_fault(node: NodeUse, libraries: Sequence[LibraryManifest]) -> KernelFault | None:
    """What keeps the node from a kernel; None where nothing does. The texts are printable, whatever the names."""
    fault = _fault(node, libraries)
    if fault is None:
        return None
    return replace(fault, text=_printable(fault.text), advice=_printable(fault.advice))


def _printable(text: str) -> str:
    """One line of bounded length that moves no cursor: names come from files that anybody may have made."""
    return printable(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")


def _fault(node: NodeUse, libraries: Sequence[LibraryManifest]) -> KernelFault | None:
    if node.domain_version is None:
        return KernelFault(
            "domain-not-imported",
            f"{node.title} is used, but opset_import does not list the domain {node.domain!r}",
            f"Add it to opset_import: onnx.helper.make_opsetid({node.domain!r}, VERSION)",
        )
    found = [
        o for m in libraries for o in m.operators if (o.domain, o.op_type) == (node.domain, node.op_type)
    ]
    if not found:
        return _missing(node, libraries)
    cuda = any(m.provider == "CUDA" and any(o is f for f in found) for m in libraries for o in m.operators)
    kernel = "CUDA kernel" if cuda else "kernel"
    return _version_fault(node, found, libraries) or _operator_fault(node, found, kernel)


def _missing(node: NodeUse, libraries: Sequence[LibraryManifest]) -> KernelFault:
    shipped = shipped_versions(node.domain, node.op_type)
    advice = _BUILD if shipped else _GIVE
    if not libraries:
        if shipped and node.domain_version is not None and node.domain_version < min(shipped):
            return _too_old(node, min(shipped))
        newest = newest_shipped(node.domain)
        if shipped and node.domain_version is not None and node.domain_version > newest:
            return KernelFault(
                "domain-version",
                f"wrong domain version: the model imports version {node.domain_version} of the domain {node.domain!r}, and "
                f"this deployops has it up to {newest}",
                "Use the deployops that the model was exported with, or a newer one",
                body_runs=True,
            )
        text = f"{node.title} (domain version {node.domain_version}) needs a kernel, and no library is given"
        text += ": without one nobody can tell whether that version is right either"
        return KernelFault("no-library", text, advice, body_runs=True)
    names = ", ".join(m.name for m in libraries[:_SHOWN])
    others = sorted({o.op_type for m in libraries for o in m.operators if o.domain == node.domain})
    has = f"; of the domain {node.domain!r} there are {_some(others)}" if others else ""
    if not shipped:
        advice += ", or build it with `deployops compile --ops`"
    return KernelFault("operator-missing", f"{names} has no {node.title}{has}", advice, body_runs=True)


def _version_fault(
    node: NodeUse, found: Sequence[KernelOperator], libraries: Sequence[LibraryManifest]
) -> KernelFault | None:
    """ONNX's rule: an operator serves every domain version from its own on, up to its next version."""
    assert node.domain_version is not None
    oldest = min(o.version for o in found)
    if node.domain_version < oldest:
        return _too_old(node, oldest)
    newest = max(o.version for m in libraries for o in m.operators if o.domain == node.domain)
    if node.domain_version > newest:
        return KernelFault(
            "domain-version",
            f"wrong domain version: the model imports version {node.domain_version} of the domain {node.domain!r}, and the "
            f"libraries know it up to {newest}. ONNX Runtime would take {node.title} of version "
            f"{max(o.version for o in found)} without a word",
            "Give a library of that version, or export the model with the operators that the library has",
        )
    return None


def _too_old(node: NodeUse, oldest: int) -> KernelFault:
    return KernelFault(
        "domain-version",
        f"wrong domain version: the model imports version {node.domain_version} of the domain {node.domain!r}, and "
        f"{node.title} is there from version {oldest} on",
        f"Export again, or set opset_import to ({node.domain!r}, {oldest})",
        body_runs=True,
    )


def _operator_fault(node: NodeUse, found: Sequence[KernelOperator], kernel: str) -> KernelFault | None:
    """Kernels of one name and version may come from several libraries; one that fits is enough."""
    serving = max(o.version for o in found if o.version <= (node.domain_version or 0))
    faults = []
    for operator in (o for o in found if o.version == serving):
        fault = (
            _input_fault(node, operator)
            or _attribute_fault(node, operator)
            or _dtype_fault(node, operator, kernel)
        )
        if fault is None:
            return None
        faults.append(fault)
    return faults[0]


def _input_fault(node: NodeUse, operator: KernelOperator) -> KernelFault | None:
    export = "Export the model again with the operator as it is declared"
    inputs = operator.inputs
    needed = 1 + max((k for k, a in enumerate(inputs) if a.form == "single"), default=-1)
    lists = [k for k, a in enumerate(inputs) if a.form == "variadic"]
    most = None if lists else len(inputs)
    if lists:  # ONNX Runtime wants a place for each input before a list, for absent ones too
        needed = max(needed, lists[0])
    count = len(node.inputs)
    if count < needed or (most is not None and count > most):
        takes = (
            f"at least {needed}" if most is None else f"{needed}" if needed == most else f"{needed} to {most}"
        )
        names = ", ".join(a.name + ("?" if a.form == "optional" else "") for a in inputs)
        text = f"{node.title} has {count} inputs here; it takes {takes} ({names})"
        if lists and any(a.form == "optional" for a in inputs[:needed]):
            text += "; write '' for absent ones"
        return KernelFault("inputs", text, export)
    for place in node.absent:
        argument = operator.input_at(place)
        if argument is not None and argument.form == "single":
            text = f"{node.title} has no input `{argument.name}` here, which is not optional"
            return KernelFault("inputs", text, export)
    least = sum(o.form == "single" for o in operator.outputs)
    most = None if any(o.form == "variadic" for o in operator.outputs) else len(operator.outputs)
    if node.outputs < least or (most is not None and node.outputs > most):
        text = f"{node.title} has {node.outputs} outputs here; it gives {len(operator.outputs)}"
        return KernelFault("outputs", text, export)
    return None


def _attribute_fault(node: NodeUse, operator: KernelOperator) -> KernelFault | None:
    known = {a.name: a for a in operator.attributes}
    for name, kind in node.attributes.items():
        if name in PLUGIN_ATTRIBUTES and name not in known:
            continue  # for TensorRT's parser alone
        if name not in known:
            return KernelFault(
                "attribute-unknown",
                f"{node.title} has the attribute {name!r}, which its kernel does not know "
                f"({_some(sorted(known)) or 'it has none'}); ONNX Runtime would ignore it",
                "Give the library that the model was exported for, or remove the attribute",
            )
        if kind != known[name].type:
            return KernelFault(
                "attribute-type",
                f"the attribute {name!r} of {node.title} is {kind}; its kernel reads {known[name].type}",
                f"Write it as {known[name].type}",
            )
    for attribute in operator.attributes:
        if attribute.required and attribute.name not in node.attributes:
            return KernelFault(
                "attribute-missing",
                f"{node.title} lacks the attribute {attribute.name!r} ({attribute.type}), which has no default",
                "Export the model again, or set it",
            )
    return None


def _dtype_fault(node: NodeUse, operator: KernelOperator, kernel: str) -> KernelFault | None:
    if any(operator.takes(s, node.inputs) for s in operator.signatures):
        return None
    there = [_types(operator, s.inputs) for s in operator.signatures]
    asked = _asked(operator, node)
    body = (
        "; a registered kernel beats the function body in the file, which does not help"
        if node.has_body
        else ""
    )
    return KernelFault(
        "dtype",
        f"{node.title} has no {kernel} for ({asked}); there {'is' if len(there) == 1 else 'are'} {_some(there) or 'none'}"
        + body,
        "Cast around the node, deploy in another dtype, or compile a kernel for it",
    )


def _asked(operator: KernelOperator, node: NodeUse) -> str:
    parts = []
    for place, dtype in enumerate(node.inputs):
        argument = operator.input_at(place)
        if dtype is not None and argument is not None:
            parts.append(f"{argument.name}: {dtype}")
    return _some(parts)


def _types(operator: KernelOperator, types: Mapping[str, Any]) -> str:
    return "(" + ", ".join(f"{a.name}: {types.get(a.name)}" for a in operator.inputs) + ")"


def _some(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    rest = len(distinct) - _SHOWN
    return ", ".join(distinct[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
