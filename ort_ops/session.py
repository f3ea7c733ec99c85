"""Open an ONNX model in ONNX Runtime on the CPU, or say why it cannot be opened."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NotCheckedError, UsageError
from .arguments import expect, expect_path, expect_sequence, listed_texts
from .diagnosis import explain

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["session"]

StrPath = str | os.PathLike[str]


def session(
    model_path: StrPath,
    *,
    threads: int | None = None,
    optimize: bool = True,
    libraries: Sequence[StrPath] = (),
) -> onnxruntime.InferenceSession:
    """Open a session on the CPU provider.

    Opened by path, so that external data is found next to the file. Worker threads do not spin between runs:
    spinning pools starve whatever runs next to them.

    Args:
        model_path: the .onnx file.
        threads: threads inside an operator; None leaves the runtime's choice, all cores.
        optimize: False runs the graph as written, without the optimiser, which can hide faults of the file.
        libraries: custom-operator libraries; each is registered once, however often it is named.

    Raises:
        UsageError: a path that does not exist; a library that does not load.
        ModelFileError: not an ONNX file, or not a valid model.
        NotCheckedError: a sound model that this runtime cannot run (not installed, no kernel, too old), or
            whose custom operators nothing here implements.
    """
    expect_path("model_path", model_path)
    expect("threads", threads, int, "a number")
    expect("optimize", optimize, bool, "True or False")
    libraries = listed_texts(libraries)
    expect_sequence("libraries", libraries, (str, os.PathLike), "a list of paths")
    path = Path(model_path)
    if not path.is_file():
        raise UsageError(f"{path}: no such file" if not path.exists() else f"{path}: not a file")
    ort = _runtime()
    options = ort.SessionOptions()
    options.log_severity_level = 4  # what matters arrives as an exception
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if threads is not None:
        if threads < 1:
            raise UsageError(f"threads must be at least 1, got {threads}")
        options.intra_op_num_threads = threads
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
    registered = register(options, libraries)
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's exception types share no base of its own
        raise explain(path, error, registered) from error


def register(options: Any, libraries: Sequence[StrPath]) -> tuple[Path, ...]:
    """Register each library once (a second time is an error of the runtime); returns their real paths."""
    paths = tuple(dict.fromkeys(Path(library).resolve() for library in libraries))
    for path in paths:
        if not path.is_file():
            raise UsageError(
                f"custom-operator library {path}: no such file. Give the path of the built .so, "
                ".dylib or .dll"
            )
        try:
            options.register_custom_ops_library(str(path))
        except Exception as error:
            raise UsageError(_library_fault(path, error)) from error
    return paths


def _library_fault(path: Path, error: Exception) -> str:
    text = str(error).split("with error:")[-1].strip().splitlines()[0]
    if "RegisterCustomOps" in text:
        return (
            f"{path} loads but is no ONNX Runtime library: it exports no RegisterCustomOps. "
            "A PyTorch operator library (TORCH_LIBRARY) is another thing and is not needed here"
        )
    return f"custom-operator library {path} does not load: {text}"


def _runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise NotCheckedError(
            'ONNX Runtime is not installed. Install it: pip install "deployops[cpu]"'
        ) from error
    if not hasattr(onnxruntime, "InferenceSession"):
        # onnxruntime and onnxruntime-gpu share a folder: uninstalling one leaves an empty package
        # of the other
        raise NotCheckedError(
            "ONNX Runtime is installed but broken. "
            'Reinstall it: pip install --force-reinstall "deployops[cpu]"'
        )
    return onnxruntime
