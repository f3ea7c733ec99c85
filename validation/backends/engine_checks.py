"""What is known of an engine before anything native is loaded: by its sidecar, and without one by its first bytes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from ...errors import DeployOpsError, UsageError
from ...trt_plugins.engines.host import this_host
from ...trt_plugins.engines.plan_header import read_plan_header
from ...trt_plugins.engines.record import EngineRecord, Flavor
from ...trt_plugins.engines.show import show_engine
from ...trt_plugins.engines.sidecar import read_sidecar
from ...trt_plugins.engines.source_model import read_source_model

__all__ = ["engine_flavor", "engine_problems", "engine_record", "expect_engine_of", "runs_host_code"]

_State = tuple[tuple[str, int, int], ...]


def engine_problems(
    engine: Path, flavor: Flavor, *, onnx: Path | None = None, plugins: Sequence[Path] = ()
) -> tuple[str, ...]:
    """Why the engine would not run here with `flavor`, or is not of `onnx`, a line for each reason; none where none is known.

    A damaged sidecar is a reason too.
    """
    files = (engine, engine.with_name(f"{engine.name}.json"), *plugins, *([onnx] if onnx is not None else []))
    return _problems(engine, flavor, onnx, tuple(plugins), _state(files))


def engine_record(engine: Path) -> EngineRecord | None:
    """The sidecar's; None where there is none, or none that can be read."""
    try:
        return read_sidecar(engine)
    except DeployOpsError:
        return None


def engine_flavor(engine: Path) -> Flavor:
    """Which TensorRT an engine is for: by its sidecar, else by its first bytes; "tensorrt" where neither says."""
    record = engine_record(engine) if engine.is_file() else None
    known = record or read_plan_header(engine)
    return "tensorrt" if known is None else known.flavor


def runs_host_code(record: EngineRecord | None) -> bool:
    """The engine carries libraries that TensorRT would run on this machine: plugins, or a runtime for other versions."""
    return record is not None and (record.version_compatible or any(p.embedded for p in record.plugins))


def expect_engine_of(engine: Path, onnx: Path) -> None:
    """Raise UsageError where the sidecar says that the engine was built from another model than `onnx`."""
    record = engine_record(engine)
    if record is None:
        return
    found = read_source_model(onnx).sha256
    if found != record.model_sha256:
        raise UsageError(
            f"{engine.name} was not built from {onnx.name}: its sidecar names {record.model}, sha256 "
            f"{record.model_sha256[:12]}…, and {onnx.name} has {found[:12]}…. Build the engine again from this model, or give "
            "the model that it was built from"
        )


@lru_cache(maxsize=32)
def _problems(
    engine: Path, flavor: Flavor, onnx: Path | None, plugins: tuple[Path, ...], state: _State
) -> tuple[str, ...]:
    """Once for as long as the files stay as they are: an engine has gigabytes to be hashed."""
    try:
        return show_engine(engine, model=onnx, plugins=plugins, host=this_host(flavor)).problems
    except DeployOpsError as error:
        return (str(error),)


def _state(files: Sequence[Path]) -> _State:
    return tuple((str(file), *_stamp(file)) for file in files)


def _stamp(file: Path) -> tuple[int, int]:
    try:
        state = os.stat(file)
    except OSError:
        return -1, -1
    return state.st_mtime_ns, state.st_size
