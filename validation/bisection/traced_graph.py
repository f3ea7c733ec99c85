"""The original traced as for an export, to the graph of operators that the exporter translates.

Its values have the names that our exporter, and torch's, give to the values of the file.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...errors import DeployOpsError, ModelFileError
from ...export.capture import capture
from ...export.graph.decomposition import without_retrace
from ...export.graph.onnx_functions import decompositions
from ...export.graph.program_copy import drop_constant_outputs
from ...export.inputs.signature import Signature, signature_from_specs, signature_from_values
from ...export.onnx_file.integrity import read_manifest
from ...export.source import Source
from ...export.traced import functionalised, leaf_names
from ...symbolic import dtypes, registry, translate
from ..backends import Sample
from ..backends.torch import cast, described, evaluating
from ..original import Original
from .reference import Unmappable

if TYPE_CHECKING:
    import onnx
    import torch
    from torch.export import ExportedProgram

    from ...symbolic.operator import Operator

__all__ = ["TracedGraph", "deployed_module", "traces"]


@dataclass(frozen=True, slots=True)
class TracedGraph:
    """A program, and what its placeholders for ONNX nodes stand for.

    Attributes:
        program: functional; operators of torch that ONNX functions exist for, and placeholders.
        calls: the declared operator and its encoded attributes, by the placeholder's key.
        leaves: names of the arguments in the order of the program's inputs.
        at: what it was traced with, in words.
    """

    program: ExportedProgram
    calls: Mapping[str, tuple[Operator, Mapping[str, Any]]]
    leaves: tuple[str, ...]
    at: str


def deployed_module(original: Original) -> Any:
    """The original as a module in the deployed dtype."""
    import torch

    model = original.source if original.source is not None else original.model
    if not isinstance(model, torch.nn.Module):
        model = _as_module(model)
    if original.source is None or original.deployed is None:
        return model
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            copied = copy.deepcopy(model)
        return copied._apply(lambda tensor: cast(tensor, original.deployed))
    except Exception as error:  # whatever a module may raise where it is copied
        raise Unmappable(f"the original cannot be copied in the file's dtype: {described(error)}") from error


def traces(
    module: Any, sample: Sample, model: onnx.ModelProto, cast_inputs: torch.dtype | None = None
) -> Iterator[TracedGraph | Unmappable]:
    """The original traced at the inputs that the file records, then at the sample's, or why it cannot be.

    `cast_inputs`: the floating dtype that `module` takes, where the file's inputs have another.
    """
    registry.load_builtin()
    registry.load_entry_points()
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 20)
    source = Source("the original", module, None)
    seen = []
    for at, signature in _signatures(module, sample, model, cast_inputs):
        if isinstance(signature, Unmappable):
            yield signature
            continue
        if signature.specs in seen:
            continue
        seen.append(signature.specs)
        try:
            yield _trace(source, signature, opset, at)
        except Exception as error:  # torch raises of every kind here
            yield Unmappable(f"the original cannot be traced: {described(error)}")


def _trace(source: Source, signature: Signature, opset: int, at: str) -> TracedGraph:
    import torch

    module = source.module
    with evaluating(module), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        args, kwargs = source.arrange(*signature.bind(signature.make(), module))
        program, _ = capture(source, signature, args, kwargs)
        program = functionalised(program, opset)
        drop_constant_outputs(program)
        lowered = translate.lower(program)
        program = without_retrace(program, opset) or program.run_decompositions(decompositions(opset))
    return TracedGraph(program, lowered.calls, tuple(leaf_names(source, signature, module)), at)


def _signatures(
    module: Any, sample: Sample, model: onnx.ModelProto, cast_inputs: torch.dtype | None
) -> Iterator[tuple[str, Signature | Unmappable]]:
    recorded = _recorded(model)
    if recorded:
        try:
            yield "the inputs that the file records", _retyped(signature_from_specs(recorded), cast_inputs)
        except DeployOpsError as error:
            yield "", Unmappable(str(error))
    dynamic = {
        i.name: {
            axis: dim.dim_param
            for axis, dim in enumerate(i.type.tensor_type.shape.dim)
            if dim.dim_param.isidentifier()
        }
        for i in model.graph.input
    }
    dynamic = {name: axes for name, axes in dynamic.items() if axes}
    args, kwargs = sample.args, dict(sample.kwargs)
    if cast_inputs is not None:
        from torch.utils import _pytree

        args, kwargs = _pytree.tree_map(lambda value: cast(value, cast_inputs), (args, kwargs))
    for variable in (dynamic, {}) if dynamic else ({},):
        try:
            found = signature_from_values(args, kwargs, module, variable)
        except DeployOpsError as error:  # noqa: PERF203 - twice at most
            yield "", Unmappable(str(error))
        else:
            yield f"the sample {sample.label!r}", found


def _retyped(signature: Signature, dtype: torch.dtype | None) -> Signature:
    """The signature with its floating inputs in `dtype`."""
    if dtype is None:
        return signature
    name = dtypes.name_of(dtype)
    specs = [
        replace(s, dtype=name) if s.is_tensor and dtypes.torch_dtype(s.dtype).is_floating_point else s
        for s in signature.specs
    ]
    return replace(signature, specs=tuple(specs))


def _recorded(model: onnx.ModelProto) -> Sequence[str]:
    try:
        specs = read_manifest(model, "the file").get("inputs", [])
    except ModelFileError:
        return []
    return [s for s in specs if isinstance(s, str)] if isinstance(specs, list) else []


def _as_module(function: Any) -> Any:
    import torch

    class Function(torch.nn.Module):
        """A plain callable, as a module."""

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

    return Function()
