"""PTX and cubins of single operators: for those who launch kernels themselves, as TensorRT's `tensorrt.plugin`, cuda-python."""

from __future__ import annotations

import functools
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import NotCheckedError, UsageError
from ..native.cache_store import safe_name
from ..native.cuda_library import CudaTools, cuda_tools, expect_budget
from ..native.cuda_signature import cuda_entries, cuda_signature
from ..native.diagnostics import CompileError, explained, warnings_in
from ..native.file_contents import FILES
from ..native.jobs import run_all
from ..native.kernel_files import INCLUDE, find_kernel
from ..native.linking import writing_library
from ..native.nvcc_objects import CudaCache, CudaJob
from ..native.nvcc_output import KernelResources, kernel_resources, readable_names
from ..native.output_files import replace_file
from .device_manifest import MANIFEST, expect_own_files, write_device_manifest
from .ptx.faults import NotInterpreted
from .ptx.source import Function, read_module

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["MANIFEST", "DeviceCode", "compile_device_code"]

DEFAULT_ARCHS = (80,)
Target = Literal["ptx", "cubin"]
Progress = Callable[[int, int, str], None]
# As in the plugins: no --use_fast_math.
_DEVICE_FLAGS = ("-std=c++17", "-O3")


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """What was written.

    Attributes:
        files: the PTX files, or the cubins.
        manifest: says of every kernel its names, parameters, registers, spills, shared memory and occupancy.
        kernels: what each needs on each architecture.
        compiled: how many files had to be compiled; the others were in the cache.
        warnings: what the compiler said of the user's kernels.
    """

    files: tuple[Path, ...]
    manifest: Path
    kernels: tuple[KernelResources, ...]
    compiled: int
    seconds: float
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "files": [str(f) for f in self.files],
            "manifest": str(self.manifest),
            "kernels": len(self.kernels),
            "compiled": self.compiled,
            "seconds": round(self.seconds, 3),
            "over_budget": [
                {"kernel": k.name, "arch": k.arch, "reason": k.over_budget}
                for k in self.kernels
                if k.over_budget
            ],
            "warnings": list(self.warnings),
        }

    def summary(self) -> str:
        """For people."""
        done = f"{self.compiled} compiled" if self.compiled else "nothing had changed"
        over = sum(bool(k.over_budget) for k in self.kernels)
        spilled = (
            [f"{over} of {len(self.kernels)} kernels spill registers or use local memory"] if over else []
        )
        names = "\n".join(map(str, self.files))
        return "\n".join(
            [
                *self.warnings,
                *spilled,
                names,
                f"{self.manifest}: {len(self.kernels)} kernels, {self.seconds:.1f} s ({done})",
            ]
        )


@dataclass(frozen=True, slots=True)
class _Unit:
    """An operator on its way: its source, and where its kernel is."""

    op: Operator
    source: str
    file: Path


