"""What took part: files by their content, versions, settings. No path and no date: reports are reproducible."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .record import FileRecord

__all__ = ["environment", "file_record"]


def file_record(path: Path) -> FileRecord:
    """Name, size and SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while part := stream.read(1 << 22):
            digest.update(part)
    return FileRecord(path.name, path.stat().st_size, digest.hexdigest())


def environment(
    threads: int, seed: int, sweep: str | None, modes: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What to repeat a validation with. "outputs" is there where some are judged as decisions: a report names no other mode."""
    import numpy
    import torch

    found: dict[str, Any] = {
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": threads,
        "seed": seed,
        "sweep": sweep or "sizes",
    }
    try:
        import onnxruntime

        found["onnxruntime"] = onnxruntime.__version__
    except ImportError:
        found["onnxruntime"] = None
    if modes:
        found["outputs"] = [f"{name}:{mode}" for name, mode in modes.items()]
    return found
