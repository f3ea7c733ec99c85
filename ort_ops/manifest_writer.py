"""The manifest beside a library: what is in it, for readers that must not load it (`library_manifest.py`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..native.file_contents import FILES
from ..native.output_files import replace_file
from .library_manifest import FORMAT, manifest_path, platform_of

if TYPE_CHECKING:
    from ..native.compilers import Compiler
    from ..native.cuda_library import CudaTools
    from ..native.cuda_plan import CudaPlan
    from ..native.nvcc_output import KernelResources
    from ..symbolic.operator import Operator
    from .build_plan import Plan

__all__ = ["describe", "write_cuda_manifest", "write_manifest"]


def write_manifest(library: Path, plan: Plan, compiler: Compiler, flags: Sequence[str]) -> None:
    """Write `<library>.json`. It names no path: equal libraries have equal manifests."""
    operators = [
        {**operator, "kernel": _kernel(file)}
        for operator, file in zip(plan.operators, plan.kernels, strict=True)
    ]
    _write(library, "ort-cpu", compiler, flags, operators, {"levels": list(plan.levels)})


def write_cuda_manifest(
    library: Path,
    plan: CudaPlan,
    tools: CudaTools,
    resources: Mapping[str, Sequence[KernelResources]],
    flags: Sequence[str],
) -> None:
    """The same for a library of CUDA kernels; with the architectures, and what each kernel needs on each."""
    operators = [
        {
            **operator,
            "kernel": _kernel(unit.file),
            "kernels": [k.to_dict() for k in resources[unit.operator]],
        }
        for operator, unit in zip(plan.operators, plan.units, strict=True)
    ]
    more = {"nvcc": tools.nvcc.version, "archs": list(tools.archs), "ptx": min(tools.archs)}
    _write(library, "ort-cuda", tools.cxx, flags, operators, {**more, "levels": []})


def _write(
    library: Path,
    target: str,
    compiler: Compiler,
    flags: Sequence[str],
    operators: list[dict[str, Any]],
    more: Mapping[str, Any],
) -> None:
    content = {
        "format": FORMAT,
        "library": library.name,
        "sha256": FILES.digest(str(library)),
        "target": target,
        "platform": platform_of(compiler.target),
        "compiler": {"kind": compiler.kind, "version": compiler.version},
        "flags": list(flags),
        **more,
        "operators": operators,
    }
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    replace_file(manifest_path(library), lambda path: path.write_text(text, encoding="utf-8"))


def _kernel(file: str) -> dict[str, str]:
    return {"file": Path(file).name, "sha256": FILES.digest(file)}


def describe(op: Operator) -> dict[str, Any]:
    """The entry of an operator, but for its kernel file."""
    from ..native.manifest_entry import attribute_entries, signature_entries
    from ..native.signature import fingerprint

    return {
        "domain": op.domain,
        "op_type": op.op_type,
        "version": op.version,
        "name": op.name,
        "fingerprint": fingerprint(op),
        "inputs": [
            {"name": i.name, "form": i.form, "type": op.types.of_input[i.name]} for i in op.interface.inputs
        ],
        "outputs": [
            # what a model does not use, it may leave out
            {"name": o.name, "form": "optional" if k else o.form, "type": op.output_types[o.name].variable}
            for k, o in enumerate(op.interface.outputs)
        ],
        "signatures": signature_entries(op),
        "attributes": attribute_entries(op),
    }
