"""What explains the times of a record: floors, profiles, and both sides by the user's modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .graph_cost import model_cost
from .joined import joined
from .machine import Machine
from .record import LatencyRecord, Roofline
from .roofline import of_machine, of_model, of_profile, predicted
from .runtime_profile import runtime_profile
from .runtime_trace import read_trace
from .torch_profile import torch_profile
from .values import Value

if TYPE_CHECKING:
    import onnx

    from ...ort_ops.library_manifest import LibraryManifest

__all__ = ["explained", "values_of"]


def explained(
    record: LatencyRecord,
    sample: str,
    model: onnx.ModelProto,
    inputs: Mapping[str, Value],
    machine: Machine,
    *,
    runtime_traces: Mapping[str, str] | None = None,
    torch_traces: Mapping[str, str] | None = None,
    libraries: Sequence[LibraryManifest] = (),
    gpus: Sequence[Machine] | Mapping[str, Machine] = (),
) -> LatencyRecord:
    """The record with floors for each candidate of a sample, and with the profiles of those that have a trace.

    What cannot be read or counted is a note, not an error: no time depends on it.

    Args:
        model: the file; its weights need not be loaded.
        inputs: types and shapes of the sample's arrays: `values_of`. By the names of the graph's inputs, or in their order.
        machine: `machine.this_machine`, measured with the record's threads.
        runtime_traces, torch_traces: candidate -> text of its trace (`Runner.profile`).
        libraries: manifests of the libraries that the sessions had.
        gpus: for floors that are predicted: `gpus.GPUS`, or some of them.
    """
    floors: list[Roofline] = []
    profiles = []
    notes = []
    record = of_machine(record, machine)
    found = None
    try:
        found = model_cost(model, _fed(model, inputs))
    except Exception as error:  # a file may hold anything, and explains nothing then
        notes.append(f"no floor for the model at {sample}: {type(error).__name__}: {error}")
    if found is not None:
        floors += [
            of_model(found, machine, t.candidate, sample, t.median)
            for t in record.timings
            if t.sample == sample and t.device == "cpu"
        ]
        floors += predicted(found, gpus.values() if isinstance(gpus, Mapping) else gpus, sample)
    for candidate, text in (torch_traces or {}).items():
        try:
            profiles.append(torch_profile(text, candidate, sample))
        except Exception as error:  # noqa: PERF203 - a trace comes from another process
            notes.append(f"no profile of {candidate} at {sample}: {error}")
    for candidate, text in (runtime_traces or {}).items():
        try:
            trace = read_trace(text)
            profile = runtime_profile(trace, model, candidate, sample, libraries)
        except Exception as error:  # likewise
            notes.append(f"no profile of {candidate} at {sample}: {error}")
            continue
        profiles.append(profile)
        if all(n.provider in ("", "CPUExecutionProvider") for n in trace.nodes):
            floors += of_profile(profile, trace, machine, found)
    return replace(
        record,
        rooflines=(*record.rooflines, *floors),
        profiles=(*record.profiles, *profiles),
        modules=(*record.modules, *joined(profiles)),
        notes=(*record.notes, *notes),
    )


def _fed(model: onnx.ModelProto, inputs: Mapping[str, Value]) -> dict[str, Value]:
    """The values by the names of the graph's inputs. Raises KeyError where neither names nor numbers fit."""
    stored = {t.name for t in model.graph.initializer}
    wanted = [i.name for i in model.graph.input if i.name in inputs or i.name not in stored]
    if len(wanted) == len(inputs) and not all(name in inputs for name in wanted):
        return dict(zip(wanted, inputs.values(), strict=True))
    return {name: inputs[name] for name in wanted}


def values_of(arrays: Mapping[str, Any]) -> dict[str, Value]:
    """Types and shapes of the arrays or tensors that a graph is fed with."""
    found = {}
    for name, array in arrays.items():
        if not hasattr(array, "dtype"):
            array = np.asarray(array)
        found[name] = Value(str(array.dtype).removeprefix("torch."), tuple(int(n) for n in array.shape))
    return found
