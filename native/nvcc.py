"""The CUDA compiler: found wherever it may be installed, asked what it is and where its parts are."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..errors import NotCheckedError, UsageError
from .compilers import Compiler, file_identity
from .processes import ProcessError, run

__all__ = ["WHEELS", "Nvcc", "find_nvcc", "nvcc_candidates"]

WHEELS = "nvidia-cuda-nvcc nvidia-cuda-runtime nvidia-cuda-cccl"
_INSTALL = f"`pip install {WHEELS}` brings all that is needed"
_OLDEST = (12, 8)  # compute_100 and compute_120, --compress-mode
_PROBE_LIMIT = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Nvcc:
    """A CUDA compiler with all that it needs.

    Attributes:
        path: the program, absolute.
        origin: how it was found, for people: `PATH`, `the PyPI wheels`.
        version: `13.0.88`.
        top: the folder of the toolkit.
        include: the folder of `cuda_runtime.h`.
        runtime: `libcudart_static.a`.
        archs: the compute capabilities that it compiles for, 80 for 8.0.
    """

    path: Path
    origin: str
    version: str
    top: Path
    include: Path
    runtime: Path
    archs: tuple[int, ...]

    @property
    def identity(self) -> str:
        """A text that differs wherever another compiler would be at work; it holds no path."""
        parts = (
            self.path,
            self.top / "bin" / "ptxas",
            self.top / "bin" / "cudafe++",
            self.top / "nvvm/bin/cicc",
        )
        return "\n".join((self.version, *map(file_identity, parts)))


def nvcc_candidates() -> Iterator[tuple[str, Path]]:
    """Where an nvcc may be, in the order in which they are taken: how it was found, and the program."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        home = os.environ.get(variable)
        if home:
            yield f"${variable}", Path(home).expanduser() / "bin" / "nvcc"
    on_path = shutil.which("nvcc")
    if on_path:
        yield "PATH", Path(on_path)
    for folder in _wheel_folders():
        for toolkit in sorted(folder.glob("cu[0-9]*"), reverse=True):
            yield "the PyPI wheels", toolkit / "bin" / "nvcc"
        yield "the PyPI wheels", folder / "cuda_nvcc" / "bin" / "nvcc"
    yield "the usual place", Path("/usr/local/cuda/bin/nvcc")


def find_nvcc(cxx: Compiler, choice: str | None = None) -> Nvcc:
    """The CUDA compiler to use: `choice`, else $CUDA_HOME or $CUDA_PATH, else PATH, the PyPI wheels, /usr/local/cuda.

    Args:
        cxx: the C++ compiler that works with it.
        choice: a name on PATH, the path of an nvcc, or the folder of a CUDA toolkit.

    Raises:
        UsageError: the one asked for is not there, or will not do.
        NotCheckedError: none was asked for, and there is none that will do.
    """
    if choice:
        found = shutil.which(os.path.expanduser(choice))
        path = Path(found) if found else Path(choice).expanduser() / "bin" / "nvcc"
        if not path.is_file():
            raise UsageError(f"there is no CUDA compiler `{choice}`: give the path of an nvcc. {_INSTALL}")
        return _probe(path.absolute(), "as asked for", cxx)
    reasons = []
    for origin, path in nvcc_candidates():
        if not path.is_file():
            if origin.startswith("$"):
                reasons.append(f"{path} (from {origin}) is not there")
            continue
        try:
            return _probe(path.absolute(), origin, cxx)
        except UsageError as error:
            reasons.append(str(error))
    told = (
        "; ".join(reasons) or "it is not in $CUDA_HOME, on PATH, in Python's packages, or in /usr/local/cuda"
    )
    raise NotCheckedError(f"no CUDA compiler (nvcc) will do: {told}. {_INSTALL}; or name one with --nvcc")


