"""On which provider of ONNX Runtime a library's kernels run, and which libraries a session of it can have.

ONNX Runtime takes a domain from one library ("Domain already set in registry"). A session on CUDA runs what has no kernel
there on the CPU, with copies; a session on the CPU finds no kernel for CUDA.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...symbolic.graph_inspection.domains import is_custom
from ...symbolic.graph_inspection.findings import FAILS, HURTS, NOTE, Finding, where
from ...symbolic.graph_inspection.node_uses import NodeUse
from ..library_manifest import LibraryManifest
from ..shipped_operators import shipped_versions
from .custom_nodes import Kernels
from .runtime_limits import RuntimeLimits, installed_with_cuda

__all__ = ["ProviderSession", "cuda_findings", "session_findings", "sessions"]


_NO_KERNEL = ("operator-missing", "no-library", "dtype")


@dataclass(frozen=True, slots=True)
class ProviderSession:
    """A session that a model is held against.

    Attributes:
        provider: the preferred one, "CPU" or "CUDA".
        libraries: those that it has; on CUDA those with kernels for it first.
        aside: libraries for the CPU, of domains that a library for CUDA has: the session cannot have both.
        alone: no library for the CPU was given, so that nobody said what a session on the CPU would find.
    """

    provider: str = "CPU"
    libraries: tuple[LibraryManifest, ...] = ()
    aside: tuple[LibraryManifest, ...] = ()
    alone: bool = False


def sessions(libraries: Sequence[LibraryManifest]) -> tuple[ProviderSession, ...]:
    """One on the CPU, unless all libraries are for CUDA; one on CUDA where there is a library for it."""
    cuda = tuple(m for m in libraries if m.provider == "CUDA")
    cpu = tuple(m for m in libraries if m.provider == "CPU")
    on_cpu = (ProviderSession("CPU", cpu),) if cpu or not cuda else ()
    if not cuda:
        return on_cpu
    taken = {domain for m in cuda for domain in _domains(m)}
    beside = tuple(m for m in cpu if not taken & _domains(m))
    aside = tuple(m for m in cpu if m not in beside)
    return (*on_cpu, ProviderSession("CUDA", (*cuda, *beside), aside, alone=not cpu))


def _domains(library: LibraryManifest) -> set[str]:
    return {o.domain for o in library.operators}


def session_findings(
    session: ProviderSession, uses: Sequence[NodeUse], kernels: Kernels, runtime: RuntimeLimits
) -> Iterator[Finding]:
    """Libraries that cannot be in one session; and of a session on CUDA, what else is to be known."""
    owners: dict[str, LibraryManifest] = {}
    for library in session.libraries:
        for domain in sorted(_domains(library)):
            other = owners.setdefault(domain, library)
            if other is not library:
                what = f"{other.name} and {library.name} both have operators of the domain {domain!r}: ONNX Runtime takes a domain "
                advice = "Compile them into one: `deployops compile --ops A --ops B`"
                yield Finding(FAILS, "domain-shared", "", f"{what}from one library", advice)
    if session.provider == "CPU":
        return
    if runtime.source == "installed" and not installed_with_cuda():
        what = "the package onnxruntime, which is installed here, has no CUDA provider: onnxruntime-gpu has"
        yield Finding(
            NOTE,
            "provider-missing",
            "",
            what,
            'pip install "deployops[gpu]", without the package onnxruntime',
        )
    if session.alone:
        found = [u for u in uses if is_custom(u.domain) and kernels.library(u) is not None]
        bare = sum(not u.has_body for u in found)
        if found:
            names = ", ".join(m.name for m in session.libraries)
            ends = (
                f"{bare} of {len(found)} nodes have no body either, and fail"
                if bare
                else "the nodes run as their bodies"
            )
            what = (
                f"a session on the CPU finds none of the kernels of {names}, which are for CUDA alone: {ends}"
            )
            advice = "For the CPU give the library that `deployops compile --target ort-cpu` builds"
            yield Finding(NOTE, "cuda-alone", "", what, advice)


def cuda_findings(session: ProviderSession, uses: Sequence[NodeUse], kernels: Kernels) -> Iterator[Finding]:
    """Custom nodes that a session on CUDA runs on the CPU, and those that nothing runs there."""
    on_cpu = Kernels(session.aside)
    for use in uses:
        if not is_custom(use.domain):
            continue
        library, fault = kernels.library(use), kernels.fault(use)
        if library is not None and library.provider == "CPU":
            what = (
                f"{use.title} runs on the CPU in a session on CUDA: {library.name} has a CPU kernel, and no library has a CUDA "
                "kernel. Its tensors are copied from the GPU and back"
            )
            yield Finding(HURTS, "cpu-fallback", where(use), what, _cuda_advice(use, [library]))
        if fault is None:
            continue
        what, advice = fault.text, fault.advice
        if fault.kind in _NO_KERNEL:
            other = on_cpu.library(use) if session.aside else None
            if other is not None:
                what += f". {other.name} has a CPU kernel of it, and no session has two libraries of a domain"
            advice = _cuda_advice(use, session.aside, fault.kind == "dtype")
        yield Finding(FAILS, fault.kind, where(use), what, advice)


def _cuda_advice(use: NodeUse, known: Sequence[LibraryManifest] = (), other_dtype: bool = False) -> str:
    """How to get a CUDA kernel of an operator. `known`: libraries in which its torch name may stand."""
    if other_dtype:
        return (
            "Cast around the node, deploy in another dtype, or add the dtype to its declaration and kernel file (.cuh) and build "
            "again with `deployops compile --target ort-cuda`"
        )
    if shipped_versions(use.domain, use.op_type):
        return "`deployops compile --target ort-cuda` builds its CUDA kernel; give that library with --ort-library"
    name = next(
        (o.name for m in known for o in m.operators if (o.domain, o.op_type) == (use.domain, use.op_type)),
        "NAME",
    ).rpartition("::")[2]
    return (
        f"For a CUDA kernel write {name}.cuh beside {name}.h, and `deployops compile --target ort-cuda --ops MODULE`; or export "
        "with --custom-ops function: where no library has a kernel its body runs"
    )
