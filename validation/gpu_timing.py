"""The original timed on a GPU beside the backends that run there; see `latency.torch_on_gpu`."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import NotCheckedError
from .backends.torch import cast
from .expectations import Expectation
from .latency.cuda import Cuda, cuda
from .latency.record import LatencyRecord
from .latency.torch_on_gpu import GPU_BACKENDS, OnGpu, original_on, reference_on, torch_on_gpu
from .options import Device
from .original import Original, cloned
from .supervision import Journal

__all__ = ["devices_and_references", "not_timed_on_gpu", "original_on_gpu"]

# Where the backends put their work: the first that the process sees.
_DEVICE = "cuda:0"


def not_timed_on_gpu(record: LatencyRecord | None, device: str) -> str:
    """Why `--device cuda` was asked for and the original was not timed there; empty where it was, or was not asked for."""
    if device != "cuda":
        return ""
    if record is None:
        return "latency was not measured, so that nothing was timed on a GPU"
    if any(t.candidate.startswith(original_on("cuda")) for t in record.timings):
        return ""
    return "the original was not timed on a GPU: the notes say why"


def original_on_gpu(
    original: Original,
    expectation: Expectation,
    runners: Iterable[str],
    wanted: Device,
    journal: Journal,
    notes: list[str],
) -> tuple[Cuda, OnGpu] | None:
    """The original on the GPU, where a backend there is timed beside it, or where the user asks for it.

    Args:
        runners: names of the backends that are timed.
        notes: why it is not there is added.
    """
    backends = [name for name in runners if name in GPU_BACKENDS]
    if wanted == "cpu" or (wanted == "auto" and not backends):
        if backends:
            notes.append(
                f"{', '.join(backends)}: on a GPU, held against the original on the CPU (--device cpu)"
            )
        return None
    label = expectation.sample.label
    journal.running(label, "pytorch", "moved to the GPU, to be timed there")
    model = original.source if original.source is not None else original.model
    args, kwargs = cloned(expectation.sample.args), cloned(dict(expectation.sample.kwargs))
    if original.source is not None:
        from torch.utils import _pytree

        args, kwargs = _pytree.tree_map(lambda v: cast(v, original.own), (args, kwargs))
    try:
        device = cuda()
        found = torch_on_gpu(model, args, kwargs, device)
    except NotCheckedError as error:
        notes.append(f"the original is not timed on a GPU at {label}: {error}")
        if backends:
            notes.append(
                f"{', '.join(backends)}: on a GPU, held against the original on the CPU: two machines"
            )
        return None
    notes += found.notes
    return device, found


def devices_and_references(
    runners: Iterable[str], on_gpu: tuple[Cuda, OnGpu] | None
) -> tuple[dict[str, str], dict[str, str | None]]:
    """What runs on which GPU, and what it is held against where that is not the original on the CPU.

    The original's own ways are shown beside each other, and held against no limit: None.
    """
    backends = [name for name in runners if name in GPU_BACKENDS]
    devices = dict.fromkeys(backends, _DEVICE)
    if on_gpu is None:
        return devices, {}
    device, found = on_gpu
    devices |= dict.fromkeys(found.candidates, device.name)
    references: dict[str, str | None] = dict.fromkeys(found.candidates)
    for name in backends:
        other = reference_on(name, device.name, found.candidates)
        if other is not None:
            references[name] = other
    return devices, references
