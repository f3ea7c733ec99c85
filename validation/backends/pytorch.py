"""The PyTorch original as a backend: eager, and compiled by torch.compile (inductor)."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy.typing as npt

from .cores import usable_cores
from .endings import Ending
from .inductor import inductor_environment
from .isolated import IsolatedEngine
from .runner import Kind, ReopenError, Request, Sample
from .torch_call import pack
from .torch_engine import TorchEngine

__all__ = ["KINDS", "TorchRunner"]

Array = npt.NDArray[Any]


class TorchRunner:
    """A `Runner` of the original. A model file is opened again in a child process, a model in memory is handed over."""

    def __init__(self, name: str, request: Request, *, compiled: bool) -> None:
        self.name = name
        self.notes: dict[str, None] = {}
        self.files: tuple[Path, ...] = ()
        self._graph_outputs = _graph_outputs(request)
        self._outputs = self._graph_outputs
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._engine: IsolatedEngine | TorchEngine
        try:
            self._engine = self._opened(request, compiled)
        except BaseException:
            self._remove_folder()
            raise
        self.load_ms = self._engine.load_ms
        self.versions, self.pools = self._engine.versions, self._engine.pools

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names: those of the graph where it has as many, else by position."""
        return self._outputs

    @property
    def last_act(self) -> Ending | None:
        """How the process ended after it was told to, where that went wrong."""
        return getattr(self._engine, "last_act", None)

    def run(self, inputs: Sequence[tuple[str, Any]], sample: Sample | None = None) -> list[Array]:
        """See `Runner.run`."""
        args, kwargs = (
            (tuple(v for _, v in inputs), {}) if sample is None else (sample.args, dict(sample.kwargs))
        )
        if isinstance(self._engine, TorchEngine):
            results = self._engine.run_values(args, kwargs)
        else:
            structure, arrays = pack(args, kwargs)
            results = self._engine.run(arrays, structure)
        self.notes |= dict.fromkeys(self._engine.notes)
        same = len(results) == len(self._graph_outputs)
        self._outputs = self._graph_outputs if same else tuple(f"output {i}" for i in range(len(results)))
        return results

    def time(self) -> float:
        """Milliseconds of another run on the inputs of the last one."""
        return self._engine.time()

    def profile(self, runs: int = 5) -> str:
        """See `Runner.profile`."""
        return self._engine.profile(runs)

    def close(self) -> None:
        self._engine.close()
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def _opened(self, request: Request, compiled: bool) -> IsolatedEngine | TorchEngine:
        if request.source is not None and (request.isolate or request.model is None):
            source = {**asdict(request.source), "path": str(request.source.path)}
            return self._isolated(request, compiled, source=source, stored=None)
        if not compiled or not request.isolate:  # the original is run in this process anyway
            return self._here(request, compiled)
        self._folder = tempfile.TemporaryDirectory(prefix="deployops-model-")
        try:
            stored = _store(request.model, Path(self._folder.name))
            return self._isolated(request, compiled, source=None, stored=stored)
        except ReopenError as error:
            why = f"another process cannot open this model ({error})"
        self.notes[f"{self.name} runs in the validation's own process, and would take it along: {why}"] = None
        return self._here(request, compiled)

    def _here(self, request: Request, compiled: bool) -> TorchEngine:
        from ..original import callable_of

        if request.memory is not None:
            self.notes["the memory limit is not kept: it is that of a child process, and there is none"] = (
                None
            )
        return TorchEngine(callable_of(request.model), compiled=compiled, computes_in=request.computes_in)

    def _isolated(
        self, request: Request, compiled: bool, source: dict[str, Any] | None, stored: tuple[str, str] | None
    ) -> IsolatedEngine:
        threads = usable_cores() if request.threads is None else request.threads
        options = {
            "source": source,
            "stored": stored,
            "compiled": compiled,
            "threads": threads,
            "computes_in": request.computes_in,
        }
        return IsolatedEngine(
            "torch",
            options,
            limit_s=request.limit_s,
            memory=request.memory,
            threads=threads,
            environment=inductor_environment(),
        )


def _store(model: Any, folder: Path) -> tuple[str, str]:
    """(form, path) of the model as a file for our own child. Raises ReopenError where it has no such form."""
    import torch

    path = str(folder / "model")
    try:
        if isinstance(model, torch.jit.ScriptModule):
            torch.jit.save(model, path)
            return "script", path
        program = getattr(model, "program", None)
        if isinstance(model, torch.export.ExportedProgram) or isinstance(
            program, torch.export.ExportedProgram
        ):
            torch.export.save(program if program is not None else model, path)
            return "program", path
        if not isinstance(model, torch.nn.Module) and not callable(model):
            model = getattr(model, "module", model)
        torch.save(model, path)
    except Exception as error:  # pickle raises whatever the module's own state raises
        from .torch import described

        raise ReopenError(described(error)) from error
    return "pickle", path


def _graph_outputs(request: Request) -> tuple[str, ...]:
    if request.onnx is None:
        return ()
    import onnx

    model = onnx.load(str(request.onnx), load_external_data=False)
    return tuple(o.name for o in model.graph.output)


def _missing(request: Request) -> str:
    return "" if request.model is not None or request.source is not None else "no PyTorch model is given"


def _compile_missing(request: Request) -> str:
    if reason := _missing(request):
        return reason
    # as inductor chooses it
    compiler = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        return f"torch.compile needs a C++ compiler, and {compiler} is not found: install one, or set CXX"
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        return "torch.compile needs the headers of Python (Python.h), which are not installed: python3-dev"
    return ""


KINDS = (
    Kind(
        "pytorch",
        "the PyTorch original, eager, on the CPU",
        _missing,
        lambda request: TorchRunner("pytorch", request, compiled=False),
    ),
    Kind(
        "torch.compile",
        "the PyTorch original compiled by torch.compile (inductor), on the CPU",
        _compile_missing,
        lambda request: TorchRunner("torch.compile", request, compiled=True),
    ),
)
