"""Headers in the cache are used as they were fetched, or not at all: else errors would be looked for in our own sources."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from deployops.errors import NotCheckedError
from deployops.trt_plugins import headers as module
from deployops.trt_plugins.headers import Headers, fetched_folder, find_headers


@pytest.fixture
def fetched(headers: Headers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with the headers that were fetched, and no others on this machine."""
    if headers.origin != "fetched":
        pytest.skip("not checked: the headers of this machine are others")
    monkeypatch.setenv("DEPLOYOPS_CACHE", str(tmp_path / "cache"))
    shutil.copytree(headers.folder, fetched_folder())
    monkeypatch.setattr(module, "_IN_PACKAGES", ())
    return fetched_folder()


def cut(folder: Path) -> None:
    os.truncate(folder / "NvInferRuntime.h", 5000)


def emptied(folder: Path) -> None:
    (folder / "NvInferRuntimeBase.h").write_text("")


def removed(folder: Path) -> None:
    (folder / "NvInferRuntimeBase.h").unlink()


def added(folder: Path) -> None:
    (folder / "cuda_fp16.h").write_text("#error\n")


def folder_instead(folder: Path) -> None:
    (folder / "NvInferRuntimeBase.h").unlink()
    (folder / "NvInferRuntimeBase.h").mkdir()


def pipe(folder: Path) -> None:
    (folder / "NvInferRuntimeBase.h").unlink()
    os.mkfifo(folder / "NvInferRuntimeBase.h")


@pytest.mark.parametrize("harm", [cut, emptied, removed, added, folder_instead, pipe])
def test_headers_that_are_damaged_are_fetched_again(harm: Callable[[Path], None], fetched: Path) -> None:
    assert find_headers().folder == fetched
    harm(fetched)
    with pytest.raises(NotCheckedError, match=r"not as they were fetched.*--fetch-tensorrt-headers"):
        find_headers()
