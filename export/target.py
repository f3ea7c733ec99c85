"""Where an export may write: never over something that is not an ONNX model."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..errors import ModelFileError, UsageError
from .model_files.model_file import Kind, identify

__all__ = ["writable_target"]


def writable_target(out: str | os.PathLike[str]) -> Path:
    """The file to write, links followed. Raises UsageError for what an export must not replace.

    Whatever the user names in one run (the model, its source, operators, samples) is no ONNX model, so none of
    it can be lost to a slip in the output's name.
    """
    if not os.fspath(out):
        raise UsageError("the output has an empty name")
    path = Path(os.path.realpath(out))
    if not path.parent.is_dir():
        raise UsageError(f"{out}: the folder {Path(out).parent} does not exist")
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return path
    except OSError as e:
        raise UsageError(f"{out}: {e.strerror}") from None
    if not stat.S_ISREG(mode):
        raise UsageError(f"{out} exists and is no regular file: it is not replaced")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{out}: the folder cannot be written to")
    try:
        found = identify(path)
    except ModelFileError:  # damaged: only where its name says that it was to be one
        if path.suffix == ".onnx":
            return path
        raise UsageError(
            f"{out} exists and is not an ONNX model: it is not replaced. Give another output"
        ) from None
    if found.kind not in (Kind.ONNX, Kind.EMPTY):
        raise UsageError(
            f"{out} exists and is {found.description.split(';')[0]}, not an ONNX model: it is not replaced. "
            "Give another output (-o)"
        )
    return path
