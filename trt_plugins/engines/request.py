"""The arguments of a build, read and checked before anything is started."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import UsageError
from .flavor import normal_archs
from .record import Precision
from .sidecar import sidecar_path
from .source_model import SourceModel
from .workspace import byte_count

__all__ = ["BuildRequest", "expect_other_files", "read_request"]

_SUFFIXES = (".engine", ".plan", ".trt")


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """The arguments, read."""

    out: Path
    profiles: tuple[str | Mapping[str, Any], ...]
    plugins: tuple[Path, ...]
    embed: bool
    precision: Precision
    keep_float32: tuple[str, ...]
    archs: tuple[str, ...]
    timing_cache: Path | None
    workspace: int | None
    in_place: bool


def read_request(
    out: str | os.PathLike[str],
    *,
    profiles: Sequence[str | Mapping[str, Any]],
    plugins: Sequence[str | os.PathLike[str]],
    embed_plugins: bool,
    precision: str | None,
    keep_float32: Sequence[str],
    archs: Sequence[str | int],
    timing_cache: str | os.PathLike[str] | None,
    workspace: int | str | None,
    in_place: bool,
) -> BuildRequest:
    """The arguments of `build_engine`, checked as far as that needs no model. Raises UsageError."""
    return BuildRequest(
        out=_target(out),
        profiles=tuple(_sequence("profiles", profiles)),
        plugins=_plugin_files(_sequence("plugins", plugins), embed_plugins),
        embed=embed_plugins,
        precision=_precision(precision),
        keep_float32=_kept(_sequence("keep_float32", keep_float32), precision),
        archs=normal_archs(_sequence("archs", archs)),
        timing_cache=None if timing_cache is None else _timing_cache(Path(timing_cache)),
        workspace=byte_count(workspace),
        in_place=in_place,
    )


def _sequence(name: str, given: Sequence[Any]) -> Sequence[Any]:
    if isinstance(given, (str, bytes, os.PathLike, Mapping)) or not isinstance(given, Sequence):
        raise UsageError(f"{name}: expected a list, got {given!r:.200}; for one, write [{given!r:.100}]")
    return given


def _precision(given: str | None) -> Precision:
    if given is None:
        return "as exported"
    if given not in ("fp32", "fp16", "bf16"):
        raise UsageError(f"precision {given!r}: expected fp32, fp16 or bf16")
    return given  # type: ignore[return-value]


def _kept(given: Sequence[str], precision: str | None) -> tuple[str, ...]:
    if given and precision not in ("fp16", "bf16"):
        raise UsageError(
            "keep_float32 names what the precisions fp16 and bf16 leave alone; neither is asked for"
        )
    return tuple(map(str, given))


def _target(out: str | os.PathLike[str]) -> Path:
    path = Path(out)
    if not str(out) or path.is_dir():
        raise UsageError(f"{str(out)!r} is a folder; the engine's file is expected")
    if not path.name.isprintable():
        raise UsageError(
            f"{path.name!r}: the engine's name has control characters, which its sidecar does not take"
        )
    if not path.parent.is_dir():
        raise UsageError(f"{path}: the folder {path.parent} does not exist")
    if (
        path.exists()
        and path.suffix not in _SUFFIXES
        and not sidecar_path(path).exists()
        and path.stat().st_size
    ):
        raise UsageError(
            f"{path} exists and does not look like an engine (no {', '.join(_SUFFIXES)}, no sidecar): it is not replaced. "
            "Give another output"
        )
    return path


def _plugin_files(given: Sequence[str | os.PathLike[str]], embed: bool) -> tuple[Path, ...]:
    files = []
    for one in given:
        path = Path(one)
        if not path.is_file():
            raise UsageError(
                f"{path}: there is no such plugin library; `deployops compile --target tensorrt` makes one"
            )
        files.append(path.resolve())
    if embed and not files:
        raise UsageError("embed_plugins needs plugin libraries to embed: name them with --plugins")
    return tuple(dict.fromkeys(files))


def _timing_cache(path: Path) -> Path:
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"{path}: the timing cache is a file, in a folder that exists")
    return path.absolute()


def expect_other_files(request: BuildRequest, source: SourceModel) -> None:
    """What is written is none of what is read."""
    read = [source.path, *source.side_files, *request.plugins]
    written = [request.out, sidecar_path(request.out)]
    written += [] if request.timing_cache is None else [request.timing_cache]
    if len({path.resolve() for path in written}) < len(written):
        raise UsageError(f"{request.out} and the timing cache are one file; give two")
    for path in written:
        if path.exists() and any(path.samefile(other) for other in read):
            raise UsageError(
                f"{path} is read to build the engine, and would be written over. Give another output"
            )
