"""Processes take turns, whatever lies in the place of the lock, and none waits for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from deployops.errors import UsageError
from deployops.native.file_lock import locked_file, locked_folder


def put_pipe(path: Path) -> None:
    os.mkfifo(path)


def put_link(path: Path) -> None:
    path.with_name("outside").write_text("precious")
    path.symlink_to("outside")


def put_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("put", [put_pipe, put_link, put_dangling_link, Path.mkdir, Path.touch])
def test_what_lies_in_its_place_is_no_hindrance(put: object, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert callable(put)
    put(path)
    with locked_file(path, limit=0), pytest.raises(UsageError), locked_file(path, limit=0):
        pass
    assert path.is_file()
    assert not path.is_symlink()
    assert not (tmp_path / "nowhere").exists()
    if put is put_link:
        assert (tmp_path / "outside").read_text() == "precious"


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_another_process_that_does_not_let_go_is_named(kind: str, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from deployops.native import file_lock\n"
        f"with file_lock.locked_{kind}(Path(sys.argv[1])): print('taken', flush=True); sys.stdin.read()"
    )
    path = tmp_path / "lock" if kind == "file" else tmp_path
    taken = locked_file if kind == "file" else locked_folder
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=pipe, stdout=pipe, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "taken\n"
        with (
            pytest.raises(UsageError, match=r"another process has had the lock .* for 0\.1 s"),
            taken(path, limit=0.1),
        ):
            pass
        holder.stdin.close()
    with taken(path, limit=0):
        pass


def test_threads_take_turns(tmp_path: Path) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(20):
            with locked_file(tmp_path / "lock"):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 80
    assert max(most) == 1


def test_a_folder_that_cannot_be_locked_is_written_without(tmp_path: Path) -> None:
    with locked_folder(tmp_path / "absent"):
        pass
