"""Build the module named on the command line: `PKG.MOD:CALLABLE` or `path/to/file.py:CALLABLE`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ...errors import UsageError

if TYPE_CHECKING:
    import torch

__all__ = ["build_model"]


def build_model(name: str) -> torch.nn.Module:
    """Import and call with no arguments; what comes back must be a torch.nn.Module.

    Raises UsageError that names the part which failed: the import, the attribute, the call.
    """
    import torch

    place, _, attributes = name.rpartition(":")
    if not place or not all(part.isidentifier() for part in attributes.split(".")):
        raise UsageError(f"--model {name!r}: expected PKG.MOD:CALLABLE or path/to/file.py:CALLABLE")
    found: object = _imported(place, name)
    for part in attributes.split("."):
        if not hasattr(found, part):
            known = (
                sorted(key for key in vars(found) if not key.startswith("_"))
                if hasattr(found, "__dict__")
                else []
            )
            raise UsageError(
                f"--model {name}: {place!r} has no {part!r}; it has {', '.join(known[:20]) or 'nothing'}"
            )
        found = getattr(found, part)
    if isinstance(found, torch.nn.Module):
        return found
    if not callable(found):
        raise UsageError(f"--model {name}: {attributes} is a {type(found).__name__}, not a class or function")
    try:
        module = found()
    except Exception as reason:
        raise UsageError(
            f"--model {name}: {attributes}() failed: {type(reason).__name__}: {reason}. "
            "It is called with no arguments: give a function that builds the model as it was trained"
        ) from reason
    if not isinstance(module, torch.nn.Module):
        raise UsageError(
            f"--model {name}: {attributes}() gave a {type(module).__name__}, not a torch.nn.Module"
        )
    return module


def _imported(place: str, name: str) -> ModuleType:
    path = Path(place)
    try:
        if path.suffix == ".py":
            if not path.is_file():
                raise UsageError(f"--model {name}: {place} does not exist")
            with _importable(path.parent.resolve()):
                return _from_file(path)
        with _importable(Path.cwd()):
            return importlib.import_module(place)
    except UsageError:
        raise
    except Exception as reason:
        raise UsageError(
            f"--model {name}: importing {place!r} failed: {type(reason).__name__}: {reason}"
        ) from reason


def _from_file(path: Path) -> ModuleType:
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) and path.samefile(str(known.__file__)):
        return known  # imported by a file of --ops: a second run would register its operators anew
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickles look their module up by name; one that is loaded already keeps its name.
    sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if sys.modules.get(path.stem) is module:
            del sys.modules[path.stem]
        raise
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    # A console script, unlike `python -m`, does not look for modules in the current folder.
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