def _wheel_folders() -> list[Path]:
    """The folders `nvidia/` of installed packages; not one in the current folder, which may be anybody's."""
    spec = importlib.util.find_spec("nvidia")
    found = [Path(p) for p in spec.submodule_search_locations or ()] if spec is not None else []
    here = Path.cwd().resolve()
    return [folder for folder in found if folder.resolve().parent != here]


def _probe(path: Path, origin: str, cxx: Compiler) -> Nvcc:
    return _answered(path, origin, cxx.path, (file_identity(path), os.environ.get("NVCC_PREPEND_FLAGS", "")))


# `state` is an argument so that another program under the same path is asked anew.
@lru_cache
def _answered(path: Path, origin: str, cxx: Path, state: tuple[str, ...]) -> Nvcc:
    what = f"the CUDA compiler {path} ({origin})"
    version = re.search(r"^Cuda compilation tools, .*V([\d.]+)", _said(path, "--version"), re.MULTILINE)
    if version is None:
        raise UsageError(f"{what} does not answer as nvcc does. {_INSTALL}")
    if tuple(int(n) for n in version[1].split(".")[:2]) < _OLDEST:
        raise UsageError(
            f"{what} is version {version[1]}; {_OLDEST[0]}.{_OLDEST[1]} or newer is needed. {_INSTALL}"
        )
    plan = _said(path, "--dryrun", "-ccbin", str(cxx), "-x", "cu", "-c", "/dev/null", "-o", "/dev/null")
    top = _resolved(re.search(r"^#\$ TOP=(.*)$", plan, re.MULTILINE), path.parent.parent)
    includes = [Path(p.strip()) for p in re.findall(r'"-(?:I|isystem)(/[^"]+)"', plan)]
    include = _first([*includes, top / "include", Path("/usr/include")], "cuda_runtime.h")
    libraries = [Path(p) for p in re.findall(r'"-L(/[^"]+)"', plan)]
    machine = os.uname().machine
    libraries += [top / "lib64", top / "lib", top / f"targets/{machine}-linux/lib"]
    libraries += [Path(f"/usr/lib/{machine}-linux-gnu")]
    runtime = _first(libraries, "libcudart_static.a")
    nv = [top / "include" / "cccl", *includes, top / "include", Path("/usr/include")]
    missing = [
        name
        for name, found in (
            ("cuda_runtime.h (nvidia-cuda-runtime)", include),
            ("libcudart_static.a (nvidia-cuda-runtime)", runtime),
            ("nv/target (nvidia-cuda-cccl)", _first(nv, "nv/target")),
            ("cicc (nvidia-nvvm)", _first([top / "nvvm" / "bin", *_cicc_folder(plan)], "cicc")),
        )
        if found is None
    ]
    if missing or include is None or runtime is None:
        raise UsageError(f"{what} lacks {', '.join(missing)}. {_INSTALL}")
    archs = sorted(
        {int(n) for n in re.findall(r"^compute_(\d+)$", _said(path, "--list-gpu-arch"), re.MULTILINE)}
    )
    return Nvcc(path, origin, version[1], top, include, runtime / "libcudart_static.a", tuple(archs))


def _cicc_folder(plan: str) -> list[Path]:
    found = re.search(r"^#\$ CICC_PATH=(.*)$", plan, re.MULTILINE)
    return [Path(found[1])] if found else []


def _resolved(found: re.Match[str] | None, otherwise: Path) -> Path:
    return Path(os.path.normpath(found[1])) if found and os.path.isabs(found[1]) else otherwise


def _first(folders: list[Path], name: str) -> Path | None:
    return next((Path(os.path.normpath(f)) for f in folders if (f / name).exists()), None)


def _said(path: Path, *arguments: str) -> str:
    try:
        done = run([path, *arguments], limit=_PROBE_LIMIT)
    except ProcessError as error:
        raise UsageError(f"the CUDA compiler {path}: {error}. {_INSTALL}") from None
    return done.out + done.err
