"""Everything that is checked of an ONNX model, in order, and what could not be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ...symbolic.graph_inspection.domains import BUILT_IN
from ...symbolic.graph_inspection.findings import Finding, sorted_findings, verdict_of
from ...symbolic.graph_inspection.graph_view import GraphViews
from ...symbolic.graph_inspection.node_uses import ModelUses, NodeUse, opset_versions
from ...symbolic.graph_inspection.shape_faults import NOT_INFERRED, Inferred
from ...symbolic.graph_inspection.stored_tensors import tensor_findings
from ...symbolic.graph_inspection.structure import structure_findings
from ..library_manifest import LibraryManifest
from ..node_uses import model_uses
from .custom_nodes import CustomOperator, Kernels, custom_operators, kernel_findings, library_findings
from .declared_types import declared_type_findings
from .function_faults import function_findings
from .graph_cuts import cut_findings
from .lost_shapes import shape_findings
from .opset_faults import attribute_findings, model_findings, standard_findings
from .providers import ProviderSession, cuda_findings, session_findings
from .runtime_limits import RuntimeLimits, type_findings

if TYPE_CHECKING:
    import onnx

__all__ = ["Checked", "check_model"]


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found of a model, for a session of one runtime.

    `session`: its provider and libraries. `not_checked`: what could not be, one sentence each.
    """

    runtime: RuntimeLimits
    session: ProviderSession
    operators: tuple[CustomOperator, ...]
    findings: tuple[Finding, ...]
    not_checked: tuple[str, ...]
    label: ClassVar[str] = "custom"
    hurting: ClassVar[str] = "cost speed"

    @property
    def title(self) -> str:
        """`ONNX Runtime 1.32.0 (installed), CPU`."""
        source = "" if self.runtime.source == "given" else f" ({self.runtime.source})"
        return f"ONNX Runtime {self.runtime.version}{source}, {self.session.provider}"

    @property
    def verdict(self) -> str:
        """As `verdict_of` says it."""
        return verdict_of(self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for `--json`."""
        return {
            "verdict": self.verdict,
            "runtime": {
                **self.runtime.to_dict(),
                "provider": f"{self.session.provider}ExecutionProvider",
            },
            "libraries": [
                {"name": m.name, "sha256": m.sha256, "operators": len(m.operators), "target": m.target}
                for m in self.session.libraries
            ],
            "operators": [o.to_dict() for o in self.operators],
            "findings": [f.to_dict() for f in self.findings],
            "not_checked": list(self.not_checked),
        }


def check_model(
    model: onnx.ModelProto,
    runtime: RuntimeLimits,
    libraries: Sequence[LibraryManifest] | ProviderSession = (),
    *,
    folder: Path | None = None,
    inferred: Inferred = NOT_INFERRED,
) -> Checked:
    """Hold a parsed model against a runtime and libraries. Neither is loaded, and nothing is run.

    `libraries`: for the CPU; or a session with its provider (`providers.sessions`). `folder`: where the model's side files
    lie; None: their sizes are not looked at. `inferred`: what `shape_faults.infer` found.
    """
    session = (
        libraries if isinstance(libraries, ProviderSession) else ProviderSession(libraries=tuple(libraries))
    )
    on_cpu = session.provider == "CPU"
    uses = model_uses(model, session.libraries)
    kernels, views = Kernels(session.libraries), GraphViews()
    known = {(o.domain, o.op_type) for m in session.libraries for o in m.operators}
    types = list(type_findings(uses.uses, runtime)) if runtime.measured else []
    findings = [
        *model_findings(model, runtime),
        *structure_findings(model),
        *tensor_findings(model, folder),
        *declared_type_findings(model, uses),
        *library_findings(session.libraries, runtime),
        *session_findings(session, uses.uses, kernels, runtime),
        *(kernel_findings(uses.uses, kernels) if on_cpu else cuda_findings(session, uses.uses, kernels)),
        *function_findings(model, uses, runtime, known),
        *attribute_findings(uses.uses),
        *standard_findings(uses.uses),
        *inferred.findings,
        *(f for f in types if on_cpu or f.kind == "unknown-type"),
        *(cut_findings(uses, kernels, runtime, views) if on_cpu else ()),
        *shape_findings(uses, kernels, runtime, views),
    ]
    not_checked = [*_not_checked(model, uses, runtime), *inferred.not_checked]
    if not on_cpu:
        not_checked += _not_checked_on_cuda(types)
    return Checked(
        runtime,
        session,
        custom_operators(uses.uses, kernels, session.provider),
        sorted_findings(findings),
        tuple(not_checked),
    )


def _not_checked_on_cuda(types: Sequence[Finding]) -> list[str]:
    """What was measured on the CPU alone. `types`: what the CPU has no kernel for."""
    found = [
        "which standard nodes the CUDA provider leaves to the CPU, and which fusions custom nodes cut there: measured was the "
        "CPU provider alone"
    ]
    lacking = Counter(f.what.partition(":")[0] for f in types if f.kind == "no-kernel")
    return found + [
        f"whether the CUDA provider has the kernel; without, the session fails: {what} ({count} node{'' if count == 1 else 's'})"
        for what, count in sorted(lacking.items())
    ]


def _not_checked(model: onnx.ModelProto, uses: ModelUses, runtime: RuntimeLimits) -> list[str]:
    import onnx

    found = [runtime.note] if runtime.note else []
    newest, opset = onnx.defs.onnx_opset_version(), opset_versions(model.opset_import).get("", 0)
    if opset > newest:
        found.append(
            f"standard nodes, by their schemas: the installed onnx knows opsets up to {newest}, the model has {opset}"
        )
    counts = Counter(_unmeasured(use) for use in uses.uses)
    found += [f"{count} nodes of {domain}" for domain, count in sorted(counts.items()) if domain]
    unknown = sum(_has_unknown_input(use) for use in uses.uses)
    if unknown:
        found.append(f"the element types at {unknown} nodes, which the file does not tell")
    return found + [f"{text} (the file has more than is read)" for text in uses.incomplete]


def _unmeasured(use: NodeUse) -> str:
    """Domains that come with the runtime, or with ONNX, and that the measurement left out."""
    other = use.domain in BUILT_IN or use.domain.startswith("ai.onnx.")
    return use.domain if other else ""


def _has_unknown_input(use: NodeUse) -> bool:
    return any(dtype is None and k not in use.absent for k, dtype in enumerate(use.inputs))
