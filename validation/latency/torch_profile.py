"""Where the time goes in torch: operators under the modules that called them, from a trace in Chrome's format.

`traced` makes the trace, with a range around each module's forward; `torch_profile` reads it, here or in another process.
The outermost operators count, with what they call: `aten::linear`, not the `aten::addmm` inside.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from .record import NodeTime, Profile

__all__ = ["torch_profile", "traced"]

_RUN = "deployops.run"
_MODULE = "deployops.module:"
_LEVEL = "KINETO_LOG_LEVEL"
_OWN = ("aten", "prims", "prim", "c10d", "profiler", "torch")


def traced(module: Any, call: Callable[[], object], runs: int = 5) -> str:
    """A trace of `runs` calls after one that is not in it, as JSON text.

    Args:
        module: whose submodules are told apart; anything that is no torch.nn.Module has none.
        call: runs it once.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with _marked(module), _quiet(), tempfile.TemporaryDirectory(prefix="deployops-profile-") as folder:
        call()
        with profile(activities=activities) as taken:
            for _ in range(runs):
                with torch.profiler.record_function(_RUN):
                    call()
        path = Path(folder) / "trace.json"
        taken.export_chrome_trace(str(path))
        return path.read_text(encoding="utf-8", errors="replace")


def torch_profile(trace: str, candidate: str, sample: str) -> Profile:
    """The trace as a profile, the costliest first: one entry for each operator of each module.

    Raises:
        ValueError: not a trace, or one without a run of `traced`.
    """
    try:
        events = json.loads(trace)
        events = events["traceEvents"] if isinstance(events, Mapping) else events
    except (json.JSONDecodeError, KeyError):
        raise ValueError("not a trace in Chrome's format") from None
    spans = [e for e in events if isinstance(e, Mapping) and e.get("ph") == "X" and _counts(e)]
    runs = [e for e in spans if e["name"] == _RUN]
    if not runs:
        raise ValueError("a trace without a run")
    times: dict[tuple[str, str], list[float]] = {}
    calls: dict[tuple[str, str], int] = {}
    for k, run in enumerate(runs):
        for module, operator, span in _outermost(run, spans):
            key = (module, operator)
            times.setdefault(key, [0.0] * len(runs))[k] += span
            calls[key] = calls.get(key, 0) + 1
    total = median(float(r["dur"]) for r in runs) / 1e3
    nodes = []
    for (module, operator), of in times.items():
        time = median(of) / 1e3
        nodes.append(
            NodeTime(
                name=f"{module}: {operator}" if module else operator,
                op_type=operator,
                time=time,
                share=time / total if total else 0.0,
                custom="::" in operator and operator.partition("::")[0] not in _OWN,
                module=module,
                calls=calls[module, operator] / len(runs),
            )
        )
    nodes.sort(key=lambda n: -n.time)
    overhead = max(0.0, total - sum(n.time for n in nodes))
    return Profile(candidate, sample, tuple(nodes), total, overhead, len(runs))


def _counts(event: Mapping[str, Any]) -> bool:
    """Operators on the host, and our own ranges; kernels on a device run beside them."""
    if event.get("cat") == "cpu_op":
        return True
    name = str(event.get("name", ""))
    return event.get("cat") == "user_annotation" and (name == _RUN or name.startswith(_MODULE))


def _outermost(
    run: Mapping[str, Any], spans: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, str, float]]:
    """Module, operator and microseconds of each operator that no other operator called."""
    start, end = float(run["ts"]), float(run["ts"]) + float(run["dur"])
    inside = sorted(
        (
            e
            for e in spans
            if e is not run and e.get("tid") == run.get("tid") and start <= float(e["ts"]) <= end
        ),
        key=lambda e: (float(e["ts"]), -float(e["dur"])),
    )
    modules: list[tuple[float, str]] = []
    busy_until = start
    for event in inside:
        begins, ends = float(event["ts"]), float(event["ts"]) + float(event["dur"])
        while modules and modules[-1][0] <= begins:
            modules.pop()
        name = str(event["name"])
        if name.startswith(_MODULE):
            modules.append((ends, name.removeprefix(_MODULE)))
        elif begins >= busy_until:
            busy_until = ends
            yield modules[-1][1] if modules else "", name, ends - begins


@contextmanager
def _quiet() -> Iterator[None]:
    """The profiler's library announces on standard error that it starts and stops, at any level below this one."""
    before = os.environ.get(_LEVEL)
    if before is None:
        os.environ[_LEVEL] = "99"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_LEVEL, None)


@contextmanager
def _marked(module: Any) -> Iterator[None]:
    """A range around the forward of each submodule, by its path."""
    import torch

    with ExitStack() as stack:
        if isinstance(module, torch.nn.Module):
            open_: list[Any] = []

            def enter(path: str) -> Callable[..., None]:
                def before(*_: Any) -> None:
                    marker = torch.profiler.record_function(_MODULE + path)
                    marker.__enter__()
                    open_.append(marker)

                return before

            def leave(*_: Any) -> None:
                open_.pop().__exit__(None, None, None)

            for path, inner in module.named_modules():
                if path and not isinstance(inner, torch.jit.ScriptModule):
                    for handle in (
                        inner.register_forward_pre_hook(enter(path)),
                        inner.register_forward_hook(leave, always_call=True),
                    ):
                        stack.callback(handle.remove)
        yield
