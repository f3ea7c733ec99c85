"""What `inspect` finds of a model, as a build needs it: what TensorRT is silent about, warnings, and reasons beside its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...native.kernel_manifest import manifest_path
from ...symbolic.graph_inspection.findings import FAILS, Finding
from ..inspection.check import check_model
from ..inspection.tensorrt_limits import limits_for
from ..library_manifest import PluginManifest

if TYPE_CHECKING:
    import onnx

    from .flavor import TensorRT

__all__ = ["Inspected", "inspected", "listed"]

# Everything else that `inspect` finds, TensorRT refuses itself; what it says of it may be nothing at all (`besides`).
_SILENT = {
    "standard-name",
    "body-overloads", "body-of-another", "function-recursive", "functions-expand",
    "library-arch",
    "attribute-unknown", "attribute-missing", "attribute-type", "attribute-length", "attribute-range",
}  # fmt: skip
_TOLD = {"body-instead-of-plugin", "library-arch", "attribute-type"}
# What `messages` says itself of a node without a plugin or an operator.
_SAID = {"no-plugin", "plugin-name", "plugin-version", "plugin-namespace", "operator-missing"}
_MOST = 5  # faults in a message


@dataclass(frozen=True, slots=True)
class Inspected:
    """What was found.

    Attributes:
        silent: why nothing may be built, though TensorRT would.
        refused: what TensorRT refuses itself.
        warnings: of an engine that is built all the same, and what was not checked.
    """

    silent: tuple[Finding, ...] = ()
    refused: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()

    def besides(self, text: str) -> str:
        """To put behind why TensorRT built nothing: what else is known to be wrong; "" where that is nothing."""
        others = [f for f in self.refused if f.kind not in _SAID and f.what not in text]
        return f"\n`deployops inspect` finds:{listed(others)}" if others else ""


def inspected(
    model: onnx.ModelProto, tensorrt: TensorRT, plugins: Sequence[PluginManifest], archs: Sequence[str] = ()
) -> Inspected:
    """Hold a model against the TensorRT that is to build it.

    Args:
        model: as the parser will read it.
        plugins: of the libraries; for those without a manifest a warning says what is not checked, `of_registry` or not.
        archs: what the engine is for, "sm89"; TensorRT-RTX without: 8.0 and newer.
    """
    version = re.match(r"[0-9]+(\.[0-9]+){1,3}", tensorrt.version)
    if version is None:
        text = "whether attributes reach plugins as they are, and whether bodies run instead of plugins"
        return Inspected(warnings=(f"{text}: not checked, TensorRT's version is not known",))
    limits = limits_for(tensorrt.flavor, version[0])
    if not archs and tensorrt.flavor == "tensorrt-rtx":
        archs = ["sm80"]
    wanted = [int(arch.removeprefix("sm")) for arch in archs]
    checked = check_model(model, limits, plugins, archs=wanted)
    faults = [f for f in checked.findings if f.severity == FAILS]
    told = (f"{_text(f)}. {f.advice}" for f in checked.findings if f.kind in _TOLD and f.severity != FAILS)
    unread = (f"whether attributes and bodies are right: not checked for {what}" for what in checked.unread)
    return Inspected(
        tuple(f for f in faults if f.kind in _SILENT),
        tuple(f for f in faults if f.kind not in _SILENT),
        (*told, *unread, *_not_checked(plugins)),
    )


def listed(findings: Sequence[Finding]) -> str:
    """Each on a line of its own, its advice on the next."""
    more = f"\n  and {len(findings) - _MOST} more" if len(findings) > _MOST else ""
    return "".join(f"\n  {_text(f)}\n    {f.advice}" for f in findings[:_MOST]) + more


def _not_checked(manifests: Sequence[PluginManifest]) -> Iterator[str]:
    """What only a manifest tells: TensorRT's registry has the names alone (`of_registry`)."""
    for manifest in manifests:
        if manifest.plugins is None or manifest.registered:
            yield (
                f"not checked, as {manifest.name} has no manifest beside it: whether its plugins read the attributes by their "
                "types and counts, take the node's inputs and element types, and whether it has code for the GPUs. "
                f"`deployops compile` writes one: copy {manifest_path(manifest.path).name} along with the library"
            )


def _text(finding: Finding) -> str:
    return f"{finding.where}: {finding.what}" if finding.where else finding.what
