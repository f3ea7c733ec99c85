"""What TensorRT would build another model of, without a word; and where a body runs though there is a plugin."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...symbolic.graph_inspection.findings import FAILS
from ..inspection.check import check_model
from ..inspection.tensorrt_limits import limits_for
from ..library_manifest import PluginManifest, read_plugins
from ..manifest import manifest_path

if TYPE_CHECKING:
    import onnx

    from ...symbolic.graph_inspection.findings import Finding
    from .flavor import TensorRT

__all__ = ["silent_faults"]

# Everything else that `inspect` finds, TensorRT refuses itself, with a message.
_SILENT = {
    "body-overloads", "body-of-another", "function-recursive", "functions-expand",
    "library-arch",
    "attribute-unknown", "attribute-missing", "attribute-type", "attribute-length", "attribute-range",
}  # fmt: skip
_TOLD = {"body-instead-of-plugin", "library-arch", "attribute-type"}
_MOST = 5  # faults in a message


def silent_faults(
    model: onnx.ModelProto, tensorrt: TensorRT, plugins: Sequence[Path], archs: Sequence[str] = ()
) -> tuple[str, tuple[str, ...]]:
    """Why nothing may be built of a model, empty where nothing is known; and warnings.

    Args:
        model: as the parser will read it.
        plugins: libraries; for those without a manifest a warning says what is not checked.
        archs: what the engine is for, "sm89"; TensorRT-RTX without: 8.0 and newer.
    """
    version = re.match(r"[0-9]+(\.[0-9]+){1,3}", tensorrt.version)
    if version is None:
        text = "whether attributes reach plugins as they are, and whether bodies run instead of plugins"
        return "", (f"{text}: not checked, TensorRT's version is not known",)
    limits = limits_for(tensorrt.flavor, version[0])
    if not archs and tensorrt.flavor == "tensorrt-rtx":
        archs = ["sm80"]
    wanted = [int(arch.removeprefix("sm")) for arch in archs]
    manifests = [read_plugins(path) for path in plugins]
    checked = check_model(model, limits, manifests, archs=wanted)
    findings = checked.findings
    faults = [f for f in findings if f.kind in _SILENT and f.severity == FAILS]
    more = f"\n  and {len(faults) - _MOST} more" if len(faults) > _MOST else ""
    text = "".join(f"\n  {_text(f)}\n    {f.advice}" for f in faults[:_MOST]) + more
    told = (f"{_text(f)}. {f.advice}" for f in findings if f.kind in _TOLD and f.severity != FAILS)
    unread = (f"whether attributes and bodies are right: not checked for {what}" for what in checked.unread)
    return text, (*told, *unread, *_not_checked(model, manifests))


def _not_checked(model: onnx.ModelProto, manifests: Sequence[PluginManifest]) -> Iterator[str]:
    """What only a manifest tells.

    TensorRT itself says which attributes a plugin has, and `worker_build` looks at them; not of nodes that have a body, too.
    """
    bodies = (
        ", whether bodies of the model run in the place of its plugins, or where they do not, whether its plugins have all "
        "attributes of their nodes"
        if model.functions
        else ""
    )
    for manifest in manifests:
        if manifest.plugins is None:
            yield (
                f"not checked, as {manifest.name} has no manifest beside it: whether its plugins read the attributes by their "
                f"types and counts{bodies}, and whether it has code for the GPUs. `deployops compile` writes one: copy "
                f"{manifest_path(manifest.path).name} along with the library"
            )


def _text(finding: Finding) -> str:
    return f"{finding.where}: {finding.what}" if finding.where else finding.what
