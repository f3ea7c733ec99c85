"""What TensorRT would build another model of, without a word; and where a body runs though there is a plugin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..inspection.check import check_model
from ..inspection.tensorrt_limits import limits_for
from ..library_manifest import read_plugins

if TYPE_CHECKING:
    import onnx

    from ...symbolic.graph_inspection.findings import Finding
    from .flavor import TensorRT

__all__ = ["silent_faults"]

# Everything else that `inspect` finds, TensorRT refuses itself, with a message.
_SILENT = {"body-overloads", "body-of-another", "function-recursive"}
_TOLD = {"body-instead-of-plugin", "plugin-twice"}
_MOST = 5  # faults in a message


def silent_faults(
    model: onnx.ModelProto, tensorrt: TensorRT, plugins: Sequence[Path]
) -> tuple[str, tuple[str, ...]]:
    """Why nothing may be built of a model, empty where nothing is known; and warnings.

    Args:
        model: as the parser will read it.
        plugins: libraries; of those without a manifest nothing is known.
    """
    version = re.match(r"[0-9]+(\.[0-9]+){1,3}", tensorrt.version)
    if version is None:
        return "", ("whether bodies run instead of plugins: not checked, TensorRT's version is not known",)
    limits = limits_for(tensorrt.flavor, version[0])
    findings = check_model(model, limits, [read_plugins(path) for path in plugins]).findings
    faults = [f for f in findings if f.kind in _SILENT]
    more = f"\n  and {len(faults) - _MOST} more" if len(faults) > _MOST else ""
    text = "".join(f"\n  {_text(f)}\n    {f.advice}" for f in faults[:_MOST]) + more
    return text, tuple(f"{_text(f)}. {f.advice}" for f in findings if f.kind in _TOLD)


def _text(finding: Finding) -> str:
    return f"{finding.where}: {finding.what}" if finding.where else finding.what
