"""What is known of an engine, and what of it holds on this machine. The engine is not deserialised, its plugins are not loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...native.file_contents import FILES
from ...symbolic.graph_inspection.file_kind import kind_of_file
from ...symbolic.shown_bytes import shown_bytes
from ...symbolic.shown_text import printable
from .engine import gpus
from .flavor import NAMES
from .host import platform_name, this_host
from .plan_header import SMALLEST, PlanHeader, read_plan_header, record_of_header
from .portability import EngineFile, Host, doubts, problems
from .profile_text import profile_text
from .record import EngineRecord, TensorRecord
from .sidecar import engine_file, read_sidecar
from .source_model import read_source_model

__all__ = ["Shown", "show_engine"]

_KEPT_SHOWN = 8
_LONGEST_LINE = 1000
_UNKNOWN = (
    "whether it is an engine at all: it has no sidecar, and does not begin as engines of TensorRT 10 and TensorRT-RTX 1.7 do. "
    "Build it with deployops engine build, which writes one"
)


@dataclass(frozen=True, slots=True)
class Shown:
    """An engine, looked at.

    Attributes:
        path: the file.
        record: from the sidecar; None where there is none.
        header: from the first bytes; None where they tell nothing.
        file: the size and sha256 that it has.
        host: this machine.
        problems: why it would not run here, with what to do.
        not_checked: what could not be told.
    """

    path: Path
    record: EngineRecord | None
    header: PlanHeader | None
    file: EngineFile
    host: Host
    problems: tuple[str, ...]
    not_checked: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """1 where a reason is known why the engine would not run here, else 0."""
        return 1 if self.problems else 0

    def to_dict(self) -> dict[str, Any]:
        """For `--json`; plain data."""
        return {
            "path": str(self.path),
            "bytes": self.file.bytes,
            "sha256": self.file.sha256,
            "sidecar": None if self.record is None else asdict(self.record),
            "header": None if self.header is None else asdict(self.header),
            "here": asdict(self.host),
            "problems": list(self.problems),
            "not_checked": list(self.not_checked),
        }

    def summary(self) -> str:
        """What the command line prints. Whatever a stranger's file says is on one line, without control characters."""
        lines = [f"{self.path}  ({shown_bytes(self.file.bytes)}, sha256 {self.file.sha256[:12]}…)"]
        if self.record is not None:
            lines += _of_record(self.record)
        elif self.header is not None:
            lines += [
                "  no sidecar beside it: only its first bytes were read",
                *_of_header(self.header),
            ]
        else:
            lines.append("  no sidecar beside it, and it does not begin as an engine of TensorRT does")
        lines.append(f"  here      {_here(self.host)}")
        lines += [f"  would not run here: {text}" for text in self.problems]
        lines += [f"  not checked: {text}" for text in self.not_checked]
        return "\n".join(_printable(line) for line in lines)


def show_engine(
    path: str | os.PathLike[str],
    *,
    model: str | os.PathLike[str] | None = None,
    plugins: Sequence[str | os.PathLike[str]] | None = None,
    host: Host | None = None,
) -> Shown:
    """What is known of an engine, and whether it would run on a machine.

    Args:
        path: the engine; its sidecar is looked for beside it.
        model: the ONNX file that it is to have been built from.
        plugins: the libraries that would be loaded with it.
        host: the machine; None: this one.

    Raises:
        UsageError: there is no such file. ModelFileError: its sidecar is damaged, or the model is.
    """
    path = Path(path)
    file = engine_file(path)
    record, header = read_sidecar(path), read_plan_header(path)
    if record is None and header is None:
        bare = host or Host(platform=platform_name())
        if file.bytes < SMALLEST:
            return Shown(path, None, None, file, bare, (_too_small(file),), ())
        kind = kind_of_file(path)
        if kind is not None and kind.kind not in ("unknown", "engine"):
            return Shown(path, None, None, file, bare, (f"it is no engine but {kind.description}",), ())
        return Shown(path, None, None, file, bare, (), (_UNKNOWN,))
    known = record
    if known is None:
        assert header is not None
        known = record_of_header(header, path, file, (host.platform if host else None) or platform_name())
    host = host or this_host(known.flavor)
    if record is None:
        assert header is not None
        return Shown(path, None, header, file, host, *_by_header(known, header, host, file))
    given = None if plugins is None else {Path(p).name: _digest(Path(p)) for p in plugins}
    digest = None if model is None else read_source_model(model, allow_modified=True).sha256
    return Shown(
        path,
        record,
        header,
        file,
        host,
        problems(record, host, engine=file, model=digest, plugins=given),
        doubts(record, host, engine=file, model=digest, plugins=given),
    )


