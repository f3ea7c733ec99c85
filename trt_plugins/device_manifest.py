"""`kernels.json`: what the PTX files and cubins of a folder are, whichever runs wrote them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..native.file_contents import FILES
from ..native.kernel_manifest import json_content
from ..native.output_files import replace_file

__all__ = ["FORMAT", "MANIFEST", "expect_own_files", "write_device_manifest"]

MANIFEST = "kernels.json"
FORMAT = 2


def write_device_manifest(folder: Path, entries: Sequence[Mapping[str, Any]]) -> Path:
    """Write `folder/kernels.json`: entries of files that are there now, and those of earlier runs that still hold.

    An earlier entry holds for the files that are as it says and were not written anew; of another file nothing is said.

    Args:
        entries: one for each operator, with its `name`, `target` and `files`: by arch, the file's name and sha256.
    """
    path = folder / MANIFEST
    written = {file["file"] for entry in entries for file in entry["files"].values()}
    kept = (_still_true(folder, entry, written) for entry in _earlier(path))
    operators = [*(entry for entry in kept if entry is not None), *entries]
    operators.sort(key=lambda e: (e["name"], e["target"], sorted(e["files"])))
    text = json.dumps({"format": FORMAT, "operators": operators}, indent=1, ensure_ascii=False) + "\n"
    replace_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return path


def expect_own_files(folder: Path, files: Mapping[str, str]) -> None:
    """Raise UsageError where an earlier run wrote one of these files for another operator. `files`: by name, whose it is to be."""
    for entry in _earlier(folder / MANIFEST):
        still = _still_true(folder, entry, set())
        for file in still["files"].values() if still is not None else ():
            if files.get(file["file"], entry["name"]) != entry["name"]:
                raise UsageError(
                    f"{folder / file['file']} is of {entry['name']}, and {files[file['file']]} would be written over it: compile "
                    "them into folders of their own"
                )


def _earlier(path: Path) -> list[Any]:
    """What earlier runs wrote; nothing where the file is none of ours, or of another format."""
    content: Any = None
    with contextlib.suppress(UsageError):
        content = json_content(path, "manifest of kernels")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return []
    operators = content.get("operators")
    return operators if isinstance(operators, list) else []


def _still_true(folder: Path, entry: Any, written: set[str]) -> dict[str, Any] | None:
    """The entry with those of its files that are as it says."""
    with contextlib.suppress(KeyError, TypeError, AttributeError, ValueError):  # somebody edited it
        files = {
            arch: file
            for arch, file in entry["files"].items()
            if file["file"] not in written
            and Path(file["file"]).name == file["file"]
            and FILES.digest(str(folder / file["file"])) == file["sha256"] != ""  # a digest of no file
        }
        if not files or not isinstance(entry["name"], str):
            return None
        if entry["target"] == "ptx":  # one file; what it needs is told for several archs
            return {**entry}
        kernels = [
            {**k, "resources": [r for r in k["resources"] if str(r["arch"]) in files]}
            for k in entry["kernels"]
        ]
        archs = [arch for arch in entry["archs"] if str(arch) in files]
        return {**entry, "archs": archs, "files": files, "kernels": kernels}
    return None
