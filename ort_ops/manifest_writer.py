"""The manifest beside a library: what is in it, for readers that must not load it (`library_manifest.py`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..native.file_contents import FILES
from ..native.output_files import replace_file
from .library_manifest import FORMAT, manifest_path, platform_of

if TYPE_CHECKING:
    from ..native.compilers import Compiler
    from ..symbolic.operator import Operator
    from .build_plan import Plan

__all__ = ["describe", "write_manifest"]


def write_manifest(library: Path, plan: Plan, compiler: Compiler, flags: Sequence[str]) -> None:
    """Write `<library>.json`. It names no path: equal libraries have equal manifests."""
    kernels = map(Path, plan.kernels)
    content = {
        "format": FORMAT,
        "library": library.name,
        "sha256": FILES.digest(str(library)),
        "target": "ort-cpu",
        "platform": platform_of(compiler.target),
        "compiler": {"kind": compiler.kind, "version": compiler.version},
        "flags": list(flags),
        "levels": list(plan.levels),
        "operators": [
            {**operator, "kernel": {"file": kernel.name, "sha256": FILES.digest(str(kernel))}}
            for operator, kernel in zip(plan.operators, kernels, strict=True)
        ],
    }
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    replace_file(manifest_path(library), lambda path: path.write_text(text, encoding="utf-8"))


def describe(op: Operator) -> dict[str, Any]:
    """The entry of an operator, but for its kernel file."""
    from ..native.signature import fingerprint, kernel_rows
    from ..symbolic.attributes import encode_attribute

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
        "signatures": [{"inputs": dict(row.inputs), "outputs": dict(row.outputs)} for row in kernel_rows(op)],
        "attributes": [
            {
                "name": a.name,
                "type": a.onnx_type,
                "required": a.required and not a.optional,
                "default": None if a.default is None else encode_attribute(op.name, a, a.default),
            }
            for a in op.interface.attributes
        ]
        + [
            {"name": name, "type": "INT", "required": True, "default": None}
            for name in op.interface.count_attributes
        ],
    }
