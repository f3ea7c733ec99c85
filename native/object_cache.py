"""Objects and libraries that are built once for the same input, whichever process, checkout or user asks first.

An object is looked up by its key: source, flags, compiler, number of include folders. Under a key lie records of the
last few compilations, each with what it depended on (see `dependencies`), and one that still holds gives the object.
Nothing is locked: what two processes build at once is the same, and each file appears whole.

What is built holds no time and no path of the machine: the compiler works in an empty folder, sees the include folders
under the names `include-0`, `include-1`, …, and refuses `__DATE__` and its like.
"""

from __future__ import annotations

import contextlib
import errno
import re
import shlex
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .cache_store import Store, safe_name
from .compile_job import CompileJob, compile_command, expect_cacheable, lay_out, with_paths
from .compilers import Compiler, search_folders, variables
from .dependencies import Part, dependencies_of, read_depfile
from .diagnostics import CompileError, crash_of, explain
from .file_contents import FILES
from .linking import MADE, files_taken, link_command, linker_identity
from .processes import TIME_LIMIT, Finished, ProcessError, environment, run
from .single_symbol import extra_flags, keep_single_symbol, tools_identity
from .store_fallback import Stores

__all__ = ["Cache", "CompileJob", "Output"]

_FORMAT = "1"  # of keys and records; another one starts anew
_RECORDS = 8  # compilations remembered per key
_TICK = 0.02  # seconds; a file written now may bear a time so much earlier
_SIZE_LIMIT = 2 << 30  # bytes
# What tools say, in English, where it is the disk that fails and not the source.
_DISK = re.compile(
    "No space left on device|Disk quota exceeded|File too large|[Ff]ile size limit exceeded|Read-only file system"
)
_SYSTEM_MOMENT = 1.0  # seconds for which the system's headers are taken to stay as they were found


@dataclass(frozen=True, slots=True)
class Output:
    """What the compiler said of a job.

    Attributes:
        text: all of it, now or when the object was made.
        log: the file that holds it, with the command; None: it is no longer there.
        compiled: now; False: the object was in the cache.
    """

    text: str
    log: Path | None
    compiled: bool


