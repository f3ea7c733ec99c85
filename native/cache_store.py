"""The folder of the cache: private to its user, written in steps that cannot be seen half done, kept below a size.

    objects/ab/<sha256>.o     what was built, under the hash of its content
    records/ab/<key>          what is known for a key, sealed: under another name it is nothing
    records/ab/<sha256>.part  what many records share
    plans/<key>               what there is to build for some declarations (`plan_record`), sealed too
    logs/<name>.log           what the compiler said, with the command
    locks/<key>               by which processes take turns
    tmp/                      folders of builds that run

Nothing in it is precious: a file that is damaged, half there or gone is a build more. So no file is flushed to disk.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .cache_entries import clear_place, own_folder, read_entry, read_sealed, write_entry, write_sealed

__all__ = ["Store", "default_root", "expect_private", "safe_name", "temporary_store"]

_PRUNE_EVERY = 3600.0  # seconds
_IN_USE = 600.0  # seconds: another process may be about to link what it looked up so recently
_ABANDONED = 86400.0  # seconds, for folders of builds
_KINDS = ("objects", "records", "plans", "logs", "locks", "tmp")
_HOW = "Set DEPLOYOPS_CACHE to a folder of your own"


def default_root() -> Path:
    """$DEPLOYOPS_CACHE, else $XDG_CACHE_HOME/deployops, else ~/.cache/deployops.

    Raises OSError where the user has no home folder.
    """
    chosen = os.environ.get("DEPLOYOPS_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):  # relative ones are to be ignored, says the XDG specification
        return Path(xdg) / "deployops"
    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        raise OSError("there is no home folder")
    return Path(home) / ".cache" / "deployops"


class Store:
    """One cache folder. Opening it makes it, and raises OSError where that cannot be.

    Raises UsageError where somebody else could write into it: what is in it gets loaded into processes.
    """

    def __init__(self, root: Path) -> None:
        for folder in (*reversed(root.parents), root):  # `parents=True` would leave their modes to the umask
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
        self.root = root.resolve()
        expect_private(self.root, *map(self.root.joinpath, _KINDS))

    # --- objects -------------------------------------------------------------------------------------------------

    def put_object(self, made: Path) -> Path:
        """Move a file into the cache; it gets its final name from its content."""
        digest = sha256(made.read_bytes()).hexdigest()
        path = self._object(digest, made.suffix)
        own_folder(path.parent)
        clear_place(path)
        # No execute permission is needed to load a library; whoever copies it sets what the copy needs.
        made.chmod(0o644)
        os.replace(made, path)
        return path

    def object(self, digest: str, suffix: str) -> Path | None:
        """What was built, if it is here and whole; damaged files are removed."""
        path = self._object(digest, suffix)
        try:
            whole = sha256(read_entry(path)).hexdigest() == digest
        except OSError:
            return None
        if not whole:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        _touch(path)
        return path

    def _object(self, digest: str, suffix: str) -> Path:
        return self.root / "objects" / digest[:2] / f"{digest}{suffix}"

    # --- records -------------------------------------------------------------------------------------------------

    def read_record(self, key: str) -> list[Any]:
        """The entries of a key, latest use first; none where there is no record, or a damaged one."""
        path = self._record(key)
        text = read_sealed(path)
        if text is None:
            return []
        try:
            entries = json.loads(text)
        except (ValueError, RecursionError):
            return []
        _touch(path)
        return entries if isinstance(entries, list) else []

    def write_record(self, key: str, entries: list[Any]) -> None:
        write_sealed(self._record(key), json.dumps(entries, separators=(",", ":")))

    def put_part(self, text: str) -> str:
        """Keep a text that records refer to by the hash returned."""
        content = text.encode(errors="surrogateescape")
        digest = sha256(content).hexdigest()
        write_entry(self._record(f"{digest}.part"), content)
        return digest

    def part(self, digest: str) -> str | None:
        """The text under a hash, if it is here and whole."""
        path = self._record(f"{digest}.part")
        try:
            content = read_entry(path)
        except OSError:
            return None
        if sha256(content).hexdigest() != digest:
            return None
        _touch(path)
        return content.decode(errors="surrogateescape")

    def _record(self, key: str) -> Path:
        return self.root / "records" / key[:2] / key

    # --- logs and folders of builds ------------------------------------------------------------------------------

    def log(self, name: str) -> Path:
        return self.root / "logs" / f"{name}.log"

    def write_log(self, name: str, text: str) -> Path:
        write_entry(self.log(name), text.encode(errors="replace"))
        return self.log(name)

    @contextmanager
    def build_folder(self) -> Iterator[Path]:
        """An empty folder, in the file system of the cache, gone after the block."""
        own_folder(self.root / "tmp")
        folder = Path(tempfile.mkdtemp(dir=self.root / "tmp"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    # --- size ----------------------------------------------------------------------------------------------------

    def prune_sometimes(self, limit: int) -> None:
        """`prune`, once an hour for all processes together."""
        stamp = self.root / "pruned"
        with contextlib.suppress(OSError):
            if not stamp.exists():
                stamp.touch()
            elif abs(time.time() - stamp.stat().st_mtime) > _PRUNE_EVERY:
                os.utime(stamp)
                self.prune(limit)

    def prune(self, limit: int) -> None:
        """Remove what was used longest ago until `limit` bytes are left; what is in use stays."""
        now = time.time()
        found = []
        for kind in ("objects", "records", "plans", "logs"):
            for path, state in _files(self.root / kind):
                found.append((state.st_mtime, state.st_size, path))
        total = sum(size for _, size, _ in found)
        for used, size, path in sorted(found):
            if total <= limit or now - used < _IN_USE:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
                total -= size
        with contextlib.suppress(OSError), os.scandir(self.root / "tmp") as folders:
            for folder in folders:
                if now - folder.stat(follow_symlinks=False).st_mtime > _ABANDONED:
                    shutil.rmtree(folder.path, ignore_errors=True)


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    for base, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                path = os.path.join(base, name)
                yield path, os.stat(path, follow_symlinks=False)


def _touch(path: Path) -> None:
    """Mark as used; the file system's own access times are often off."""
    with contextlib.suppress(OSError):
        os.utime(path)


