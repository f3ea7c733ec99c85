"""The manifest beside a plugin library: what is in it, for readers that must not load it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..native.file_contents import FILES
from ..native.output_files import replace_file

if TYPE_CHECKING:
    from ..native.nvcc import Nvcc
    from ..native.nvcc_output import KernelResources
    from ..symbolic.operator import Operator
    from .headers import Headers
    from .plan import PluginPlan

__all__ = ["FORMAT", "describe", "manifest_path", "write_manifest"]

FORMAT = 1


def manifest_path(library: Path) -> Path:
    return library.with_suffix(".json")


def write_manifest(
    library: Path,
    plan: PluginPlan,
    kernels: Mapping[str, Sequence[KernelResources]],
    archs: Sequence[int],
    nvcc: Nvcc,
    headers: Headers,
) -> None:
    """Write `<library>.json`. It names no path: equal libraries have equal manifests."""
    content = {
        "format": FORMAT,
        "library": library.name,
        "sha256": FILES.digest(str(library)),
        "target": "tensorrt",
        "nvcc": nvcc.version,
        "tensorrt_headers": headers.version,
        "archs": list(archs),
        "ptx": min(archs),
        "plugins": [
            {
                **operator,
                "kernel": {"file": Path(unit.file).name, "sha256": FILES.digest(unit.file)},
                "kernels": [asdict(k) for k in kernels[unit.operator]],
            }
            for operator, unit in zip(plan.operators, plan.kernels, strict=True)
        ],
    }
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    replace_file(manifest_path(library), lambda path: path.write_text(text, encoding="utf-8"))


def describe(op: Operator) -> dict[str, Any]:
    """The entry of an operator, but for its kernels. `op`: as carried by TensorRT."""
    from ..native.signature import fingerprint, kernel_rows
    from ..symbolic.attributes import encode_attribute

    return {
        "name": op.name,
        "plugin_namespace": op.domain,
        "plugin_name": op.op_type,
        "plugin_version": str(op.version),
        "fingerprint": fingerprint(op),
        "inputs": [{"name": i.name, "form": i.form} for i in op.interface.inputs],
        "outputs": [o.name for o in op.interface.outputs],
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