class Cache:
    """The cache of objects and libraries. Safe to use from many threads and processes at once.

    Attributes:
        outputs: what the compiler said, by the name of the job, or of the library. Warnings are in it also when the
            object was not compiled again.

    Args:
        root: its folder; None: $DEPLOYOPS_CACHE, else $XDG_CACHE_HOME/deployops, else ~/.cache/deployops. Where it
            cannot be written, a warning is given and a folder that lasts as long as the process is used.
        size_limit: bytes; what was used longest ago is removed beyond it, looked after once an hour.
        time_limit: seconds for each program that is run.

    Raises UsageError where somebody else could write into the folder.
    """

    def __init__(
        self, root: Path | None = None, *, size_limit: int = _SIZE_LIMIT, time_limit: float = TIME_LIMIT
    ) -> None:
        self._size_limit, self._time_limit = size_limit, time_limit
        self._names: dict[Path, str] = {}  # object -> job
        self._system_lock = threading.Lock()
        self._held: dict[tuple[str, tuple[Path, ...]], float] = {}  # parts of the system -> when they held
        self.outputs: dict[str, Output] = {}
        self._stores = Stores(root)

    @property
    def root(self) -> Path:
        """The folder that new objects go to."""
        return self._stores.root

    def prune(self, size: int | None = None) -> None:
        """Remove what was used longest ago until `size` bytes are left (None: the limit of this cache)."""
        for store in self._stores:
            store.prune(self._size_limit if size is None else size)

    # --- compile -------------------------------------------------------------------------------------------------

    def compile(self, job: CompileJob) -> Path:
        """The object file of a job, from the cache or compiled now.

        The file is the cache's own: link it, or copy it.

        Raises:
            CompileError: the compiler refuses the source, crashes, or the sources change while it works.
            ProcessError: the compiler does not end in time.
            UsageError: a flag that does not go with the cache.
        """
        expect_cacheable(job.flags)
        extra = extra_flags(job.compiler, job.flags) if job.keep_symbol else ()
        tools = tools_identity(job.compiler) if job.keep_symbol else ""
        key = _hash(
            "object", job.name, job.source, job.compiler.identity, str(len(job.include_dirs)),
            job.keep_symbol or "", tools, repr(variables()), *job.flags, *extra,
        )  # fmt: skip
        return self._find_object(job, key) or self._stores.build(
            lambda store: self._compile(store, job, key, extra)
        )

    def _find_object(self, job: CompileJob, key: str) -> Path | None:
        for store in self._stores:
            entries = store.read_record(key)
            for index, entry in enumerate(entries):
                try:
                    holds = self._holds(store, entry, job.include_dirs)
                    digest, said = entry["object"], entry["output"]
                except (KeyError, TypeError, ValueError, IndexError, AttributeError):
                    continue  # of another version of this file
                if not isinstance(said, str) or not isinstance(digest, str):
                    continue
                path = store.object(digest, ".o") if holds else None
                if path is None:
                    continue
                if index:  # a cache that can only be read is a cache still
                    with contextlib.suppress(OSError):
                        store.write_record(key, [entry, *entries[:index], *entries[index + 1 :]])
                log = store.log(_log_name(job.name, key))
                self.outputs[job.name] = Output(
                    with_paths(said, job.include_dirs), log if log.is_file() else None, False
                )
                self._names[path] = job.name
                return path
        return None

    def _holds(self, store: Store, entry: Any, include_dirs: tuple[Path, ...]) -> bool:
        """Whether the compiler would read the same again as when an entry was made."""
        if not Part.from_json(entry["own"]).hold(include_dirs):
            return False
        name = entry["system"]
        # An object for a state of the system that was there a second ago is one that a call then would have got;
        # without this, dozens of objects look at hundreds of files each.
        with self._system_lock:
            if time.monotonic() - self._held.get((name, include_dirs), -_SYSTEM_MOMENT) < _SYSTEM_MOMENT:
                return True
            text = store.part(name)
            if text is None or not Part.from_json(text).hold(include_dirs):
                return False
            self._held[name, include_dirs] = time.monotonic()
            return True

    def _compile(self, store: Store, job: CompileJob, key: str, extra: tuple[str, ...]) -> Path:
        folders = search_folders(job.compiler, job.flags)
        dependencies = None
        with store.build_folder() as folder, _blaming_the_cache(folder, job.source_name):
            lay_out(job, folder)
            for _ in range(3):
                # What changed while the compiler read it is compiled again, until the dependencies before and after
                # are the same: else a record could promise a content that the object was not made from.
                began = time.time()
                time.sleep(_TICK)
                done, roles = self._run_compiler(store, job, key, extra, folder)
                before, dependencies = (
                    dependencies,
                    dependencies_of(job.source, roles, job.include_dirs, folders),
                )
                if dependencies is None or dependencies == before:
                    break
                if not dependencies.changed_since(began, job.include_dirs):
                    break
            else:
                raise CompileError(
                    f"{job.name}: its source files change while they are compiled. Run it again"
                )
            made = folder / job.object_name
            if job.keep_symbol:
                made = keep_single_symbol(made, job.keep_symbol, job.compiler, self._time_limit)
            path = store.put_object(made)
        self._names[path] = job.name
        if dependencies is not None:
            system = store.put_part(dependencies.system.to_json())
            entry = {
                "object": path.stem,
                "output": done.err,
                "own": dependencies.own.to_json(),
                "system": system,
            }
            store.write_record(key, [entry, *store.read_record(key)][:_RECORDS])
        store.prune_sometimes(self._size_limit)
        return path

    def _run_compiler(
        self, store: Store, job: CompileJob, key: str, extra: tuple[str, ...], folder: Path
    ) -> tuple[Finished, list[str]]:
        """What the compiler said, and the roles of the files that it read."""
        command = compile_command(job, extra)
        done = self._run(command, folder)
        text = with_paths(done.err, job.include_dirs)
        log = store.write_log(_log_name(job.name, key), f"$ {shlex.join(command)}\n{text}")
        self.outputs[job.name] = Output(text, log, True)
        if done.code != 0:
            crash = crash_of(done, str(job.compiler.path), job.name)
            raise CompileError(crash or explain(text, (), generated=job.source), output=text, log=log)
        if not (folder / "deps").is_file() or not (folder / job.object_name).is_file():
            raise CompileError(
                f"{job.name}: {job.compiler.path} reports success, but wrote no object. Try another compiler",
                output=text,
                log=log,
            )
        return done, read_depfile((folder / "deps").read_bytes())[1:]

    # --- link ----------------------------------------------------------------------------------------------------

    def link(self, objects: Sequence[Path], compiler: Compiler, flags: Sequence[str], out_name: str) -> Path:
        """The shared library made of objects, from the cache or linked now.

        The file is the cache's own: copy it to where it is wanted, and set its permissions there.

        Args:
            objects: in this order.
            flags: of the compiler as the linker's driver, `-l` and `-L` among them. Without sanitizers, an undefined
                symbol is an error here, not later when the library is loaded.
            out_name: the library's own name (soname), as `libdeployops_ort_cpu.so`.

        Raises CompileError with the linker's reason; ProcessError where it does not end in time.
        """
        digests = [FILES.digest(str(path)) for path in objects]
        missing = [path for path, digest in zip(objects, digests, strict=True) if not digest]
        if missing:
            raise _objects_gone(missing)
        key = _hash(
            "library", out_name, compiler.identity, linker_identity(compiler, flags), repr(variables()),
            str(len(digests)), *digests, *flags,
        )  # fmt: skip
        for store in self._stores:
            for entry in store.read_record(key):
                path = _library(store, entry)
                if path is not None:
                    return path
        return self._stores.build(lambda store: self._link(store, objects, compiler, flags, out_name, key))

    def _link(
        self,
        store: Store,
        objects: Sequence[Path],
        compiler: Compiler,
        flags: Sequence[str],
        name: str,
        key: str,
    ) -> Path:
        with store.build_folder() as folder, _blaming_the_cache(folder, ""):
            inputs = []
            names = [self._names.get(path, path.stem) for path in objects]
            for index, (path, job) in enumerate(zip(objects, names, strict=True)):
                # Named so that the linker's messages say what the object is.
                link = folder / f"{index}-{safe_name(job)}.o"
                link.symlink_to(path.absolute())
                inputs.append(link.name)
            command = link_command(compiler, flags, name, inputs)
            done = self._run(command, folder)
            log = store.write_log(_log_name(name, key), f"$ {shlex.join(command)}\n{done.err}")
            self.outputs[name] = Output(done.err, log, True)
            if done.code != 0:
                if gone := [path for path in objects if not path.is_file()]:
                    raise _objects_gone(gone)
                crash = crash_of(done, str(compiler.path), name)
                told = crash or explain(done.err, ())
                for job in names:
                    told = told.replace(safe_name(job), job)
                raise CompileError(told, output=done.err, log=log)
            if not (folder / MADE).is_file():
                raise CompileError(f"{name}: {compiler.path} reports success, but wrote no library", log=log)
            taken = files_taken(done.out, folder)
            path = store.put_object(folder / MADE)
        entry = {"library": path.stem, "files": [(file, FILES.digest(file)) for file in taken]}
        store.write_record(key, [entry, *store.read_record(key)][:_RECORDS])
        store.prune_sometimes(self._size_limit)
        return path

    # --- what both need ------------------------------------------------------------------------------------------

    def _run(self, command: Sequence[str], folder: Path) -> Finished:
        done = run(command, cwd=folder, env=environment(folder), limit=self._time_limit)
        if done.code != 0 and (full := _DISK.search(done.err)):
            raise OSError(full[0][0].lower() + full[0][1:])
        return done


@contextlib.contextmanager
def _blaming_the_cache(folder: Path, source: str) -> Iterator[None]:
    """What fails in a folder that somebody removed meanwhile is no fault of the source: FileNotFoundError instead."""
    try:
        yield
    except (CompileError, ProcessError):
        if (folder / source).exists():
            raise
        raise FileNotFoundError(errno.ENOENT, "removed while it was in use", str(folder)) from None


def _objects_gone(paths: Sequence[Path]) -> UsageError:
    return UsageError(
        f"objects to link are not there or cannot be read: {', '.join(map(str, paths))}. If the cache was cleaned just now, "
        "run this again"
    )


def _hash(*parts: str) -> str:
    digest = sha256(_FORMAT.encode())
    for part in parts:
        text = part.encode(errors="surrogateescape")
        digest.update(f"{len(text)}:".encode() + text)
    return digest.hexdigest()


def _log_name(name: str, key: str) -> str:
    return f"{safe_name(name)}-{key[:12]}"


def _library(store: Store, entry: Any) -> Path | None:
    try:
        if all(FILES.digest(file) == digest for file, digest in entry["files"]):
            return store.object(entry["library"], ".so")
    except (KeyError, TypeError, ValueError):
        pass
    return None
