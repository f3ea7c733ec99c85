"""Which backends a validation runs, and why not the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..ort_ops.library import NAME, shipped_folder
from .backends import BACKENDS, Kind, chosen
from .backends.engine_checks import engine_flavor
from .options import Options

__all__ = ["AS_WRITTEN", "ENGINES", "Choice", "choose"]

AS_WRITTEN = "onnxruntime, optimiser off"

# What the file is deployed with, and what shows faults of the file itself.
_DEPLOYED = ("onnxruntime", AS_WRITTEN, "onnxruntime+library")
ENGINES = ("tensorrt", "tensorrt-rtx")


@dataclass(frozen=True, slots=True)
class Choice:
    """A backend; `skipped`: why it is not even tried; empty where it is."""

    kind: Kind
    required: bool
    skipped: str = ""


def choose(options: Options, *, shipped: bool) -> list[Choice]:
    """Every backend there is, in the order of reports.

    Those that are named are required: who asks for one by name is not told "passed" without it. Where none is named: those
    that serve the file, an engine's where one is given, and those that are required; of them what is there counts. An
    engine that is given is to be checked: its backend is required. `shipped`: the model has operators that come with deployops.
    Raises UsageError for names that are none, and for an engine that no named backend runs.
    """
    required = {kind.name for kind in chosen(options.required)}
    if options.engine is not None:
        required |= _runs_engine(options.engine, options.backends)
    if options.backends is not None:
        wanted = {kind.name for kind in chosen(options.backends)} | required
        return [Choice(kind, required=True) for name, kind in BACKENDS.items() if name in wanted]
    wanted = {*_DEPLOYED, *required}
    choices = []
    for name, kind in BACKENDS.items():
        if name == "pytorch" and name not in wanted:
            continue  # the original itself
        skipped = "" if name in wanted else f"not asked for; --backend {_quoted(name)} runs it"
        unbuilt = shipped and not options.libraries and not _built()
        if name == "onnxruntime+library" and name not in required and unbuilt:
            skipped = (
                "the library of the shipped operators is not built: `deployops compile` builds it, and so does "
                f"--backend {name}"
            )
        choices.append(Choice(kind, name in required, skipped))
    return choices


def _runs_engine(engine: Path, named: Sequence[str] | None) -> set[str]:
    if named is None:
        return {engine_flavor(engine)}
    runs = {kind.name for kind in chosen(named)} & set(ENGINES)
    if not runs:
        raise UsageError(
            f"an engine is given ({engine.name}), and none of the named backends runs it: name {engine_flavor(engine)} too, or "
            "leave the engine out"
        )
    return runs


def _built() -> bool:
    return (shipped_folder() / NAME).is_file()


def _quoted(name: str) -> str:
    return f"'{name}'" if " " in name else name
