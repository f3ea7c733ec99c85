"""The manifest beside a plugin library: what is in it, for readers that must not load it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..native.file_contents import FILES
from ..native.kernel_manifest import manifest_path
from ..native.output_files import replace_file

if TYPE_CHECKING:
    from ..native.cuda_library import CudaTools
    from ..native.cuda_plan import CudaPlan
    from ..native.nvcc_output import KernelResources
    from .headers import Headers

__all__ = ["FORMAT", "write_manifest"]

FORMAT = 1


def write_manifest(
    library: Path,
    plan: CudaPlan,
    kernels: Mapping[str, Sequence[KernelResources]],
    tools: CudaTools,
    headers: Headers,
) -> None:
    """Write `<library>.json`. It names no path: equal libraries have equal manifests."""
    content = {
        "format": FORMAT,
        "library": library.name,
        "sha256": FILES.digest(str(library)),
        "target": "tensorrt",
        "nvcc": tools.nvcc.version,
        "tensorrt_headers": headers.version,
        "archs": list(tools.archs),
        "ptx": min(tools.archs),
        "plugins": [
            {
                **operator,
                "kernel": {"file": Path(unit.file).name, "sha256": FILES.digest(unit.file)},
                "kernels": [k.to_dict() for k in kernels[unit.operator]],
            }
            for operator, unit in zip(plan.operators, plan.units, strict=True)
        ],
    }
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    replace_file(manifest_path(library), lambda path: path.write_text(text, encoding="utf-8"))
