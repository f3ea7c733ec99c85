"""Arrays from `.npy` and `.npz` files of strangers: nothing is unpickled, nothing larger than allowed is unpacked."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ...errors import UsageError
from ...export.inputs.example_inputs import load_npz
from ...export.inputs.input_spec import MOST_BYTES

__all__ = ["read_arrays", "unpacked_bytes"]

Array = npt.NDArray[Any]

MOST_ARRAYS = 1000  # of one sample


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a `.npz` by name; of a `.npy` one, named `arr_0`. Raises UsageError, which names the file."""
    size = unpacked_bytes(path)
    if size > MOST_BYTES:
        raise UsageError(
            f"{path} would take {size:,} bytes unpacked; expected at most {MOST_BYTES:,} for one sample"
        )
    twice = _twice(path)
    if twice:
        raise UsageError(f"{path}: {twice}; expected an array for each input, as numpy.savez writes them")
    return load_npz(path)


def _twice(path: Path) -> str:
    """What is wrong with the names in an archive; empty where nothing is, or it is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return ""  # `load_npz` says what is wrong with it
    if len(names) > MOST_ARRAYS:
        return f"holds {len(names):,} arrays, at most {MOST_ARRAYS:,} are read"
    known = [name.removesuffix(".npy") for name in names]
    double = next((name for name in known if known.count(name) > 1), None)
    return "" if double is None else f"the array {double[:60]!r} is there twice"


def unpacked_bytes(path: Path) -> int:
    """What reading the file would take, from its directory alone; its own size where it is no archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return sum(member.file_size for member in archive.infolist())
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return path.stat().st_size if path.is_file() else 0  # `load_npz` says what is wrong with it
