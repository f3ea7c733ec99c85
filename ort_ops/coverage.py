"""Held against a model before ONNX Runtime sees it: has every custom node a kernel, for its version, attributes, dtypes?

The runtime itself ignores attributes that a kernel does not know, and takes an operator of another version without a
word. A library of which nothing is known (no manifest: somebody else's) gets the benefit of the doubt.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ModelFileError, NotCheckedError, UsageError
from ..symbolic.graph_inspection.node_uses import NodeUse
from .kernel_faults import KernelFault, kernel_fault
from .library_manifest import LibraryManifest, manifest_path, read_manifest
from .node_uses import node_uses
from .shipped_operators import newest_shipped, shipped_versions

if TYPE_CHECKING:
    import onnx

__all__ = ["check_coverage", "has_shipped_operators"]

_SHOWN = 5
# What is wrong with the model itself, whatever library there is.
_MODEL_FAULTS = {
    "domain-not-imported",
    "domain-version",
    "attribute-type",
    "attribute-missing",
    "inputs",
    "outputs",
}


def has_shipped_operators(model: onnx.ModelProto) -> bool:
    """Whether the model imports a domain of shipped operators; its nodes need not be looked at."""
    imports = [*model.opset_import, *(entry for f in model.functions for entry in f.opset_import)]
    return any(newest_shipped(entry.domain) for entry in imports)


def check_coverage(name: str, model: onnx.ModelProto, libraries: Sequence[Path]) -> None:
    """Raise where a custom node of the model has no kernel in `libraries` and no function body instead.

    Raises:
        ModelFileError: the model says something wrong of the node.
        NotCheckedError: the libraries lack a kernel for it.
        UsageError: a library does not match its manifest.
    """
    if not libraries and not has_shipped_operators(model):
        return
    known = [read_manifest(path) for path in libraries if manifest_path(path).is_file()]
    strangers = [path for path in libraries if not manifest_path(path).is_file()]
    _refuse_shared_domains(known)
    if strangers:
        warnings.warn(
            f"{', '.join(path.name for path in strangers)} has no manifest beside it: whether it has what {name} asks for "
            "is not checked, and ONNX Runtime ignores attributes that a kernel does not know",
            stacklevel=3,
        )
    faults: dict[str, KernelFault] = {}
    for use in node_uses(model, known):
        fault = _fault(use, known, bool(strangers))
        if fault is not None:
            faults.setdefault(f"{fault.text}. {fault.advice}", fault)
    if not faults:
        return
    lines = list(faults)[:_SHOWN]
    rest = len(faults) - len(lines)
    lines += [f"and {rest} more like these"] if rest else []
    text = (
        f"{name}: {lines[0]}"
        if len(lines) == 1
        else f"{name}:\n" + "\n".join(f"  - {line}" for line in lines)
    )
    wrong = any(fault.kind in _MODEL_FAULTS for fault in faults.values())
    raise ModelFileError(text) if wrong else NotCheckedError(text)


def _refuse_shared_domains(libraries: Sequence[LibraryManifest]) -> None:
    """ONNX Runtime takes a domain from one library only, and says of a second one "already set in registry"."""
    owners: dict[str, LibraryManifest] = {}
    for library in libraries:
        for domain in {o.domain for o in library.operators}:
            other = owners.setdefault(domain, library)
            if other.path == library.path:
                continue
            advice = (
                "Compile them into one: `deployops compile --ops A --ops B`"
                if other.target == library.target
                else "One is for the CPU, the other for CUDA: give the one for the provider of the session"
            )
            raise UsageError(
                f"{other.path} and {library.path} both have operators of the domain {domain!r}: ONNX Runtime takes a "
                f"domain from one library. {advice}"
            )


def _fault(use: NodeUse, known: Sequence[LibraryManifest], strangers: bool) -> KernelFault | None:
    there = any((o.domain, o.op_type) == (use.domain, use.op_type) for m in known for o in m.operators)
    # Without one in a known library, it is standard, or has a body, or a stranger's library may have it.
    shipped = bool(shipped_versions(use.domain, use.op_type))
    if not there and (use.has_body or strangers or not shipped):
        return None
    fault = kernel_fault(use, known)
    return None if fault is not None and fault.body_runs and use.has_body else fault
