"""Where declared operators are found: by torch name, by ONNX name; packs are loaded only when asked for."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DeclarationError, DeployOpsError, UsageError

if TYPE_CHECKING:
    from .operator import Operator

__all__ = ["add", "all_operators", "by_onnx_name", "by_overload", "load", "load_builtin", "load_entry_points"]

ENTRY_POINTS = "deployops.operators"

_by_name: dict[str, Operator] = {}
_declared_by: dict[str, list[Operator]] = {}  # what each place declared when it was loaded


def add(op: Operator) -> None:
    """Make an operator known; the same declaration run again (a notebook cell) replaces itself."""
    _by_name[op.name] = op


def remove(op: Operator) -> None:
    """Forget an operator: for tests."""
    _by_name.pop(op.name, None)


def refuse_twice(name: str, onnx_name: str, source: str, function: str = "") -> None:
    """Raise where another file, or another function of the same file, declared this torch or ONNX name."""
    for other in _by_name.values():
        if other.name != name and other.onnx_name != onnx_name:
            continue
        known = getattr(other.reference, "__name__", "")
        renamed = bool(function and known and function != known)
        if other.name != name or renamed or not _same_place(source, other.source):
            place = f", in {Path(other.source).name}" if other.source else ""
            raise DeclarationError(
                f"{name} = {onnx_name} is declared already, as {other.name} = {other.onnx_name}{place}: "
                "give one of them another name"
            )


def _same_place(source: str, other: str) -> bool:
    """The same file, or twice no file: a notebook's cells have a new pseudo-file each time they are run."""
    return source == other or not (Path(source).is_file() or Path(other).is_file())


def all_operators() -> list[Operator]:
    """Every known operator, by name."""
    return [_by_name[n] for n in sorted(_by_name)]


def by_overload(overload: Any) -> Operator | None:
    """The operator behind a torch overload, if it is declared."""
    found = _by_name.get(str(overload.name()))
    return found if found is not None and found.overload == overload else None


def by_onnx_name(domain: str, op_type: str) -> Operator | None:
    """The operator behind a node's domain and type, if it is declared."""
    return next((o for o in _by_name.values() if o.domain == domain and o.op_type == op_type), None)


def load_builtin() -> None:
    """Declare the operators that come with deployops."""
    from . import operators

    operators.load()


def load_entry_points() -> list[str]:
    """Import the installed packs (entry point group `deployops.operators`); returns their names."""
    from importlib.metadata import entry_points

    loaded = []
    for point in entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except DeclarationError:
            raise
        except Exception as e:
            raise UsageError(
                f"the operator pack `{point.name}` ({point.value}) cannot be imported: {e}"
            ) from e
        loaded.append(point.name)
    return loaded


def load(places: Iterable[str]) -> list[Operator]:
    """Import modules (`acme.ops`) or files (`ops/acme.py`) that declare operators; returns these operators.

    `acme.py::swish`, `acme.ops::acme::swish`: this one of them alone is returned.

    Raises UsageError where one is not found or fails.
    """
    found: dict[str, Operator] = {}
    for given in places:
        place, _, name = given.partition("::")
        before = set(_by_name)
        _load_one(place)
        new = [_by_name[name] for name in _by_name if name not in before]
        # Loaded before: what it declared itself; what it brought in from elsewhere was reported then.
        known = _declared_by.setdefault(place, []) if new or place in _declared_by else _declared_in(place)
        known += [op for op in new if op not in known]
        found |= {op.name: op for op in (_one_of(known, name, place) if name else known)}
    return list(found.values())


def _one_of(declared: list[Operator], name: str, place: str) -> list[Operator]:
    chosen = [op for op in declared if name in (op.name, op.onnx_name, op.name.partition("::")[2])]
    if not chosen:
        has = ", ".join(op.name.partition("::")[2] for op in declared) or "none"
        raise UsageError(f"{place} declares no operator `{name}`; it has {has}")
    return chosen


def _declared_in(place: str) -> list[Operator]:
    module = sys.modules.get(place)
    file = Path(str(getattr(module, "__file__", None) or place)).resolve()
    return [op for op in all_operators() if op.source and Path(op.source).resolve() == file]


def _load_one(place: str) -> None:
    try:
        if _is_file(place):
            _load_file(Path(place))
        else:
            importlib.import_module(place)
    except DeployOpsError:
        raise
    except ModuleNotFoundError as e:
        # A file that is not there was told by then; of a module, it or a package above it is what is missing.
        if _is_file(place) or not (e.name and f"{place}.".startswith(f"{e.name}.")):
            line = _last_line_in(e, place)
            missing = (
                f"its import of `{e.name}` failed: {e}" if e.name else f"an import of its own failed: {e}"
            )
            raise UsageError(f"--ops {place} was found, but{line} {missing}") from e
        raise UsageError(
            f"--ops {place}: {e}. Give an importable module, or the path of a .py file"
        ) from None
    except ImportError as e:
        line = _last_line_in(e, place)
        if not (_is_file(place) and "relative import" in str(e)):
            raise UsageError(f"--ops {place} fails{line}: {type(e).__name__}: {e}") from e
        module = _module_of(Path(place)) or "PACKAGE.MODULE"
        raise UsageError(
            f"--ops {place}{line} imports from its package (`from .`, `from ..`), which a file by itself does not have: "
            f"give the module's name instead of the file, --ops {module}"
        ) from e
    except Exception as e:
        line = _last_line_in(e, place)
        raise UsageError(f"--ops {place} fails{line}: {type(e).__name__}: {e}") from e


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place or Path(place).is_file()


def _module_of(file: Path) -> str:
    """The name under which the file of a package is imported; empty where it is in none."""
    file = file.resolve()
    # A package that is imported has its own name, whatever its folder is called.
    starts = {name: str(getattr(module, "__file__", None)) for name, module in list(sys.modules.items())}
    packages = {Path(f).resolve().parent: name for name, f in starts.items() if f.endswith("__init__.py")}
    parts = [file.stem]
    for folder in file.parents:
        if folder in packages:
            return ".".join([packages[folder], *parts])
        if not (folder / "__init__.py").is_file():
            break
        parts.insert(0, folder.name)
    return ".".join(parts) if len(parts) > 1 else ""


def _load_file(path: Path) -> None:
    if not path.is_file():
        raise UsageError(f"--ops {path}: there is no such file")
    # The file's own name, so that pickles and error messages name it as its author does; where another has that, one for
    # its path: run a second time, it would declare its operators anew.
    file = path.resolve()
    other = f"deployops_pack_{path.stem}_{sha256(str(file).encode()).hexdigest()[:12]}"
    for known in (sys.modules.get(path.stem), sys.modules.get(other)):
        if known is not None and Path(str(getattr(known, "__file__", None))).resolve() == file:
            return
    name = other if path.stem in sys.modules else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--ops {path}: this is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise


def _last_line_in(error: BaseException, place: str) -> str:
    import traceback

    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == Path(place).name
    ]
    return f" at line {frames[-1].lineno}" if frames else ""
