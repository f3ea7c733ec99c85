"""Whatever happens to the cache, what is built is right, and nothing outside of it is touched."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deployops.errors import UsageError
from deployops.native.cache_entries import read_sealed, write_sealed
from deployops.native.cache_store import Store
from deployops.native.compilers import Compiler
from deployops.native.object_cache import Cache, CompileJob

from .conftest import Counted

Job = Callable[..., CompileJob]
Call = Callable[..., int]


def entry(value: int) -> str:
    return f'extern "C" int entry() {{ return {value}; }}\n'


# --- files of the cache --------------------------------------------------------------------------------------------


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(bytes(k * 37 % 256 for k in range(path.stat().st_size)))


def one_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("x")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link(path: Path) -> None:
    """To a file outside, with a content of its own."""
    target = outside(path) / path.name
    target.write_text("precious")
    path.unlink()
    path.symlink_to(target)


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to(outside(path) / f"absent-{path.name}")


def outside(path: Path) -> Path:
    root = next(p for p in path.parents if p.name == "cache")
    found = root.with_name("outside")
    found.mkdir(exist_ok=True)
    return found


def files(root: Path, kind: str) -> list[Path]:
    return sorted(p for p in (root / kind).rglob("*") if p.is_file())


@pytest.mark.parametrize("kind", ["objects", "records", "logs"])
@pytest.mark.parametrize("harm", [cut, emptied, garbage, one_bit, folder, pipe, link, dangling])
def test_what_is_damaged_is_made_again(
    harm: Callable[[Path], None], kind: str, counted: Counted, cache: Cache, job: Job, call: Call
) -> None:
    asked = job(counted.compiler, entry(7))
    assert call(cache, asked) == 7
    harmed = files(cache.root, kind)
    assert harmed
    for path in harmed:
        harm(path)
    assert call(Cache(cache.root), asked) == 7
    if kind != "logs":  # all is well again, and stays so
        runs = counted.runs
        assert call(Cache(cache.root), asked) == 7
        assert counted.runs == runs
        assert all(p.is_file() and not p.is_symlink() for p in harmed)
    for path in cache.root.with_name("outside").glob("*"):
        assert path.read_text() == "precious"


@pytest.mark.parametrize("kind", ["objects", "records"])
def test_what_belongs_to_another_key_is_not_taken(
    kind: str, counted: Counted, cache: Cache, job: Job, call: Call
) -> None:
    """The entries of three jobs, each under the name of the next."""
    jobs = [job(counted.compiler, entry(k), name=f"k{k}") for k in range(3)]
    objects = [cache.compile(j) for j in jobs]
    moved = [p for p in files(cache.root, kind) if kind == "records" or p in objects]
    moved = [p for p in moved if p.suffix != ".part"]
    contents = [p.read_bytes() for p in moved]
    for path, content in zip(moved, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)
    assert [call(Cache(cache.root), j) for j in jobs] == [0, 1, 2]


def test_a_sealed_text_is_read_as_it_was_written_and_under_its_own_name_alone(tmp_path: Path) -> None:
    path = tmp_path / "ab" / "key"
    write_sealed(path, "text\nof two lines, é")
    assert read_sealed(path) == "text\nof two lines, é"
    shutil.copy(path, tmp_path / "ab" / "other")
    assert read_sealed(tmp_path / "ab" / "other") is None
    one_bit(path)
    assert read_sealed(path) is None
    assert read_sealed(tmp_path / "absent") is None


# --- folders of the cache ------------------------------------------------------------------------------------------

KINDS = ("objects", "records", "plans", "logs", "locks", "tmp")


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_leads_elsewhere_is_refused(kind: str, tmp_path: Path) -> None:
    root, other = tmp_path / "cache", tmp_path / "other"
    Cache(root)
    other.mkdir()
    (other / "precious").mkdir()
    os.utime(other / "precious", (1, 1))
    (root / kind).symlink_to(other)
    with pytest.raises(UsageError, match=rf"{kind} is a link, and what is removed .* set DEPLOYOPS_CACHE"):
        Cache(root)
    assert (other / "precious").is_dir()


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_in_the_place_of_a_folder_is_told(kind: str, tmp_path: Path) -> None:
    (Cache(tmp_path / "cache").root / kind).write_text("")
    with pytest.raises(UsageError, match=rf"{kind} is no folder\. Remove it"):
        Cache(tmp_path / "cache")


def test_a_link_further_in_is_replaced_and_not_followed(
    gcc: Compiler, cache: Cache, job: Job, call: Call, tmp_path: Path
) -> None:
    asked = job(gcc, entry(7))
    path = cache.compile(asked)
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious.o").write_text("precious")
    os.utime(other / "precious.o", (1, 1))
    shutil.rmtree(path.parent)
    path.parent.symlink_to(other)
    again = Cache(cache.root)
    again.prune(0)
    assert call(again, asked) == 7
    assert [p.name for p in other.iterdir()] == ["precious.o"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_inner_folder_that_others_can_write_is_refused_where_they_get_at_it(
    kind: str, tmp_path: Path
) -> None:
    root = Cache(tmp_path / "cache").root
    (root / kind).mkdir()
    (root / kind).chmod(0o777)
    Cache(root)  # the cache itself is closed to others
    root.chmod(0o755)
    with pytest.raises(UsageError, match=rf"{kind} can be written by others \(mode 777\)"):
        Cache(root)
    if os.geteuid() == 0:
        (root / kind).chmod(0o755)
        os.chown(root / kind, 12345, 12345)
        with pytest.raises(UsageError, match="belongs to another user"):
            Cache(root)


def test_inner_folders_are_for_their_user_alone_whatever_the_umask(
    gcc: Compiler, job: Job, tmp_path: Path
) -> None:
    (tmp_path / "cache").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        Cache(tmp_path / "cache").compile(job(gcc, entry(7)))
    finally:
        os.umask(before)
    inner = [p for p in (tmp_path / "cache").rglob("*") if p.is_dir()]
    assert len(inner) > 4
    assert {p.stat().st_mode & 0o777 for p in inner} == {0o700}


# --- while it is used ----------------------------------------------------------------------------------------------


def test_a_cache_that_is_removed_while_the_compiler_works(
    gcc: Compiler,
    wrapped: Callable[[Compiler, str], Compiler],
    cache: Cache,
    job: Job,
    call: Call,
    tmp_path: Path,
) -> None:
    once = f'if mkdir "{tmp_path}/once" 2>/dev/null; then rm -rf "{cache.root}"; fi'
    asked = job(wrapped(gcc, once), entry(7))
    assert call(cache, asked) == 7
    assert (tmp_path / "once").is_dir()
    assert cache.compile(asked).is_relative_to(tmp_path / "cache")  # not in a folder for this process alone


def test_a_source_that_does_not_compile_is_still_its_own_fault(gcc: Compiler, cache: Cache, job: Job) -> None:
    from deployops.native.diagnostics import CompileError

    with pytest.raises(CompileError):
        cache.compile(job(gcc, "nonsense"))


_BUILD = """
import ctypes, sys
from pathlib import Path
from deployops.native.compilers import find_cxx
from deployops.native.object_cache import Cache, CompileJob
root, out, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
gxx = find_cxx("g++")
flags = ("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden")
for value in range(count):
    cache = Cache(root)
    source = 'extern "C" __attribute__((visibility("default"))) int entry() { return %d; }' % value
    made = cache.compile(CompileJob("k", source, gxx, flags, ()))
    out.write_bytes(cache.link([made], gxx, (), "libk.so").read_bytes())
    copy = out.with_name(f"{out.name}.{value}")
    copy.write_bytes(out.read_bytes())
    assert ctypes.CDLL(str(copy)).entry() == value
