"""Engines that were built before, under the hash of everything that went into them.

In the folder of the compiled libraries (`native.cache_store`): an engine under the hash of its content, and a record under the
key. Two processes may build the same at once: both put it there, each in one step.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...native.cache_entries import own_folder
from ...native.cache_store import Store
from ...native.file_contents import FILES
from ...native.file_lock import locked_file
from ...native.plan_record import our_files
from ...native.store_fallback import Stores
from .record import EngineRecord, KeptFloat32, PluginFile, TensorRecord

__all__ = ["EngineCache", "cache_key", "own_files"]

_FORMAT = "engine 1"  # of keys and entries; another one starts anew
_SUFFIX = ".engine"
_PACKAGES = ("native", "symbolic", "trt_plugins")
_SIZE_LIMIT = 8 << 30  # bytes, of the whole folder, where engines are put into it
_ROOT = Path(__file__).resolve().parent.parent.parent


def cache_key(**parts: Any) -> str:
    """The hash of what an engine depends on: plain data, and the deployops that prepares the build."""
    text = json.dumps({"format": _FORMAT, "deployops": _ours(), **parts}, sort_keys=True)
    return sha256(text.encode()).hexdigest()


def own_files() -> list[Path]:
    """All that decides what is refused, warned of and handed to TensorRT.

    Whole packages: what a check imports, at its head or on its way, is nowhere else (tests/test_structure.py).
    """
    return [_ROOT / "errors.py", *our_files(_PACKAGES, (".py", ".json"))]


@functools.cache
def _ours() -> list[str]:
    """What a build is checked and prepared with: our code and data, and onnx, whose schemas say what an operator takes."""
    digests = [[str(path.relative_to(_ROOT)), FILES.digest(str(path))] for path in own_files()]
    return [sha256(json.dumps(digests).encode()).hexdigest(), version("onnx")]


class EngineCache:
    """Looks up and keeps engines. `root`: of the cache; None: `default_root()`."""

    def __init__(self, root: Path | None = None) -> None:
        self._stores = Stores(root)

    def find(self, key: str) -> tuple[Path, EngineRecord] | None:
        """The engine, which is the cache's own (copy it), and its record; None: not here, or damaged."""
        for store in self._stores:
            for entry in store.read_record(key):
                with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
                    record = _record(entry)
                    path = store.object(record.sha256, _SUFFIX)
                    if path is not None:
                        return path, record
        return None

    def keep(self, key: str, engine: Path, record: EngineRecord) -> None:
        """Move an engine into the cache. Where it cannot be written it is not kept, which costs a build more."""
        with contextlib.suppress(OSError):
            store = Store(self._stores.root)
            store.put_object(engine.rename(engine.with_suffix(_SUFFIX)))
            store.write_record(key, [asdict(record)])
            store.prune_sometimes(_SIZE_LIMIT)

    @contextlib.contextmanager
    def build_folder(self) -> Iterator[Path]:
        """An empty folder in the file system of the cache; where that cannot be written, in the temporary one, with a warning."""
        with self._stores.build_folder() as (_, folder):
            yield folder

    @contextlib.contextmanager
    def locked(self, path: Path) -> Iterator[None]:
        """In the block, no other process that asks for the same lock writes `path`.

        Where the cache cannot be written there is no lock; whoever reads the engine compares it with its sidecar all the same.

        Raises UsageError where another process holds it for minutes.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                own_folder(self.lock_file(path).parent)
                stack.enter_context(locked_file(self.lock_file(path)))
            yield

    def lock_file(self, path: Path) -> Path:
        """The file by whose lock processes take turns with `path`; its folder need not be there."""
        return self._stores.root / "locks" / sha256(str(path.resolve()).encode()).hexdigest()


def _record(entry: Mapping[str, Any]) -> EngineRecord:
    """What `asdict` and JSON made of a record."""
    fields = dict(entry)
    for name, kind in (("plugins", PluginFile), ("kept_float32", KeptFloat32)):
        fields[name] = tuple(kind(**one) for one in fields[name])
    for name in ("inputs", "outputs"):
        fields[name] = tuple(
            TensorRecord(one["name"], one["dtype"], tuple(one["dims"])) for one in fields[name]
        )
    fields["profiles"] = tuple(
        {name: tuple(tuple(shape) for shape in shapes) for name, shapes in profile.items()}
        for profile in fields["profiles"]
    )
    fields["archs"], fields["warnings"] = tuple(fields["archs"]), tuple(fields["warnings"])
    return EngineRecord(**fields)
