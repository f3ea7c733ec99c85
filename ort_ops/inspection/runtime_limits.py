"""What an ONNX Runtime takes, as measured (`runtime_limits.json`), and which nodes of a model are beyond it.

Measured is the CPU provider on linux-x86_64, by `benchmarks/measure_runtime_limits.py`: a node is held against models of
one node with the same operator, opset and element type that the runtime refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...symbolic.graph_inspection.findings import FAILS, HURTS, Finding, where
from ...symbolic.graph_inspection.node_uses import NodeUse

__all__ = [
    "RuntimeLimits",
    "installed_version",
    "installed_with_cuda",
    "limits_for",
    "limits_of",
    "type_findings",
]

_FILE = Path(__file__).parent.parent / "runtime_limits.json"
_PACKAGES = ("onnxruntime", "onnxruntime-gpu")


@dataclass(frozen=True, slots=True)
class RuntimeLimits:
    """An ONNX Runtime's limits.

    Attributes:
        version: the one asked about. source: "installed", "given" or "newest measured".
        measured: the version whose measurement stands for it; None where there is none, and nothing is known.
        opset, ir: the newest that it reads.
        unknown_types: element types that it does not know at all.
        fusions: names of those that it does, see `fusions.py`.
        note: how the measurement differs from the version asked about; "" where it does not.
    """

    version: str
    source: str
    measured: str | None
    opset: int = 0
    ir: int = 0
    unknown_types: frozenset[str] = frozenset()
    fusions: frozenset[str] = frozenset()
    note: str = ""
    _operators: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def release(self) -> tuple[int, ...]:
        """The version as numbers."""
        return _release(self.version)

    def gaps(self, op_type: str, opset: int) -> Mapping[str, str]:
        """For models of an opset: place of an input ("0", ...; "to" for what Cast makes) -> types without a kernel.

        "cast": types that run between casts to float32.
        """
        found: Mapping[str, str] = {}
        for first, gaps in self._operators.get(op_type, ()):
            if first > opset:
                break
            found = gaps
        return found

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": "onnxruntime",
            "version": self.version,
            "source": self.source,
            "measured": self.measured,
            "note": self.note,
        }


def limits_for(runtime: str | None) -> RuntimeLimits:
    """The limits of `onnxruntime==X`, or of "installed"; None: of the installed one, else of the newest measured.

    Raises UsageError for any other text, and for "installed" where none is.
    """
    if runtime is None or runtime == "installed":
        found = installed_version()
        if found is not None:
            return limits_of(found, "installed")
        if runtime is not None:
            raise UsageError(
                'no onnxruntime is installed here: name a version, --runtime "onnxruntime==1.23.2"'
            )
        return limits_of(list(_content()["runtimes"])[-1], "newest measured")
    named = re.fullmatch(
        r"\s*onnxruntime\s*==\s*(\d{1,9}(?:\.\d{1,9}){1,3}(?:[.+-]?[a-z]\S{0,40})?)\s*", runtime
    )
    if named is None:
        shown = repr(runtime) if len(runtime) <= 60 else repr(runtime[:60]) + "…"
        raise UsageError(
            f"runtime is {shown}; expected onnxruntime==X.Y.Z or installed. What other runtimes and providers take was not "
            "measured"
        )
    return limits_of(named[1], "given")


def installed_version() -> str | None:
    """The version of the installed onnxruntime, from its package's metadata: it is not imported."""
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            return version(package)
    return None


def installed_with_cuda() -> bool:
    """Whether the installed onnxruntime is the package that has the CUDA provider."""
    with suppress(PackageNotFoundError):
        return bool(version(_PACKAGES[1]))
    return False


def limits_of(asked: str, source: str) -> RuntimeLimits:
    """The limits of a version: measured, or those of the nearest measured one below it, and then the note says so."""
    content = _content()
    versions = list(content["runtimes"])
    release = _release(asked)
    older = [v for v in versions if _release(v)[:2] <= release[:2]]
    if not older:
        return RuntimeLimits(asked, source, None, note=f"ONNX Runtime before {versions[0]} was not measured")
    measured = older[-1]
    note = ""
    if _release(measured) != release:
        alike = (
            "another release of the same"
            if _release(measured)[:2] == release[:2]
            else "the nearest older one measured"
        )
        note = f"ONNX Runtime {asked} itself was not measured: held against {measured}, {alike}"
    limits = content["runtimes"][measured]
    return RuntimeLimits(
        asked,
        source,
        measured,
        limits["opset"],
        limits["ir"],
        frozenset(limits["unknown_types"].split()),
        frozenset(limits["fusions"]),
        note,
        _profiles(measured),
    )


def type_findings(uses: Sequence[NodeUse], limits: RuntimeLimits) -> Iterator[Finding]:
    """Standard nodes whose element types the runtime has no kernel for, or only one in float32."""
    known: dict[tuple[Any, ...], tuple[Any, ...] | None] = {}
    for use in uses:
        if use.domain or use.domain_version is None:
            continue
        key = (use.op_type, use.domain_version, use.inputs, use.produces)
        if key not in known:
            known[key] = _type_fault(use, limits)
        fault = known[key]
        if fault is not None:
            severity, kind, what, advice = fault
            yield Finding(severity, kind, where(use), what, advice)


def _type_fault(use: NodeUse, limits: RuntimeLimits) -> tuple[Any, ...] | None:
    runtime = f"ONNX Runtime {limits.version}"
    unknown = next((d for d in (*use.inputs, *use.produces) if d in limits.unknown_types), None)
    if unknown is not None:
        return (
            FAILS,
            "unknown-type",
            f"{runtime} does not know the element type {unknown}",
            "Use another type",
        )
    gaps = limits.gaps(use.op_type, use.domain_version or 0)
    for place, types in gaps.items():
        if place == "cast":
            continue
        made = place == "to"
        given = use.produces if made else use.inputs[int(place) :]
        dtype = given[0] if given else None
        if dtype is not None and dtype in types.split():
            version_of = f"{use.op_type} of opset {use.domain_version}"
            what = f"{runtime} CPU has no kernel for {version_of} " + (
                f"that makes {dtype}"
                if made
                else f"with {dtype}" + (f" as input {place}" if place != "0" else "")
            )
            return (
                FAILS,
                "no-kernel",
                f"{what}: the model is valid, this is a gap of the runtime",
                "Cast around the node, deploy in another dtype, or use another provider",
            )
    dtype = use.inputs[0] if use.inputs else None
    if dtype is not None and dtype in gaps.get("cast", "").split():
        return (
            HURTS,
            f"{dtype}-in-float32",
            f"{runtime} CPU has no {dtype} kernel for {use.op_type} on x86-64: it casts to float32 before and back after",
            "On this provider deploy in float32; float16 saves only memory",
        )
    return None


@lru_cache(maxsize=1)
def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return content


def _profiles(measured: str) -> dict[str, Any]:
    """Each operator's profile in a runtime: under the last version up to it that the file names."""
    content = _content()
    versions = list(content["runtimes"])
    earlier = set(versions[: versions.index(measured) + 1])
    found = {}
    for name, entries in content["operators"].items():
        first = [v for v in entries if v in earlier]
        if first:
            found[name] = entries[first[-1]]
    return found


def _release(text: str) -> tuple[int, ...]:
    """Without what marks a development build."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
