"""Plans kept from one run to the next: declarations need torch, whose import takes longer than all the rest.

A plan comes from Python alone: our modules and templates, and the modules that the user's packs loaded. While they
are as they were, so is the plan. What the C++ in it includes is not looked at here: the cache of objects does that.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .cache_entries import read_sealed, write_sealed
from .file_contents import FILES

__all__ = ["PlanRecord", "our_files"]

_ROOT = Path(__file__).resolve().parent.parent


def our_files(packages: Iterable[str], suffixes: tuple[str, ...]) -> list[Path]:
    """The files of our packages with one of these endings, to any depth, sorted."""
    inside = (path for package in packages for path in (_ROOT / package).rglob("*"))
    return sorted(path for path in inside if path.suffix in suffixes)


class PlanRecord:
    """Where the plan for these packs (None: the shipped operators) and this target is kept.

    Args:
        cache: the folder of the cache.
        target: what is built, and whatever else decides.
        packs: modules and files that declare the operators.
        ours: our packages whose code makes the plan.
    """

    def __init__(self, cache: Path, target: str, packs: Sequence[str] | None, ours: tuple[str, ...]) -> None:
        known = (
            target,
            None if packs is None else list(packs),
            os.getcwd(),
            sys.version,
            *map(_version, ("torch", "onnx", "jinja2")),
        )
        self._ours = ours
        self._path = cache / "plans" / f"{hashlib.sha256(repr(known).encode()).hexdigest()[:32]}"

    def load(self) -> Any:
        """The plan as data, where everything that it came from is unchanged; else None."""
        try:
            record = json.loads(read_sealed(self._path) or "null")
            files: dict[str, str] = record["files"]
            if set(self._own_files()) <= set(files) and all(FILES.digest(p) == d for p, d in files.items()):
                return record["plan"]
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        return None

    def save(self, plan: Mapping[str, Any], loaded: Iterable[str]) -> None:
        """Keep a plan; where that is not possible, the next run makes it again.

        `loaded`: names of the modules that loading the packs brought in.
        """
        places = self._installed_places()
        real = _RealPaths()
        own = [file for file in map(real.of_module, list(sys.modules)) if not _below(file, places)]
        modules = {*own, *map(real.of_module, loaded)} - {""}
        files = {path: FILES.digest(path) for path in sorted({*self._own_files(), *modules})}
        with contextlib.suppress(OSError):
            write_sealed(self._path, json.dumps({"files": files, "plan": plan}))

    def _own_files(self) -> list[str]:
        return list(map(str, our_files(self._ours, (".py", ".j2"))))

    def _installed_places(self) -> tuple[str, ...]:
        """Where Python's modules, those of installed packages and ours are; all others are somebody's who works on them."""
        paths = (
            *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
            *map(str, map(_ROOT.joinpath, (*self._ours, "export", "validation"))),
        )
        return tuple(dict.fromkeys(map(os.path.realpath, paths)))


def _below(file: str, places: tuple[str, ...]) -> bool:
    return (
        not file
        or file.startswith(tuple(f"{place}{os.sep}" for place in places))
        or os.path.dirname(file) == str(_ROOT)
    )


class _RealPaths:
    """Files of modules with all links followed, each folder once: there are some two thousand in a few hundred folders."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}

    def of_module(self, module: str) -> str:
        file = getattr(sys.modules.get(module), "__file__", None)
        if not isinstance(file, str):
            return ""
        if os.path.islink(file):
            return os.path.realpath(file)
        folder, name = os.path.split(file)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        return os.path.join(self._folders[folder], name)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
