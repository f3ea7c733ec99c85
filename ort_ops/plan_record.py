"""Plans kept from one run to the next: declarations need torch, whose import takes longer than all the rest.

A plan comes from Python alone: our modules and templates, and the modules that the user's packs loaded. While they
are as they were, so is the plan. What the C++ in it includes is not looked at here: the cache of objects does that.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..errors import UsageError
from ..native.file_contents import FILES
from ..native.output_files import replace_file
from .build_plan import Plan

__all__ = ["PlanRecord"]

_ROOT = Path(__file__).resolve().parent.parent
_OURS = ("native", "ort_ops", "symbolic")


class PlanRecord:
    """Where the plan for these packs (None: the shipped operators) and this target is kept."""

    def __init__(self, cache: Path, target: str, packs: Sequence[str] | None) -> None:
        known = (
            target,
            None if packs is None else list(packs),
            os.getcwd(),
            sys.version,
            *map(_version, ("torch", "onnx", "jinja2")),
        )
        self._path = cache / "plans" / f"{hashlib.sha256(repr(known).encode()).hexdigest()[:32]}.json"

    def load(self) -> Plan | None:
        """The plan, where everything that it came from is unchanged."""
        try:
            record = json.loads(self._path.read_text(encoding="utf-8"))
            files: dict[str, str] = record["files"]
            if set(_our_files()) <= set(files) and all(FILES.digest(p) == d for p, d in files.items()):
                plan = Plan.from_dict(record["plan"])
                return plan if plan.holds else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        return None

    def save(self, plan: Plan, loaded: Iterable[str]) -> None:
        """Keep a plan; where that is not possible, the next run makes it again.

        `loaded`: names of the modules that loading the packs brought in.
        """
        own = [name for name in list(sys.modules) if not _installed(_file(name))]
        modules = {_file(name) for name in (*own, *loaded)} - {""}
        files = {path: FILES.digest(path) for path in sorted({*_our_files(), *modules})}
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            text = json.dumps({"files": files, "plan": plan.to_dict()})
            replace_file(self._path, lambda path: path.write_text(text, encoding="utf-8"))
        except (OSError, UsageError):
            return


def _our_files() -> list[str]:
    return sorted(
        str(path)
        for folder in _OURS
        for path in (_ROOT / folder).rglob("*")
        if path.suffix in (".py", ".j2") and "__pycache__" not in path.parts
    )


def _file(module: str) -> str:
    file = getattr(sys.modules.get(module), "__file__", None)
    return str(Path(file).resolve()) if isinstance(file, str) else ""


def _installed(file: str) -> bool:
    """A module of Python, of an installed package or of ours; all others are somebody's who works on them."""
    places = {
        *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
        *map(str, map(_ROOT.joinpath, (*_OURS, "export", "validation"))),
    }
    return (
        not file
        or any(Path(file).is_relative_to(Path(place).resolve()) for place in places)
        or Path(file).parent == _ROOT
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
