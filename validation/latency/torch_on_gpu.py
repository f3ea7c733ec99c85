"""The original on a GPU, in the ways that a backend there may be compared with: what is timed, and against what.

A backend on a GPU beside an original on the CPU would be a comparison of two machines. So the original is moved there
too and measured in the same rounds: with its L2 warm and cold, as one CUDA graph, and with the copies in and out. Not
checked on a GPU.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import NotCheckedError
from .cuda import Cuda, event_timed, graphed, phased

__all__ = ["GPU_BACKENDS", "OnGpu", "original_on", "reference_on", "torch_on_gpu"]

_COLD, _GRAPH, _COPIES = ", cold L2", ", CUDA graph", ", with copies"

# Backends on a GPU, and the way of timing the original that theirs corresponds to: TensorRT's engines are timed by events
# around the computation, a session of ONNX Runtime from host memory to host memory.
GPU_BACKENDS: Mapping[str, str] = {"tensorrt": "", "tensorrt-rtx": "", "onnxruntime-cuda": _COPIES}


@dataclass(slots=True)
class OnGpu:
    """Candidates by name, and why one is not among them."""

    candidates: dict[str, Callable[[], float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def original_on(device: str, reference: str = "pytorch") -> str:
    """What the original is called as a candidate on a GPU: its L2 warm, compute alone."""
    return f"{reference} on {device}"


def reference_on(backend: str, device: str, candidates: Mapping[str, Any]) -> str | None:
    """Which of the original's candidates a backend on that device is held against; None where none was measured."""
    name = original_on(device) + GPU_BACKENDS.get(backend, "")
    return name if name in candidates else None


def torch_on_gpu(model: Any, args: Any, kwargs: Any, device: Cuda) -> OnGpu:
    """The original's candidates on a GPU; it is copied there, and stays where it is.

    Raises:
        NotCheckedError: it does not run there, or leaves its results elsewhere.
    """
    import torch
    from torch.utils import _pytree

    leaves, structure = _pytree.tree_flatten((args, dict(kwargs)))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[k] for k in places]

    def run(*given: torch.Tensor) -> Any:
        filled = list(leaves)
        for k, tensor in zip(places, given, strict=True):
            filled[k] = tensor
        a, kw = _pytree.tree_unflatten(filled, structure)
        return there(*a, **kw)

    try:
        there = _moved(model, device)
        inputs = [t.to(device.name) for t in tensors]
        result = run(*inputs)
        device.synchronize()
    except Exception as error:  # the original's own, or torch's: no kernel, no memory, tensors on two devices
        raise NotCheckedError(f"it does not run there: {_words(error)}") from error
    elsewhere = {
        str(leaf.device)
        for leaf in _pytree.tree_leaves(result)
        if isinstance(leaf, torch.Tensor) and leaf.device.type != "cuda"
    }
    if elsewhere:
        raise NotCheckedError(f"its results lie on {', '.join(sorted(elsewhere))}: it computes there")
    del result

    def call() -> Any:
        return run(*inputs)

    name = original_on(device.name)
    found = OnGpu()
    found.candidates[name] = event_timed(call, device)
    found.candidates[name + _COLD] = event_timed(call, device, "cold")
    found.candidates[name + _COPIES] = phased(run, tensors, device)
    try:
        found.candidates[name + _GRAPH] = event_timed(graphed(call, device), device)
    except NotCheckedError as error:
        found.notes.append(str(error))
        try:  # a capture that broke off may leave the device unusable
            call()
            device.synchronize()
        except Exception as broken:
            raise NotCheckedError(f"{error}; after that nothing runs there: {_words(broken)}") from broken
    found.notes.append(
        f"on {device.name}, torch multiplies float32 with precision {torch.get_float32_matmul_precision()!r}; "
        "TensorRT uses TF32 unless it was told not to"
    )
    return found


def _moved(model: Any, device: Cuda) -> Any:
    import torch

    if not isinstance(model, torch.nn.Module):
        return model  # a function: what it is given is moved
    return copy.deepcopy(model).to(device.name)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
