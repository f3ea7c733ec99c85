"""What a bisection says, in the user's terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .dataflow import Dataflow, Part

if TYPE_CHECKING:
    from ..record import Culprit
    from .declared_attributes import OtherAttribute
    from .steps import Suspect

__all__ = [
    "ANOTHER_BEHIND",
    "BACKEND_AT_FAULT",
    "FILE_AT_FAULT",
    "KERNEL_AT_FAULT",
    "NOT_AGAIN",
    "NOT_ALONE",
    "RANDOM",
    "accumulated",
    "among",
    "body_against_node",
    "elsewhere",
    "file_differs",
    "found",
    "frozen",
    "fused",
    "made_up_for",
    "no_body_but",
    "no_more_runs",
    "no_reference",
    "other_attribute",
    "other_constant",
    "other_operators",
    "other_outputs",
    "other_shape",
    "other_weight",
    "refused",
    "refused_whole",
    "refuses",
    "several",
    "together",
    "uncut_refused",
]

NOT_AGAIN = (
    "the output did not fail again when it was run for this: the backend differs from itself, or what runs before "
    "matters"
)
NOT_ALONE = "run alone, next to no other node, it is within its budget"
RANDOM = "it gave another value when it was run again: it draws random numbers, or races"
FILE_AT_FAULT = "Evaluated as written, the node gives what the backend gives: the file says something else than the original"
BACKEND_AT_FAULT = (
    "Evaluated as written, the node gives the right value: the backend, or its library, computes another"
)
# Of a custom operator without a body in the file: nothing but its declaration says what it computes.
KERNEL_AT_FAULT = (
    "The file has no body of the node to evaluate, and its inputs are right: the backend's kernel of this operator, or the "
    "library that it is from, computes another than the operator's reference"
)

ANOTHER_BEHIND = "With the right value in its place the output still fails: there is another fault behind it"
MOST_NAMED = 12  # nodes of a group


def found(culprit: Culprit, remarks: Sequence[str]) -> str:
    """The text of a culprit."""
    title = _title(culprit)
    place = f", from {culprit.module or 'the model'}" if culprit.module or culprit.line else ""
    line = f" ({culprit.line})" if culprit.line else ""
    parts = [
        f"{title} makes `{culprit.output}`{place}{line}. Its inputs are the reference's, its output is not: "
        f"{culprit.reason}",
        _group(culprit.among),
        *remarks,
    ]
    return ". ".join(part.rstrip(".") for part in parts if part) + "."


def refuses(culprit: Culprit) -> str:
    """The text of a node that the backend does not run."""
    parts = (f"{_title(culprit)} is the first that fails to run: {culprit.reason}", _group(culprit.among))
    return ". ".join(p for p in parts if p)


def _title(culprit: Culprit) -> str:
    kind = f"{culprit.domain}::{culprit.op_type}" if culprit.domain else culprit.op_type
    name = f"{kind} `{culprit.node}`" if culprit.node else kind
    return f"One of {len(culprit.among)} nodes, of which {name} is the last," if culprit.among else name


def among(flow: Dataflow, part: Part) -> tuple[str, ...]:
    """The nodes of a part, if several: where values between nodes have no counterpart, the fault lies in one of them."""
    nodes = [n for n in (flow.nodes[k] for k in part.nodes) if any(o not in flow.constant for o in n.output)]
    return tuple(f"{n.op_type} `{n.name}`" if n.name else n.op_type for n in nodes) if len(nodes) > 1 else ()


def _group(among: Sequence[str]) -> str:
    if not among:
        return ""
    before = "the node" if len(among) == 2 else f"the {len(among) - 1} nodes"
    listed = ", ".join(among[-MOST_NAMED:])
    more = f"{len(among) - MOST_NAMED} more, " if len(among) > MOST_NAMED else ""
    return (
        f"No value between it and {before} before it has a counterpart in the original, so that it may be any of "
        f"{more}{listed}"
    )


def several(flow: Dataflow, suspects: Sequence[Suspect]) -> str:
    names = ", ".join(f"{flow.nodes[flow.made_by[s.name]].op_type} -> `{s.name}`" for s in suspects[:5])
    more = f" and {len(suspects) - 5} more" if len(suspects) > 5 else ""
    return f"Slightly out of their own budgets, none enough to explain the output: {names}{more}."


def _nodes(flow: Dataflow, suspects: Sequence[Suspect]) -> str:
    nodes = [flow.nodes[flow.made_by[s.name]] for s in suspects]
    return ", ".join(
        f"{n.op_type} `{n.name}`" if n.name else f"{n.op_type} -> `{n.output[0]}`" for n in nodes
    )


def made_up_for(flow: Dataflow, suspects: Sequence[Suspect]) -> str:
    return (
        f"{_nodes(flow, suspects)} before it differ from the original too, and later nodes make up for that"
    )


def together(flow: Dataflow, suspects: Sequence[Suspect]) -> str:
    return (
        f"No single node explains it: {_nodes(flow, suspects)} differ from the original, and with one of them put right the "
        "output is farther off than before. They make up for each other, as where a tool moves a factor from one node to "
        "another; which of them does so wrongly cannot be told."
    )


def accumulated(flow: Dataflow, first: str | None) -> str:
    where = (
        f" It first leaves the budget of the whole at `{first}` ({flow.nodes[flow.made_by[first]].op_type})."
        if first is not None
        else ""
    )
    return (
        "No single node explains it: each is within its budget on the reference's values, and the errors add up."
        + where
    )


def fused(flow: Dataflow, window: Part | None) -> str:
    text = (
        "No single node explains it: the failure is gone when the values between the nodes are asked for, so the "
        "backend's optimiser makes it where it joins nodes"
    )
    if window is None:
        return f"{text}. No short run of nodes shows it"
    nodes = [flow.nodes[k] for k in window.nodes]
    names = ", ".join(f"{n.op_type} `{n.name}`" if n.name else n.op_type for n in nodes)
    return f"{text}. The shortest run of nodes that shows it: {names}"


def uncut_refused(error: str) -> str:
    return (
        "No single node leaves its budget. With all values between the nodes as outputs the backend does not run the "
        f"file, so a fusion and errors that add up cannot be told apart: {error}"
    )


def refused(error: str, text: str) -> str:
    return f"The backend fails on the file: {error.rstrip('.')}. What leads to it: {text}"


def refused_whole(error: str) -> str:
    return f"The backend fails on the file as a whole, and on none of its nodes alone: {error}"


def frozen(recorded: str, here: str) -> str:
    agrees = f"; traced at {here}, it does not" if here else ""
    return (
        f"The original, traced at {recorded}, differs from the original on this sample{agrees}. What Python code decides "
        "(an `if` on a size or a value, a loop) is fixed at tracing: the difference is in no node of the file"
    )


def other_outputs(file: int, original: int) -> str:
    return f"the file has {file} outputs, the original {original}: nothing can be compared"


def no_reference(original: str, file: str) -> str:
    return f"There is nothing to hold the values between the nodes against: {original}; {file}"


def file_differs(why: str) -> str:
    return (
        f"The file, evaluated node by node without the backend, differs from the original too: the fault is in the file. "
        f"Where, cannot be said: {why}"
    )


def no_more_runs(most: int) -> str:
    return f"not found within {most} runs of the backend"


def other_attribute(kind: str, name: str, value: Any, expected: Any) -> str:
    return f"The attribute differs: `{name}` of {kind} is {_value(value)} in the file, an export writes {_value(expected)}"


def body_against_node(attributes: Sequence[OtherAttribute]) -> str:
    """The body in the file is right, and the node's attributes, by which a kernel goes, are not."""
    unread = [f"`{a.name}`" for a in attributes if not a.read]
    if not unread:
        return (
            "Evaluated as written, the body in the file gives the right value all the same, but a kernel may make more of the "
            "node's attributes: the file says something else than the original"
        )
    return (
        f"Evaluated as written, the body in the file gives the right value, for it does not read {', '.join(unread)} from the "
        "node: what the call in the original had is fixed in it. Body and attributes of the node disagree, and a kernel goes by "
        "the attributes: the file says something else than the original"
    )


