"""What the original says of every sample, kept until the last backend has been compared with it.

A backend is opened once and closed before the next one, so that no two hold the weights; what the original said must
outlive them. Beyond `IN_MEMORY` bytes it waits in a temporary folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .backends import Sample
from .original import Expected

__all__ = ["Expectation", "Expectations"]

Array = npt.NDArray[Any]

IN_MEMORY = 1 << 30


@dataclass(frozen=True, slots=True)
class Expectation:
    """A sample, the leaves of its call by name, and the original's outputs."""

    sample: Sample
    inputs: list[tuple[str, Any]]
    outputs: list[Expected]


class Expectations:
    """In the order they were added. A context: what is on the disk is gone at its end."""

    def __init__(self) -> None:
        self._all: list[Expectation] = []
        self._kept = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files = 0

    def __enter__(self) -> Expectations:
        return self

    def __exit__(self, *_: object) -> None:
        self._all.clear()
        if self._folder is not None:
            self._folder.cleanup()

    def add(self, sample: Sample, inputs: list[tuple[str, Any]], outputs: Sequence[Expected]) -> None:
        """Keep it, on the disk where memory would get short."""
        size = sum(a.nbytes for e in outputs for a in (e.array, e.wide) if a is not None)
        if self._kept + size > IN_MEMORY:
            outputs = [
                replace(e, array=self._moved(e.array), wide=None if e.wide is None else self._moved(e.wide))
                for e in outputs
            ]
        else:
            self._kept += size
        self._all.append(Expectation(sample, inputs, list(outputs)))

    def all(self) -> list[Expectation]:
        return list(self._all)

    def _moved(self, array: Array) -> Array:
        if not array.nbytes:
            return array
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="deployops-expected-")
        self._files += 1
        path = Path(self._folder.name) / f"{self._files}.bin"
        np.ascontiguousarray(array).reshape(-1).view(np.uint8).tofile(path)
        # through bytes: numpy maps no file of ml_dtypes' types
        mapped: Array = np.memmap(path, np.uint8, "r").view(array.dtype).reshape(array.shape)
        return mapped
