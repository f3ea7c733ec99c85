"""The cache, and where it cannot be written, a folder for this process in its place."""

from __future__ import annotations

import contextlib
import errno
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from ..errors import UsageError
from .cache_store import Store, default_root, temporary_store

__all__ = ["Stores"]

T = TypeVar("T")

_TRIES = 3  # where somebody removes the cache while it is used


class Stores:
    """The stores to look in, and the one to write to. Opening it raises as `Store` does where others could write.

    Args:
        root: of the cache; None: `default_root()`.
    """

    def __init__(self, root: Path | None) -> None:
        self._known: list[Store] = []
        self._lock = threading.Lock()
        try:
            self._known.append(Store(default_root() if root is None else Path(root).absolute()))
        except OSError as error:
            self._fall_back(error)

    def __iter__(self) -> Iterator[Store]:
        return iter(tuple(self._known))

    @property
    def root(self) -> Path:
        """The folder that is written to."""
        return self._known[-1].root

    def build(self, build: Callable[[Store], T]) -> T:
        """`build` with the store to write to; once more with the temporary one where it raises OSError.

        Where it finds its files gone, because somebody removes the cache just now, it is first tried again.
        """
        try:
            return self._tried(build)
        except OSError as error:
            self._fall_back(error)
        try:
            return self._tried(build)
        except OSError as error:
            raise UsageError(
                f"nothing can be built: {self.root} cannot be written ({error}). Free space there, or set TMPDIR"
            ) from None

    def _tried(self, build: Callable[[Store], T], tries: int = _TRIES) -> T:
        try:
            return build(self._known[-1])
        except OSError as error:
            if error.errno != errno.ENOENT or tries == 1:
                raise
        return self._tried(build, tries - 1)

    @contextlib.contextmanager
    def build_folder(self) -> Iterator[tuple[Store, Path]]:
        """An empty folder in the file system of a store, and the store; the folder is gone after the block."""
        with contextlib.ExitStack() as stack:
            yield self.build(lambda store: (store, stack.enter_context(store.build_folder())))

    def _fall_back(self, error: OSError) -> None:
        with self._lock:
            try:
                store = temporary_store()
            except OSError as second:
                raise UsageError(
                    f"the cache cannot be written ({error}), and neither can a folder for temporary files ({second}). "
                    "Set DEPLOYOPS_CACHE to a folder that can"
                ) from None
            if any(store.root == known.root for known in self._known):
                return
            where = f" {self._known[0].root}" if self._known else ""
            self._known.append(store)
        warnings.warn(
            f"the cache{where} cannot be written ({error}), so that what is built now is built again the next "
            "time. Set DEPLOYOPS_CACHE to a folder that can be written",
            RuntimeWarning,
            stacklevel=5,
        )