def no_body_but(attributes: Sequence[OtherAttribute]) -> str:
    """Nothing to evaluate, and attributes that are not those of the call."""
    what = "an attribute is" if len(attributes) == 1 else "attributes are"
    return (
        f"The file has no body of the node to evaluate, but {what} not that of the call: the file says something else than the "
        "original"
    )


def other_constant(
    kind: str, position: int, value: Any, expected: Any, at: Sequence[int] = (), shapes: bool = False
) -> str:
    what = "shape " if shapes else ""
    where = f" at {list(at)}" if at else ""
    return (
        f"The constant differs: input {position} of {kind} has {what}{_value(value)}{where} in the file, an export writes "
        f"{what}{_value(expected)}"
    )


def other_operators(kinds: Sequence[str], wanted: Sequence[str]) -> str:
    return f"The operators differ: the file has {', '.join(kinds)} here, an export writes {', '.join(wanted)}"


def _value(value: Any) -> str:
    if value is None:
        return "not there"
    if isinstance(value, bytes):
        return repr(value.decode(errors="replace"))
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        shown = ", ".join(_value(v) for v in value[:8])
        return f"[{shown}{', …' if len(value) > 8 else ''}]"
    return str(value)


def other_weight(name: str, target: str, apart: float, at: tuple[int, ...], differ: int, size: int) -> str:
    return (
        f"The weight differs: `{name}` in the file is not `{target}` of the original: {differ} of {size} elements, by "
        f"{apart:.3g} at most, at {list(at)}"
    )


def other_shape(name: str, shape: tuple[int, ...], target: str, want: tuple[int, ...]) -> str:
    return f"The weight differs: `{name}` has shape {list(shape)}, `{target}` of the original {list(want)}"


def elsewhere(label: str, fails: bool) -> str:
    if fails:
        return f"On {label}, which passed, it is out of its budget too"
    return f"On {label} it is within its budget: the fault depends on the size or the values"
