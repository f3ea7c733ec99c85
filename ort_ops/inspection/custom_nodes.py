"""The custom operators of a model: declared or unknown, with a body or without, and which library has a kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ...symbolic.graph_inspection.domains import is_custom
from ...symbolic.graph_inspection.findings import FAILS, Finding, where
from ...symbolic.graph_inspection.node_uses import NodeUse
from ..kernel_faults import KernelFault, kernel_fault, kernel_library
from ..library_manifest import LibraryManifest
from ..shipped_operators import shipped_versions
from .runtime_limits import RuntimeLimits

__all__ = ["CustomOperator", "Kernels", "custom_operators", "kernel_findings", "library_findings"]

_OLDEST_RUNTIME = (1, 17)  # `api_version` in ort_ops/cpp/ort_abi.h; a library refuses older ones


@dataclass(frozen=True, slots=True)
class CustomOperator:
    """A custom operator as the model uses it.

    Attributes:
        nodes: how many, of the whole model; a function's nodes count once for each combination of types it is called with.
        in_subgraphs, in_functions: how many of them stand there.
        shipped: it comes with deployops. body: a model-local function of that name is in the file.
        libraries: names of those with a kernel for all of its nodes; of those for a part of them where none has all.
        served: how many nodes have a kernel. by_provider: how many have one for the CPU, and for CUDA.
        provider: that of the session, "CPU" or "CUDA".
    """

    domain: str
    op_type: str
    version: int | None
    nodes: int
    in_subgraphs: int
    in_functions: int
    shipped: bool
    body: bool
    libraries: tuple[str, ...]
    served: int
    by_provider: Mapping[str, int] = field(default_factory=dict)
    provider: str = "CPU"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"libraries": list(self.libraries)}

    def __str__(self) -> str:
        version = "not imported" if self.version is None else f"v{self.version}"
        places = [
            f"{count} in {what}"
            for count, what in ((self.in_subgraphs, "subgraphs"), (self.in_functions, "functions"))
            if count
        ]
        facts = [
            "shipped" if self.shipped else "not of deployops",
            "body in the file" if self.body else "no body",
        ]
        if self.libraries:
            counts = {f"{p} " if self.provider == "CUDA" else "": n for p, n in self.by_provider.items()}
            parts = [
                f"{'' if n == self.nodes else f'{n} of {self.nodes} '}with a {p}kernel"
                for p, n in counts.items()
            ]
            facts.append(f"{', '.join(parts)} in {', '.join(self.libraries)}")
        return f"{self.nodes} × {self.domain}::{self.op_type} {version} ({', '.join([*places, *facts])})"


_Found = tuple[KernelFault | None, LibraryManifest | None]


class Kernels:
    """Looks nodes up in the libraries; equal nodes once."""

    def __init__(self, libraries: Sequence[LibraryManifest]) -> None:
        self._libraries = libraries
        self._known: dict[Any, _Found] = {}
        self._of_node: dict[int, tuple[NodeUse, _Found]] = {}

    def fault(self, use: NodeUse) -> KernelFault | None:
        """What keeps the node from running; None where a kernel or a body runs it."""
        found = self._look_up(use)[0]
        return None if found is None or (found.body_runs and use.has_body) else found

    def library(self, use: NodeUse) -> LibraryManifest | None:
        """The library whose kernel runs the node."""
        return self._look_up(use)[1]

    def stays_a_node(self, use: NodeUse) -> bool:
        """Is it still one node when the graph is optimised? A body without a kernel is expanded."""
        fault = self._look_up(use)[0]
        return not (use.has_body and fault is not None and fault.body_runs)

    def _look_up(self, use: NodeUse) -> _Found:
        if id(use) in self._of_node:
            return self._of_node[id(use)][1]
        key = (
            use.domain, use.op_type, use.domain_version, use.inputs, tuple(use.attributes.items()), use.outputs,
            use.absent, use.has_body,
        )  # fmt: skip
        if key not in self._known:
            fault = kernel_fault(use, self._libraries)
            self._known[key] = (fault, None if fault else kernel_library(use, self._libraries))
        self._of_node[id(use)] = (use, self._known[key])
        return self._known[key]


def library_findings(libraries: Sequence[LibraryManifest], runtime: RuntimeLimits) -> Iterator[Finding]:
    """Libraries that the runtime cannot load."""
    if runtime.release < _OLDEST_RUNTIME:
        for library in libraries:
            what = f"{library.name} needs ONNX Runtime 1.17 or newer; this is {runtime.version}, which it refuses"
            yield Finding(FAILS, "runtime-too-old", "", what, "Use onnxruntime 1.17 or newer")


def kernel_findings(uses: Sequence[NodeUse], kernels: Kernels) -> Iterator[Finding]:
    """Custom nodes that nothing runs."""
    for use in uses:
        if is_custom(use.domain):
            fault = kernels.fault(use)
            if fault is not None:
                advice = fault.advice
                if fault.body_runs:
                    advice += ", or export with --custom-ops function, which puts bodies into the file"
                yield Finding(FAILS, fault.kind, where(use), fault.text, advice)


def custom_operators(
    uses: Sequence[NodeUse], kernels: Kernels, provider: str = "CPU"
) -> tuple[CustomOperator, ...]:
    """Each custom operator and domain version, by name."""
    groups: dict[tuple[str, str, int], list[NodeUse]] = {}
    for use in uses:
        if is_custom(use.domain):
            groups.setdefault((use.domain, use.op_type, use.domain_version or 0), []).append(use)
    found = []
    for (domain, op_type, version), nodes in sorted(groups.items()):
        serving = [library for use in nodes if (library := kernels.library(use)) is not None]
        served = Counter(library.name for library in serving)
        functions = sum("function " in use.place for use in nodes)
        found.append(
            CustomOperator(
                domain,
                op_type,
                version or None,
                nodes=len(nodes),
                in_subgraphs=sum(bool(use.place) for use in nodes) - functions,
                in_functions=functions,
                shipped=bool(shipped_versions(domain, op_type)),
                body=any(use.has_body for use in nodes),
                libraries=tuple(served),
                served=len(serving),
                by_provider=dict(Counter(library.provider for library in serving)),
                provider=provider,
            )
        )
    return tuple(found)
