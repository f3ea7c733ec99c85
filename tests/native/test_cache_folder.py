"""Where the cache is, who may write there, and what happens when nobody can."""

from __future__ import annotations

import errno
import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deployops.errors import UsageError
from deployops.native.cache_store import Store, default_root
from deployops.native.compilers import Compiler
from deployops.native.jobs import run_all
from deployops.native.object_cache import Cache, CompileJob

from .conftest import Counted

Job = Callable[..., CompileJob]
Call = Callable[..., int]
ENTRY = 'extern "C" int entry() { return 7; }\n'


# --- where ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("DEPLOYOPS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_the_folder_is_the_one_named_else_that_of_caches_else_in_the_home(
    unset: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    unset.setenv("HOME", str(tmp_path / "home"))
    assert default_root() == tmp_path / "home/.cache/deployops"
    unset.setenv("XDG_CACHE_HOME", "relative")  # to be ignored: XDG Base Directory Specification
    assert default_root() == tmp_path / "home/.cache/deployops"
    unset.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_root() == tmp_path / "xdg/deployops"
    unset.setenv("DEPLOYOPS_CACHE", str(tmp_path / "own"))
    assert default_root() == tmp_path / "own"
    unset.setenv("DEPLOYOPS_CACHE", "~/here")
    assert default_root() == tmp_path / "home/here"


def test_without_home_it_is_the_one_of_the_user_database(unset: pytest.MonkeyPatch) -> None:
    import pwd

    unset.delenv("HOME")
    assert default_root() == Path(pwd.getpwuid(os.getuid()).pw_dir) / ".cache/deployops"


def test_a_user_without_any_home_gets_a_folder_for_this_process(
    unset: pytest.MonkeyPatch, gcc: Compiler, job: Job, call: Call
) -> None:
    unset.setattr(os.path, "expanduser", lambda path: path)  # what it does for a user that nobody knows
    with pytest.warns(RuntimeWarning, match="there is no home folder.*Set DEPLOYOPS_CACHE"):
        cache = Cache()
    assert call(cache, job(gcc, ENTRY)) == 7


# --- who -----------------------------------------------------------------------------------------------------------


