"""One small file per backend: whether it can be used here, and how a sample becomes output arrays. Nothing here judges.

`runner.py` is what all have in common. A backend that runs native code runs in a child process: `isolated.py` here,
`serving.py` there, `frames.py` between them, `child.py` and `prologue.py` its start and end, `endings.py` what its end
means. `*_engine.py` is what a child opens. Arrays travel as numpy, the types numpy lacks as those of ml_dtypes
(bfloat16, float8).
"""

from __future__ import annotations

from collections.abc import Sequence

from . import emulated, onnxruntime, pytorch, tensorrt
from .runner import GaveUp, Kind, ModelSource, Request, Runner, RunnerFault, Sample

__all__ = [
    "BACKENDS",
    "GaveUp",
    "Kind",
    "ModelSource",
    "Request",
    "Runner",
    "RunnerFault",
    "Sample",
    "available",
    "chosen",
]

# In the order of reports. "pytorch" is the original itself.
BACKENDS: dict[str, Kind] = {
    kind.name: kind for kind in (*pytorch.KINDS, *onnxruntime.KINDS, *tensorrt.KINDS, *emulated.KINDS)
}


def available(request: Request) -> dict[str, str]:
    """Every backend -> why it cannot be used for the request; empty where it can."""
    return {name: kind.missing(request) for name, kind in BACKENDS.items()}


def chosen(names: Sequence[str]) -> list[Kind]:
    """The kinds that the user named, each once, in the order of reports. Raises UsageError for a name that is none."""
    from ...errors import UsageError

    unknown = [name for name in names if name not in BACKENDS]
    if unknown:
        raise UsageError(
            f"there is no backend {', '.join(map(repr, unknown))}; there are {', '.join(map(repr, BACKENDS))}"
        )
    return [kind for name, kind in BACKENDS.items() if name in names]
