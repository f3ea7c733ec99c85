"""ONNX Runtime as a backend: with the bodies in the file, with libraries, with the optimiser off, and on CUDA."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...errors import DeployOpsError, ModelFileError, NotCheckedError
from ...ort_ops.coverage import has_shipped_operators
from ...ort_ops.diagnosis import parsed
from ...ort_ops.library import ort_library, shipped_library
from ...ort_ops.shipped_operators import newest_shipped, shipped_versions
from ...symbolic.graph_inspection.domains import is_custom
from .cores import usable_cores
from .cuda import driver_missing
from .graph_runner import GraphRunner
from .runner import LIMIT_S, Kind, Request

__all__ = ["KINDS", "OnnxRuntime"]

_CUDA = "CUDAExecutionProvider"


@dataclass(frozen=True, slots=True)
class _Custom:
    """What a model has of custom operators: those without a body in it, and whether any comes with deployops."""

    bare: tuple[str, ...] = ()
    shipped: bool = False


class OnnxRuntime(GraphRunner):
    """A session of ONNX Runtime, and what was learned about feeding it. Close it when done."""

    def __init__(
        self,
        path: Path,
        *,
        threads: int | None,
        optimize: bool,
        libraries: Sequence[str | os.PathLike[str]] = (),
        isolate: bool = True,
        limit_s: float = LIMIT_S,
        memory: int | None = None,
        providers: Sequence[str] | None = None,
        name: str = "",
    ) -> None:
        files = tuple(Path(library).resolve() for library in libraries)
        options: dict[str, Any] = {
            "path": str(path.resolve()),
            "threads": threads,
            "optimize": optimize,
            "libraries": [str(f) for f in files],
            "providers": None if providers is None else list(providers),
        }
        super().__init__(
            name or ("onnxruntime" if optimize else "onnxruntime, optimiser off"),
            "onnxruntime",
            options,
            isolate=isolate,
            limit_s=limit_s,
            memory=memory,
            threads=threads,
            files=files,
        )


def _opened(
    name: str,
    request: Request,
    libraries: Sequence[Path] = (),
    *,
    optimize: bool = True,
    providers: Sequence[str] | None = None,
    memory: int | None = None,
) -> OnnxRuntime:
    assert request.onnx is not None
    return OnnxRuntime(
        request.onnx,
        threads=usable_cores() if request.threads is None else request.threads,
        optimize=optimize,
        libraries=libraries,
        isolate=request.isolate,
        limit_s=request.limit_s,
        memory=memory,
        providers=providers,
        name=name,
    )


def _missing(request: Request) -> str:
    if request.onnx is None:
        return "no ONNX file is given"
    try:
        import onnxruntime
    except ImportError:
        return 'ONNX Runtime is not installed: pip install "deployops[cpu]"'
    if not hasattr(onnxruntime, "InferenceSession"):
        return 'ONNX Runtime is installed but broken: pip install --force-reinstall "deployops[cpu]"'
    return ""


def _bodies_missing(request: Request) -> str:
    """Custom nodes without a body need a library, which this backend does without."""
    if reason := _missing(request):
        return reason
    bare = _custom(request).bare
    if not bare:
        return ""
    return (
        f"the file has no body for {', '.join(bare)}, which only a library can run: see onnxruntime+library"
    )


def _library_missing(request: Request) -> str:
    if reason := _missing(request):
        return reason
    if request.libraries:
        return ""
    custom = _custom(request)
    if not custom.shipped:
        wanted = f" with {', '.join(custom.bare)}" if custom.bare else ""
        return f"no custom-operator library{wanted} is given, and the model has no operator that comes with deployops"
    compiler = os.environ.get("CXX") or "g++"
    if not shipped_library("ort-cpu").is_file() and not (shutil.which(compiler) or shutil.which("clang++")):
        return f"the library of the shipped operators is not built, and there is no C++ compiler ({compiler}, clang++)"
    return ""


def _cuda_missing(request: Request) -> str:
    if reason := _missing(request):
        return reason
    import onnxruntime

    reasons = []
    if _CUDA not in onnxruntime.get_available_providers():
        reasons.append(
            f'this build of ONNX Runtime has no {_CUDA}: pip install "deployops[gpu]", in an environment without the '
            "package onnxruntime"
        )
    if reason := driver_missing():
        reasons.append(reason)
    custom = _custom(request)
    if custom.bare and not custom.shipped and not request.libraries:
        reasons.append(f"no custom-operator library with {', '.join(custom.bare)} is given")
    return "; ".join(reasons)


def _open_bodies(request: Request) -> OnnxRuntime:
    return _opened("onnxruntime", request, memory=request.memory)


def _open_as_written(request: Request) -> OnnxRuntime:
    # with bodies where the file has them: a library's kernel would be run in their place
    bare = _custom(request).bare
    libraries = request.libraries if bare else ()
    runner = _opened("onnxruntime, optimiser off", request, libraries, optimize=False, memory=request.memory)
    if libraries:
        runner.notes[f"{', '.join(bare)}: no body in the file, so the kernels of the library ran"] = None
    return runner


def _open_library(request: Request) -> OnnxRuntime:
    libraries = list(request.libraries)
    if _custom(request).shipped and not _brings_shipped(request.libraries):
        try:
            libraries.append(Path(ort_library()))
        except DeployOpsError as error:
            if not request.libraries:
                raise NotCheckedError(
                    f"the library of the shipped operators is not built: {error}"
                ) from error
    return _opened("onnxruntime+library", request, libraries, memory=request.memory)


def _open_cuda(request: Request) -> OnnxRuntime:
    # `session` refuses where the provider is not at work, which the runtime would pass over in silence
    libraries, note = list(request.libraries), ""
    custom = _custom(request)
    if custom.shipped and not _brings_shipped(request.libraries):
        try:
            libraries.append(Path(ort_library("ort-cuda")))
        except DeployOpsError as error:
            note = f"the library of the shipped operators for CUDA is not built: {error}"
            if any(shipped_versions(*name.rpartition("::")[::2]) for name in custom.bare):
                raise NotCheckedError(note) from error
    runner = _opened("onnxruntime-cuda", request, libraries, providers=[_CUDA])
    if note:
        runner.notes[f"custom operators ran as their bodies: {note}"] = None
    runner.notes["times on the GPU contain the copies of inputs and outputs"] = None
    if request.memory is not None:
        runner.notes["the memory limit is not kept: CUDA reserves address space beyond any"] = None
    return runner


def _brings_shipped(libraries: Sequence[Path]) -> bool:
    """ONNX Runtime takes a domain from one library only, so ours is not put beside another that has it."""
    from ...ort_ops.library_manifest import manifest_path, read_manifest

    known = [read_manifest(path) for path in libraries if manifest_path(path).is_file()]
    return any(newest_shipped(o.domain) for manifest in known for o in manifest.operators)


def _custom(request: Request) -> _Custom:
    assert request.onnx is not None
    try:
        stat = request.onnx.stat()
    except OSError:
        return _Custom()
    return _custom_of(request.onnx, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4)
def _custom_of(path: Path, _time: int, _size: int) -> _Custom:
    """A model of many megabytes is read once, however many backends ask."""
    try:
        model = parsed(path)
    except ModelFileError:
        return _Custom()  # opening it says what is wrong
    bodies = {(f.domain, f.name) for f in model.functions}
    bare: dict[str, None] = {}
    stack: list[Any] = [*model.graph.node, *(n for f in model.functions for n in f.node)]
    while stack:
        node = stack.pop()
        if is_custom(node.domain) and (node.domain, node.op_type) not in bodies:
            bare[f"{node.domain}::{node.op_type}"] = None
        for attribute in node.attribute:
            stack += [n for g in (attribute.g, *attribute.graphs) for n in g.node]
    return _Custom(tuple(sorted(bare)), has_shipped_operators(model))


def _as_written_missing(request: Request) -> str:
    reason = _bodies_missing(request)
    return "" if request.libraries and request.onnx is not None and not _missing(request) else reason


KINDS = (
    Kind(
        "onnxruntime",
        "ONNX Runtime on the CPU, custom operators by the bodies in the file",
        _bodies_missing,
        _open_bodies,
    ),
    Kind(
        "onnxruntime, optimiser off",
        "the graph as it is written: the optimiser can hide faults of a file",
        _as_written_missing,
        _open_as_written,
    ),
    Kind(
        "onnxruntime+library",
        "ONNX Runtime on the CPU, custom operators by a native library",
        _library_missing,
        _open_library,
    ),
    Kind("onnxruntime-cuda", "ONNX Runtime on an NVIDIA GPU", _cuda_missing, _open_cuda),
)
