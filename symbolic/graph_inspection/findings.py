"""A finding: how bad, of which kind, where, what, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from ..node_source import source_words
from .node_uses import NodeUse

__all__ = ["FAILS", "HURTS", "NOTE", "Finding", "Severity", "sorted_findings", "verdict_of", "where"]

Severity = Literal["would fail", "hurts", "note"]
FAILS: Severity = "would fail"
HURTS: Severity = "hurts"
NOTE: Severity = "note"
_ORDER = {FAILS: 0, HURTS: 1, NOTE: 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know of a model.

    Attributes:
        severity: "would fail": the runtime refuses the model, or runs something else than it says; "hurts": it is slower,
            or less exact, than it could be; "note".
        kind: a stable word, such as "dtype" or "cut-fusion".
        where: the node, such as "'conv1' (stem.conv, net.py:12) in function acme::F" or "the node that makes 'y'"; "" for the
            whole model.
        what, advice: one sentence each, without their full stop.
    """

    severity: Severity
    kind: str
    where: str
    what: str
    advice: str = ""

    def to_dict(self) -> dict[str, str]:
        return asdict(self)


def verdict_of(findings: Iterable[Finding]) -> str:
    """The worst of them: "would fail" or "hurts"; "nothing found" where there are but notes."""
    severities = {f.severity for f in findings}
    return next((s for s in (FAILS, HURTS) if s in severities), "nothing found")


def where(node: NodeUse) -> str:
    """How a finding names a node, with the module and line that it comes from, where the file tells them."""
    name = (
        repr(node.name)
        if node.name
        else f"the node that makes {node.result!r}"
        if node.result
        else "a node without a name"
    )
    source = source_words(node.node) if node.node is not None else ""
    name = f"{name} ({source})" if source else name
    return f"{name} in {node.place}" if node.place else name


def sorted_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first; within a severity in the order in which they were found, kinds together."""
    found = list(findings)
    first: dict[str, int] = {}
    for k, finding in enumerate(found):
        first.setdefault(finding.kind, k)
    return tuple(sorted(found, key=lambda f: (_ORDER[f.severity], first[f.kind])))
