"""The folder of the cache: private to its user, written in steps that cannot be seen half done, kept below a size.

    objects/ab/<sha256>.o     what was built, under the hash of its content
    records/ab/<key>          what is known for a key; the first line is the hash of the rest
    records/ab/<sha256>.part  what many records share
    logs/<name>.log           what the compiler said, with the command
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
from .output_files import replacing

__all__ = ["Store", "default_root", "safe_name", "temporary_store"]

_PRUNE_EVERY = 3600.0  # seconds
_IN_USE = 600.0  # seconds: another process may be about to link what it looked up so recently
_ABANDONED = 86400.0  # seconds, for folders of builds
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
        _expect_private(self.root)

    # --- objects -------------------------------------------------------------------------------------------------

    def put_object(self, made: Path) -> Path:
        """Move a file into the cache; it gets its final name from its content."""
        digest = sha256(made.read_bytes()).hexdigest()
        path = self._object(digest, made.suffix)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # No execute permission is needed to load a library; whoever copies it sets what the copy needs.
        made.chmod(0o644)
        os.replace(made, path)
        return path

    def object(self, digest: str, suffix: str) -> Path | None:
        """What was built, if it is here and whole; damaged files are removed."""
        path = self._object(digest, suffix)
        try:
            whole = sha256(path.read_bytes()).hexdigest() == digest
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
        try:
            digest, _, text = path.read_bytes().partition(b"\n")
            if sha256(text).hexdigest().encode() != digest:
                return []
            entries = json.loads(text)
        except (OSError, ValueError):
            return []
        _touch(path)
        return entries if isinstance(entries, list) else []

    def write_record(self, key: str, entries: list[Any]) -> None:
        text = json.dumps(entries, separators=(",", ":")).encode()
        self._write(self._record(key), sha256(text).hexdigest().encode() + b"\n" + text)

    def put_part(self, text: str) -> str:
        """Keep a text that records refer to by the hash returned."""
        content = text.encode(errors="surrogateescape")
        digest = sha256(content).hexdigest()
        self._write(self._record(f"{digest}.part"), content)
        return digest

    def part(self, digest: str) -> str | None:
        """The text under a hash, if it is here and whole."""
        path = self._record(f"{digest}.part")
        try:
            content = path.read_bytes()
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
        self._write(self.log(name), text.encode(errors="replace"))
        return self.log(name)

    @contextmanager
    def build_folder(self) -> Iterator[Path]:
        """An empty folder, in the file system of the cache, gone after the block."""
        (self.root / "tmp").mkdir(mode=0o700, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=self.root / "tmp"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _write(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(content)

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
        for kind in ("objects", "records", "logs"):
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


def _expect_private(root: Path) -> None:
    state = root.stat()
    if state.st_uid != os.geteuid():
        raise UsageError(
            f"the cache {root} belongs to another user (uid {state.st_uid}; you are {os.geteuid()}), who could put "
            f"code into it that you would run. {_HOW}"
        )
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"the cache {root} can be written by others (mode {stat.S_IMODE(state.st_mode):o}), who could put code "
            f"into it that you would run. Run `chmod go-w {root}` if nobody has, or remove it. {_HOW}"
        )
    for parent in root.parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise UsageError(
                f"the cache {root} lies in {parent}, where everybody can rename and replace folders (mode "
                f"{stat.S_IMODE(mode):o}). {_HOW}, elsewhere"
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