"""


def built(root: Path, out: Path, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", _BUILD, str(root), str(out), str(count)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)


def test_builds_that_are_killed_leave_nothing_that_harms(gcc: Compiler, tmp_path: Path) -> None:
    root = tmp_path / "cache"
    for k in range(8):
        process = built(root, tmp_path / "a.so", 3)
        time.sleep(0.3 + 0.13 * k)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    last = built(root, tmp_path / "a.so", 3)
    _, said = last.communicate(timeout=120)
    assert (last.returncode, said) == (0, "")


def test_processes_at_once_while_one_cleans(gcc: Compiler, tmp_path: Path) -> None:
    """`prune` takes nothing that is in use; `rm -rf` may, and then it is said."""
    root = tmp_path / "cache"
    processes = [built(root, tmp_path / f"{k}.so", 4) for k in range(3)]
    while any(process.poll() is None for process in processes):
        if root.is_dir():
            Store(root).prune(0)
        time.sleep(0.05)
    for process in processes:
        assert (process.returncode, process.communicate()[1]) == (0, "")


def test_what_a_limit_on_file_sizes_stops_is_told(gcc: Compiler, cache: Cache, tmp_path: Path) -> None:
    """Beyond it, writing fails for us (EFBIG), and ends the compiler (SIGXFSZ)."""
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _BUILD, str(cache.root), str(tmp_path / "a.so"), "1"],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512)),
    )
    assert "UsageError: nothing can be built:" in process.stderr
    assert "cannot be written" in process.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB."""
    path = tmp_path / "disk"
    path.mkdir()
    options = ["-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(["mount", *options], capture_output=True).returncode:
        pytest.skip("not checked: no file system can be mounted here")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_a_disk_that_is_full(gcc: Compiler, small_disk: Path, job: Job, call: Call) -> None:
    cache = Cache(small_disk / "cache")
    (small_disk / "rest").write_bytes(b"x" * (40 << 10))
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        assert call(cache, job(gcc, entry(7))) == 7