def expect_private(root: Path, *inner: Path) -> None:
    """Raise UsageError where somebody else could put something into the cache, or into one of these folders in it.

    Inner folders need not be there. Raises OSError where `root` is not.
    """
    state = root.stat()
    _expect_own(root, state)
    _expect_closed(root, state)
    for parent in root.parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise UsageError(
                f"the cache {root} lies in {parent}, where everybody can rename and replace folders (mode "
                f"{stat.S_IMODE(mode):o}). {_HOW}, elsewhere"
            )
    reachable = state.st_mode & (stat.S_IXGRP | stat.S_IXOTH)
    for folder in inner:
        try:
            found = folder.lstat()
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(found.st_mode):
            what = (
                "a link, and what is removed from the cache would be removed elsewhere"
                if stat.S_ISLNK(found.st_mode)
                else "no folder"
            )
            raise UsageError(
                f"in the cache, {folder} is {what}. Remove it: it is made anew. To move all of the cache, set DEPLOYOPS_CACHE"
            )
        _expect_own(folder, found)
        if reachable:
            _expect_closed(folder, found)


def _expect_own(folder: Path, state: os.stat_result) -> None:
    if state.st_uid != os.geteuid():
        raise UsageError(
            f"the cache {folder} belongs to another user (uid {state.st_uid}; you are {os.geteuid()}), who could put "
            f"code into it that you would run. {_HOW}"
        )


def _expect_closed(folder: Path, state: os.stat_result) -> None:
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"the cache {folder} can be written by others (mode {stat.S_IMODE(state.st_mode):o}), who could put code "
            f"into it that you would run. Run `chmod go-w {folder}` if nobody has, or remove it. {_HOW}"
        )


@lru_cache(maxsize=1)
def _temporary_root(process: int) -> Path:
    root = Path(tempfile.mkdtemp(prefix="deployops-cache-"))

    def remove() -> None:
        if os.getpid() == process:  # not in a process forked from this one
            shutil.rmtree(root, ignore_errors=True)

    atexit.register(remove)
    return root


def temporary_store() -> Store:
    """A cache that lasts as long as this process."""
    return Store(_temporary_root(os.getpid()))


def safe_name(name: str) -> str:
    """A text as a file name that no tool misreads. Different texts may get the same one."""
    return re.sub(r"[^A-Za-z0-9_.+-]", "_", name).lstrip("-.")[:120] or "_"
