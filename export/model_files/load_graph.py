"""Load what holds a graph, torch.export and TorchScript archives, after a last look at what they run."""

from __future__ import annotations

import logging
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from ...errors import ModelFileError
from ...symbolic.shown_text import printable, shown
from .checkpoint import listed
from .model_file import ModelFile
from .program_scan import ProgramScan, scan_program
from .script_scan import ScriptScan, scan_script

if TYPE_CHECKING:
    import torch

__all__ = ["load_program", "load_torchscript", "one_line"]

_Scan = TypeVar("_Scan", ProgramScan, ScriptScan)


def load_program(stream: BinaryIO, file: ModelFile, *, trust: bool) -> torch.export.ExportedProgram:
    """Load a .pt2 archive. Raises ModelFileError that lists every operator missing from this process."""
    import torch

    trust = trust and bool(file.unsafe_globals)
    missing = [name for name in _operators(stream, file, trust) if not _is_registered(name)]
    if missing:
        raise ModelFileError(_missing_operators(file, missing))
    # torch.export.load logs the reason of a failure and raises another error.
    with _restricted_unpickling(not trust), _logged("torch.export") as reasons:
        try:
            return torch.export.load(stream)
        except Exception as reason:
            cause = reasons[0] if reasons else reason
            raise ModelFileError(_unloadable(file, cause)) from reason


def _operators(stream: BinaryIO, file: ModelFile, trust: bool) -> tuple[str, ...]:
    """The operators of a program, from a second scan that reads the archive as torch will read it."""
    return _second_scan(scan_program, stream, file, trust).operators


def _second_scan(scan: Callable[..., _Scan], stream: BinaryIO, file: ModelFile, trust: bool) -> _Scan:
    """Two readers of one zip file can be made to see different members; so what torch's own sees is scanned too."""
    import torch

    stream.seek(0)
    try:
        reader = torch._C.PyTorchFileReader(stream)
        found = scan(reader.get_all_records(), reader.get_record)
    except Exception as reason:
        raise ModelFileError(f"{shown(file.path)}: the file is damaged: {one_line(reason)}") from reason
    stream.seek(0)
    if not trust and found.unsafe:
        raise ModelFileError(
            f"{shown(file.path)} is made to be read in two ways, one of which runs code: refused"
        )
    return found


def _is_registered(name: str) -> bool:
    import torch

    namespace, operator = name.split("::", 1)
    packet, overload = operator.rsplit(".", 1)
    found = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)
    return isinstance(found, torch._ops.OpOverload)


def load_torchscript(stream: BinaryIO, file: ModelFile, *, trust: bool) -> torch.nn.Module:
    """Load a TorchScript archive. Raises ModelFileError that lists every operator missing from this process.

    Its pickles are read by TorchScript's own reader, which imports no Python, and its code is interpreted.
    """
    import torch

    _second_scan(scan_script, stream, file, trust and bool(file.unsafe_globals))
    try:
        module: torch.nn.Module = torch.jit.load(stream, map_location="cpu")
    except Exception as reason:
        if "Unknown builtin op" in str(reason):
            # torch names the first one only.
            named = re.findall(r"Unknown builtin op: (\w+::\w+)", str(reason))
            missing = sorted({*named, *_unknown_in_code(stream)})
            raise ModelFileError(_missing_operators(file, missing)) from reason
        raise ModelFileError(_unloadable(file, reason)) from reason
    return module


def _unknown_in_code(stream: BinaryIO) -> Iterator[str]:
    import torch

    archive = zipfile.ZipFile(stream)
    for name in archive.namelist():
        if "/code/" in name and name.endswith(".py"):
            for namespace, operator in re.findall(rb"\bops\.(\w+)\.(\w+)\(", archive.read(name)):
                full = f"{namespace.decode()}::{operator.decode()}"
                if not torch._C._jit_get_schemas_for_operator(full):
                    yield full


def _missing_operators(file: ModelFile, names: list[str]) -> str:
    return (
        f"{shown(file.path)} uses operators that are not registered here: {listed(names)}. Give the library "
        "that defines them with --load-library LIB.so, or the Python module with --ops MODULE"
    )


def _unloadable(file: ModelFile, reason: BaseException) -> str:
    return f"{shown(file.path)} is {file.description}, and torch cannot load it: {one_line(reason)}"


@contextmanager
def _restricted_unpickling(on: bool) -> Iterator[None]:
    # A second lock behind the scan: torch.export.load falls back to the unrestricted unpickler by itself.
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    if on:
        os.environ[name] = "1"
    try:
        yield
    finally:
        if before is not None:
            os.environ[name] = before
        else:
            os.environ.pop(name, None)


@contextmanager
def _logged(name: str) -> Iterator[list[BaseException]]:
    """Collect the exceptions that a logger reports, and keep its messages off the terminal."""
    found: list[BaseException] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info and record.exc_info[1] is not None:
                found.append(record.exc_info[1])

    logger, handler = logging.getLogger(name), Collect()
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def one_line(reason: BaseException) -> str:
    """An exception's text on one line of at most 300 characters."""
    text = printable(" ".join(str(reason).split())) or type(reason).__name__
    return text if len(text) <= 300 else text[:297] + "..."