def compile_device_code(
    ops: Sequence[Operator | str] | None = None,
    *,
    target: Target,
    archs: Sequence[int] = DEFAULT_ARCHS,
    out: str | Path | None = None,
    nvcc: str | None = None,
    cxx: str | None = None,
    budget: bool = False,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> DeviceCode:
    """Compile the CUDA kernels of operators to PTX or cubins, with a manifest: `out/kernels.json`.

    What earlier runs wrote into the folder stays in the manifest where it is as they wrote it.

    For each operator `NAME.ptx`, for the oldest of `archs`, or `NAME.sm_80.cubin` for each of them. The kernels are those
    that the operator's launcher starts, for all its dtypes; who starts them otherwise computes grid and block himself.

    Args:
        ops: declared operators, or modules and files that declare them (they are run), one of them as FILE::NAME;
            None: those that come with deployops.
        target: "ptx" or "cubin".
        archs: compute capabilities, 80 for 8.0. With "ptx", what the manifest says of registers is for these.
        out: the folder to write to; None: `lib`.
        nvcc, cxx: the compilers, see `find_nvcc` and `find_cxx`.
        budget: refuse kernels that spill registers or use local memory.
        jobs: compilers at once; None: one per core.
        progress: called as files are done: how many, of how many, which.

    Raises:
        UsageError: a wrong argument, no such operator, no kernel file.
        NotCheckedError: no compiler.
        DeclarationError: an operator that no launcher can be.
        CompileError: the compiler's errors, at the lines of the kernel; with `budget`, the kernels beyond it.
    """
    start = time.perf_counter()
    if target not in ("ptx", "cubin"):
        raise UsageError(f"target = {target!r} is not known; known are ptx, cubin")
    folder = Path("lib" if out is None else out)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; `out` is the folder to write to")
    tools = cuda_tools(cxx, nvcc, archs)
    chosen = tools.archs
    units = [_unit(op) for op in _operators(ops)]
    cache = CudaCache()
    made: dict[tuple[str, str, int], Path] = {}
    wanted: list[tuple[_Unit, Literal["cubin", "ptx"], int]] = [(u, "ptx", min(chosen)) for u in units]
    wanted += [(u, "cubin", arch) for u in units for arch in chosen]
    job = functools.partial(_job, tools)
    tasks = [
        (f"{u.op.name}, {_label(kind, arch)}", functools.partial(_compile, cache, job(u, kind, arch), u))
        for u, kind, arch in wanted
    ]
    for (u, kind, arch), path in zip(wanted, run_all(tasks, jobs, progress), strict=True):
        made[u.op.name, kind, arch] = path
    said = {(u.op.name, arch): cache.outputs[_name(u, "cubin", arch)].text for u in units for arch in chosen}
    resources = {
        u.op.name: [k for arch in chosen for k in kernel_resources(said[u.op.name, arch])] for u in units
    }
    if budget:
        expect_budget(resources)
    entries = [_entry(u, target, tools, made, resources[u.op.name]) for u in units]
    with writing_library(folder):
        files = _write(folder, target, chosen, units, made)
        manifest = write_device_manifest(folder, entries)
    names = {_name(u, kind, arch) for u, kind, arch in wanted}
    warnings: dict[str, None] = {}
    for u in units:
        for arch in chosen:
            warnings |= dict.fromkeys(
                warnings_in(said[u.op.name, arch], [u.file.parent], generated=u.source, kernel=u.op.name)
            )
    return DeviceCode(
        files,
        manifest,
        tuple(k for name in sorted(resources) for k in resources[name]),
        sum(output.compiled for name, output in cache.outputs.items() if name in names),
        time.perf_counter() - start,
        tuple(warnings),
    )


def _operators(ops: Sequence[Operator | str] | None) -> list[Operator]:
    """By name; each once."""
    from ..symbolic import registry

    registry.load_builtin()
    if ops is None:
        found = [op for op in registry.all_operators() if op.name.startswith("deployops::")]
    else:
        found = [op for given in ops for op in ([given] if not isinstance(given, str) else _named(given))]
    if not found:
        raise UsageError(
            f"{', '.join(o for o in ops or () if isinstance(o, str)) or 'ops'} declares no operator"
        )
    return [op for _, op in sorted({op.name: op for op in found}.items())]


def _named(place: str) -> list[Operator]:
    """`acme.py`, `acme.py::swish`, `acme.ops::acme::swish`, or the name of an operator that is declared already."""
    from ..symbolic import registry

    known = [op for op in registry.all_operators() if op.name == place]
    if known:
        return known
    return registry.load([place])


def _unit(op: Operator) -> _Unit:
    from ..native.data_sizes import expect_bounds
    from ..native.signature import check_compilable

    check_compilable(op)
    expect_bounds(op)
    file = find_kernel(op, ".cuh")
    return _Unit(op, cuda_entries(op, file.name), file)


def _label(kind: str, arch: int) -> str:
    return f"PTX for compute_{arch}" if kind == "ptx" else f"cubin for sm_{arch}"


def _name(unit: _Unit, kind: str, arch: int) -> str:
    return f"{unit.op.name} ({_label(kind, arch)})"


def _job(tools: CudaTools, unit: _Unit, kind: Literal["cubin", "ptx"], arch: int) -> CudaJob:
    flags = (f"-arch=compute_{arch}",) if kind == "ptx" else (f"-arch=sm_{arch}", "-Xptxas=-v")
    return CudaJob(
        name=_name(unit, kind, arch),
        source=unit.source,
        compiler=tools.cxx,
        flags=(),
        include_dirs=(tools.nvcc.include, INCLUDE, unit.file.parent),
        nvcc=tools.nvcc,
        device_flags=(*_DEVICE_FLAGS, *flags),
        output=kind,
    )


def _compile(cache: CudaCache, job: CudaJob, unit: _Unit) -> Path:
    try:
        return cache.compile(job)
    except CompileError as e:
        raise explained(
            e,
            [unit.file.parent],
            generated=unit.source,
            kernel=unit.op.name,
            signature=cuda_signature(unit.op),
        ) from None


def _file_name(unit: _Unit, target: Target, arch: int) -> str:
    name = safe_name(unit.op.name.partition("::")[2])
    return f"{name}.ptx" if target == "ptx" else f"{name}.sm_{arch}.cubin"


def _write(
    folder: Path,
    target: Target,
    archs: Sequence[int],
    units: Sequence[_Unit],
    made: dict[tuple[str, str, int], Path],
) -> tuple[Path, ...]:
    names = [_file_name(u, target, archs[0]) for u in units]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise UsageError(
            f"two operators would both be written to {', '.join(twice)}: compile them into folders of their own"
        )
    written = {
        _file_name(u, target, arch): (u.op.name, arch)
        for u in units
        for arch in (archs if target == "cubin" else (min(archs),))
    }
    expect_own_files(folder, {name: operator for name, (operator, _) in written.items()})
    for name, (operator, arch) in written.items():
        replace_file(folder / name, functools.partial(shutil.copyfile, made[operator, target, arch]))
    return tuple(folder / name for name in written)


def _entry(
    unit: _Unit,
    target: Target,
    tools: CudaTools,
    made: dict[tuple[str, str, int], Path],
    resources: Sequence[KernelResources],
) -> dict[str, Any]:
    """What the manifest says of an operator."""
    archs = tools.archs
    ptx = made[unit.op.name, "ptx", min(archs)]
    try:
        kernels = read_module(ptx.read_text(encoding="utf-8")).kernels
    except NotInterpreted as e:
        raise NotCheckedError(
            f"{unit.op.name}: nvcc wrote PTX whose parameters cannot be read: {e.what}"
        ) from None
    readable = readable_names(tuple(kernels))
    written = {str(a): _file_name(unit, target, a) for a in (archs if target == "cubin" else (min(archs),))}
    return {
        "name": unit.op.name,
        "target": target,
        "nvcc": tools.nvcc.version,
        "archs": list(archs),
        "kernel": {"file": unit.file.name, "sha256": FILES.digest(str(unit.file))},
        "files": {
            arch: {"file": name, "sha256": FILES.digest(str(made[unit.op.name, target, int(arch)]))}
            for arch, name in written.items()
        },
        "kernels": [
            {
                "name": name,
                "readable": readable[name],
                "max_threads": function.most_threads,
                "parameters": _parameters(function, readable[name]),
                "resources": [
                    {k: v for k, v in r.to_dict().items() if k not in ("name", "symbol", "max_threads")}
                    for r in resources
                    if r.symbol == name
                ],
            }
            for name, function in kernels.items()
        ],
    }


def _parameters(function: Function, readable: str) -> list[dict[str, Any]]:
    """In their order. `type`: as C++ has it, where the name could be read; `offset`, `size`, `align`: bytes."""
    types = _argument_types(readable)
    known = len(types) == len(function.parameters)
    return [
        {
            "type": types[k] if known else None,
            "ptx_type": p.kind,
            "offset": p.offset,
            "size": p.size,
            "align": p.align,
        }
        for k, p in enumerate(function.parameters)
    ]


def _argument_types(readable: str) -> list[str]:
    """`float const*`, `long` of `void kernel<float>(float const*, long)`."""
    m = re.search(r"\(((?:[^()]|\([^()]*\))*)\)$", readable)
    if m is None:
        return []
    types, depth, begin = [], 0, 0
    for k, c in enumerate(m[1] + ","):
        depth += c in "<([{"
        depth -= c in ">)]}"
        if c == "," and depth == 0:
            types.append(m[1][begin:k].strip())
            begin = k + 1
    return [t for t in types if t]
