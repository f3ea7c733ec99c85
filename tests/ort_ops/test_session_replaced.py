"""Libraries that change between two uses in one process, that share names, and that others could have put there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

from deployops.errors import DeployOpsError, UsageError
from deployops.native.cpu_library import CpuLibrary
from deployops.ort_ops import Library, compile_library, session, use_in_torch
from deployops.ort_ops.library import shipped_folder
from deployops.symbolic import registry

from .conftest import model
from .packs import COPY, SAME, written
from .test_session_libraries import CUBE_ROOT, saved


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[Library]]:
    """An operator, and libraries of its kernel in two states, with equal file names: y = 10·x, and y = 20·x."""
    folder = tmp_path_factory.mktemp("states")
    made = []
    for factor in (10, 20):
        pack = written(folder, SAME.format("twofold"), COPY.format("twofold", f"{factor} * x[i]"), "twofold")
        made.append(compile_library(ops=[pack], out=folder / str(factor)))
    [op] = registry.load([pack])
    return op, made


def put(library: Library, folder: Path) -> Path:
    """As `deployops compile` would: replaced, not overwritten."""
    folder.mkdir(exist_ok=True)
    for file in (library.path, library.manifest):
        shutil.copyfile(file, folder / "part")
        os.replace(folder / "part", folder / file.name)
    return folder / library.path.name


def opened(op: Any, libraries: list[Path], folder: Path) -> Any:
    nodes = [helper.make_node(op.op_type, ["x"], ["y"], domain=op.domain)]
    made = model(nodes, outputs={"y": TensorProto.FLOAT}, versions={op.domain: 1}, shape=[3])
    return session(saved(made, folder), libraries=libraries)


def result(opened: Any) -> list[float]:
    found: list[float] = opened.run(None, {"x": np.array([1, 2, 3], np.float32)})[0].tolist()
    return found


def test_a_session_runs_the_library_as_it_is_when_it_is_opened(builds: Any, tmp_path: Path) -> None:
    op, (ten, twenty) = builds
    path = put(ten, tmp_path / "lib")
    first = opened(op, [path], tmp_path)
    assert result(first) == [10, 20, 30]
    put(twenty, tmp_path / "lib")
    second = opened(op, [path], tmp_path)
    assert (result(second), result(first)) == ([20, 40, 60], [10, 20, 30])
    put(ten, tmp_path / "lib")
    assert result(opened(op, [path], tmp_path)) == [10, 20, 30]


def test_torch_runs_the_library_that_was_given_last(builds: Any, tmp_path: Path) -> None:
    op, (ten, twenty) = builds
    x = torch.tensor([1.0, 2.0, 3.0])
    path = put(ten, tmp_path / "lib")
    use_in_torch(path, op)
    assert op(x).tolist() == [10, 20, 30]
    before = CpuLibrary(path)
    put(twenty, tmp_path / "lib")
    assert op(x).tolist() == [10, 20, 30]  # what was given
    use_in_torch(path, op)
    assert op(x).tolist() == [20, 40, 60]
    assert before.run(op, [x])[0].tolist() == [10, 20, 30]


def test_two_libraries_of_one_name_in_two_sessions(builds: Any, tmp_path: Path) -> None:
    op, (ten, twenty) = builds
    sessions = [opened(op, [library.path], tmp_path) for library in (ten, twenty)]
    assert [result(s) for s in sessions] == [[10, 20, 30], [20, 40, 60]]
    assert ten.path.name == twenty.path.name


@pytest.mark.parametrize("known", [True, False])
def test_two_libraries_of_one_domain_in_one_session_are_both_named(
    known: bool, builds: Any, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    op, (ten, twenty) = builds
    paths = [put(ten, tmp_path / "a"), put(twenty, tmp_path / "b")]
    if not known:
        paths[1].with_suffix(".json").unlink()
    with pytest.raises(UsageError, match=r"have operators of (one|the) domain") as told:
        opened(op, paths, tmp_path)
    assert all(str(path) in str(told.value) for path in paths)


# --- the library in the cache --------------------------------------------------------------------------------------


@pytest.fixture
def cache(builds: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in which a library stands for that of the shipped operators. Returns the library's path."""
    _, (ten, _) = builds
    root = tmp_path / "cache"
    root.mkdir(mode=0o700)
    monkeypatch.setenv("DEPLOYOPS_CACHE", str(root))
    return put(ten, shipped_folder())


@pytest.mark.parametrize("which", ["cache", "folder"])
def test_what_others_could_have_put_into_the_cache_is_not_run(
    which: str, cache: Path, tmp_path: Path
) -> None:
    cache.parent.parent.chmod(0o777 if which == "cache" else 0o755)
    cache.parent.chmod(0o755 if which == "cache" else 0o777)
    with pytest.raises(UsageError, match=r"can be written by others .*code into it that you would run"):
        session(saved(CUBE_ROOT, tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="not checked: only root can give a folder away")
def test_the_cache_of_another_user_is_not_run(cache: Path, tmp_path: Path) -> None:
    os.chown(cache.parent.parent, 12345, 12345)
    with pytest.raises(UsageError, match="belongs to another user"):
        session(saved(CUBE_ROOT, tmp_path))


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def replaced_by_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("harm", [damaged, emptied, replaced_by_a_pipe, Path.unlink])
@pytest.mark.parametrize("suffix", [".so", ".json"])
def test_a_damaged_library_in_the_cache_is_told_with_what_to_do(
    harm: Any, suffix: str, cache: Path, tmp_path: Path
) -> None:
    harm(cache.with_suffix(suffix))
    with pytest.raises(DeployOpsError, match="deployops compile"):
        session(saved(CUBE_ROOT, tmp_path))