def test_a_new_folder_is_for_its_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        root = Cache(tmp_path / "a" / "cache").root
    finally:
        os.umask(before)
    assert root.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_folder_that_others_can_write_is_refused(mode: int, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    with pytest.raises(UsageError, match=rf"can be written by others \(mode {mode:o}\).*chmod go-w"):
        Cache(tmp_path / "cache")


def test_a_folder_that_others_can_replace_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(UsageError, match="everybody can rename"):
        Cache(shared / "cache")
    shared.chmod(0o1777)  # as /tmp: only owners rename
    Cache(shared / "cache")


@pytest.mark.skipif(os.geteuid() != 0, reason="not checked: only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    os.chown(tmp_path / "cache", 12345, 12345)
    with pytest.raises(UsageError, match="belongs to another user"):
        Cache(tmp_path / "cache")
    os.symlink(tmp_path / "cache", tmp_path / "link")
    with pytest.raises(UsageError, match="belongs to another user"):
        Cache(tmp_path / "link")


# --- a folder that cannot be written -------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made(gcc: Compiler, job: Job, call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match=r"cannot be written .*Not a directory.*Set DEPLOYOPS_CACHE"):
        cache = Cache(tmp_path / "file" / "cache")
    asked = job(gcc, ENTRY)
    assert call(cache, asked) == 7
    assert cache.compile(asked).is_relative_to(cache.root)
    assert not cache.root.is_relative_to(tmp_path / "file")


def test_the_folder_for_the_process_goes_with_it(tmp_path: Path) -> None:
    code = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "from pathlib import Path\nfrom deployops.native.object_cache import Cache\n"
        "print(Cache(Path('/proc/deployops')).root)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_cache_that_can_only_be_read_still_answers(
    code: int, counted: Counted, cache: Cache, job: Job, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, new = job(counted.compiler, ENTRY), job(counted.compiler, ENTRY.replace("7", "8"))
    found = cache.compile(known)
    own = cache.root
    for name in ("write_record", "put_part", "write_log", "put_object", "build_folder"):
        original = getattr(Store, name)

        def fail(store: Store, *args: object, original: Callable[..., object] = original) -> object:
            if store.root == own:
                raise OSError(code, os.strerror(code))
            return original(store, *args)

        monkeypatch.setattr(Store, name, fail)
    again = Cache(own)
    assert again.compile(known) == found
    with pytest.warns(RuntimeWarning, match=os.strerror(code)) as warned:
        assert call(again, new) == 8
    assert len(warned) == 1  # once, not for each object
    assert again.compile(new).is_relative_to(again.root)
    assert again.root != own
    runs = counted.runs
    again.compile(new)
    assert counted.runs == runs


def test_many_threads_that_cannot_write_are_warned_once(
    gcc: Compiler, wrapped: Callable[[Compiler, str], Compiler], cache: Cache, job: Job
) -> None:
    full = f'case "$(pwd -P)" in "{cache.root}"/*) echo "x.o: No space left on device" >&2; exit 1;; esac'
    compiler = wrapped(gcc, full)
    jobs = [job(compiler, ENTRY.replace("7", str(n)), name=f"k{n}") for n in range(6)]
    with pytest.warns(RuntimeWarning, match="no space left") as warned:
        made = run_all([(j.name, functools.partial(cache.compile, j)) for j in jobs], 6)
    assert len(warned) == 1
    assert len({path for path in made if path.is_relative_to(cache.root)}) == 6


def test_a_disk_that_fills_up_while_the_compiler_writes(
    gcc: Compiler, wrapped: Callable[[Compiler, str], Compiler], cache: Cache, job: Job, call: Call
) -> None:
    full = f'case "$(pwd -P)" in "{cache.root}"/*) echo "x.o: No space left on device" >&2; exit 1;; esac'
    with pytest.warns(RuntimeWarning, match="no space left"):
        assert call(cache, job(wrapped(gcc, full), ENTRY)) == 7


def test_nowhere_to_write_is_said(
    gcc: Compiler, wrapped: Callable[[Compiler, str], Compiler], cache: Cache, job: Job
) -> None:
    full = 'echo "x.o: No space left on device" >&2; exit 1'
    with (
        pytest.warns(RuntimeWarning, match="no space left"),
        pytest.raises(UsageError, match="Free space there, or set TMPDIR"),
    ):
        cache.compile(job(wrapped(gcc, full), ENTRY))


# --- size ----------------------------------------------------------------------------------------------------------


def test_what_was_used_longest_ago_goes_first(counted: Counted, cache: Cache, job: Job) -> None:
    jobs = [job(counted.compiler, ENTRY.replace("7", str(n)), name=f"k{n}") for n in range(4)]
    paths = [cache.compile(j) for j in jobs]
    long_ago = time.time() - 1e6
    for file in cache.root.rglob("*"):
        os.utime(file, (long_ago, long_ago))
    cache.compile(jobs[0])  # used just now
    for age, path in enumerate(paths[1:], 1):
        os.utime(path, (long_ago + age, long_ago + age))
    size = sum(f.stat().st_size for f in cache.root.rglob("*") if f.is_file())
    # The rest are records and logs, of the oldest time: they go before the objects.
    rest = size - sum(p.stat().st_size for p in paths)
    kept_records = sum(
        f.stat().st_size for f in cache.root.glob("records/*/*") if f.stat().st_mtime > time.time() - 60
    )
    cache.prune(size - (rest - kept_records) - paths[1].stat().st_size)
    assert [path.exists() for path in paths] == [True, False, True, True]
    runs = counted.runs
    cache.compile(jobs[0])
    assert counted.runs == runs
    cache.compile(jobs[1])
    assert counted.runs == runs + 1


def test_what_is_in_use_stays_whatever_the_limit(gcc: Compiler, cache: Cache, job: Job) -> None:
    path = cache.compile(job(gcc, ENTRY))
    cache.prune(0)
    assert path.exists()


def test_the_limit_is_looked_after_once_an_hour(gcc: Compiler, tmp_path: Path, job: Job) -> None:
    cache = Cache(tmp_path / "cache", size_limit=0)
    first = cache.compile(job(gcc, ENTRY))
    long_ago = time.time() - 7200
    os.utime(first, (long_ago, long_ago))
    cache.compile(job(gcc, ENTRY, name="second"))
    assert first.exists()
    os.utime(cache.root / "pruned", (long_ago, long_ago))
    cache.compile(job(gcc, ENTRY, name="third"))
    assert not first.exists()


def test_folders_of_builds_that_were_cut_off_are_removed(gcc: Compiler, cache: Cache, job: Job) -> None:
    cache.compile(job(gcc, ENTRY))
    old, new = cache.root / "tmp/old", cache.root / "tmp/new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "kernel.o").write_text("")
    os.utime(old, (1, 1))
    cache.prune()
    assert not old.exists()
    assert new.exists()


def test_nothing_is_left_of_a_build(gcc: Compiler, cache: Cache, job: Job) -> None:
    cache.compile(job(gcc, ENTRY))
    assert list((cache.root / "tmp").iterdir()) == []
    assert list(cache.root.rglob(".*")) == []
