"""Records of engines that never were: what tests say of one is what they change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from deployops.trt_plugins.engines.record import EngineRecord
from deployops.trt_plugins.engines.sidecar import engine_file

SHA = "ab" * 32


def engine_record(path: Path | None = None, **changes: Any) -> EngineRecord:
    """Of TensorRT 10.13.3 for an RTX 3080; `path`: the engine whose hash and size it has."""
    plain = EngineRecord(
        engine="net.engine",
        sha256=SHA,
        bytes=2052,
        flavor="tensorrt",
        tensorrt="10.13.3",
        platform="linux-x86_64",
        archs=("sm86",),
        gpu="RTX 3080",
        hardware_compatible="",
        version_compatible=False,
        model="net.onnx",
        model_sha256=SHA,
        plugins=(),
        precision="fp16",
        kept_float32=(),
        profiles=({"x": ((1, 3), (4, 3), (8, 3))},),
        inputs=(),
        outputs=(),
        workspace=None,
        build_seconds=1.5,
        warnings=(),
        in_place=False,
    )
    if path is not None:
        file = engine_file(path)
        plain = replace(plain, engine=path.name, sha256=file.sha256, bytes=file.bytes)
    return replace(plain, **changes)