def _by_header(
    known: EngineRecord, header: PlanHeader, host: Host, file: EngineFile
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of an engine without a sidecar: what its first bytes contradict, and the much that they do not say."""
    seen = Host(
        host.flavor, host.tensorrt, host.platform, host.arch if header.archs is not None else None, host.gpu
    )
    unknown = [
        "the model, the plugins, the profiles, the precision: only a sidecar says them (deployops engine build)"
    ]
    if header.archs is None:
        unknown.append("the GPU that it was built for: where the engine says it is not documented")
    if header.bytes is None:
        unknown.append("whether it is whole")
    if (
        header.flavor == "tensorrt"
        and host.tensorrt is not None
        and not host.tensorrt.startswith(header.tensorrt)
    ):
        unknown.append(
            "whether it was built as version compatible, which another version than its own asks for"
        )
    if host.tensorrt is None:
        unknown.append(
            f"the version: no {NAMES[header.flavor]} was found here; it was built with {header.tensorrt}"
        )
    return problems(known, seen, engine=file), tuple(unknown)


def _too_small(file: EngineFile) -> str:
    if file.bytes == 0:
        return "the engine is empty (0 bytes): copy it again, or build it again"
    return f"the engine has {file.bytes} bytes, and even its beginning has {SMALLEST}: copy it again, or build it again"


def _digest(path: Path) -> str:
    digest = FILES.digest(str(path))
    if not digest:
        raise UsageError(f"there is no plugin library {path}: give the .so that --plugins is to load")
    return digest


# --- lines -------------------------------------------------------------------------------------------------------


def _of_record(record: EngineRecord) -> Iterator[str]:
    yield f"  built by  {NAMES[record.flavor]} {record.tensorrt}{_runs_with(record)}, in {record.build_seconds:.1f} s"
    yield f"  from      {record.model}, sha256 {record.model_sha256[:12]}…"
    yield f"  for       {gpus(record)}, {record.platform}"
    yield f"  types     {record.precision}"
    for kept in record.kept_float32[:_KEPT_SHOWN]:
        yield f"  float32   {kept.operator} {kept.node}: {kept.reason}"
    if len(record.kept_float32) > _KEPT_SHOWN:
        yield f"            and {len(record.kept_float32) - _KEPT_SHOWN} more nodes stay float32: the sidecar names them"
    for name, tensors in (("input", record.inputs), ("output", record.outputs)):
        yield from (f"  {name:9} {_tensor(t)}" for t in tensors)
    yield from (f"  profile   {profile_text(p)}" for p in record.profiles)
    for plugin in record.plugins:
        where = "in the engine" if plugin.embedded else "to be loaded first"
        yield f"  plugins   {plugin.name} ({where}), sha256 {plugin.sha256[:12]}…"
    if record.in_place:
        yield "  in place  operators that write into an argument do so in the input's own memory"
    if record.workspace is not None:
        yield f"  workspace {shown_bytes(record.workspace)}"
    yield from (f"  warning   {text}" for text in record.warnings)


def _of_header(header: PlanHeader) -> Iterator[str]:
    yield f"  built by  {NAMES[header.flavor]} {header.tensorrt}"
    if header.portable:
        yield "  for       compute capability 8.0 and newer"
    elif header.archs:
        yield f"  for       {', '.join(header.archs)}"


def _runs_with(record: EngineRecord) -> str:
    return " (runs with newer versions too)" if record.version_compatible else ""


def _tensor(tensor: TensorRecord) -> str:
    return f"{tensor.name}: {tensor.dtype}[{', '.join(map(str, tensor.dims))}]"


def _here(host: Host) -> str:
    parts = [
        f"{NAMES[host.flavor]} {host.tensorrt}" if host.flavor and host.tensorrt else "no TensorRT for it",
        host.platform or "",
        f"{host.gpu} ({host.arch})" if host.arch else "no GPU",
    ]
    return ", ".join(part for part in parts if part)


def _printable(line: str) -> str:
    return printable(line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…")
