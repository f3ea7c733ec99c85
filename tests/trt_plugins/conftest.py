"""What the tests of plugins share: a CUDA compiler, TensorRT's headers, compiled packs, and TensorRTs to load them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deployops.errors import NotCheckedError, UsageError
from deployops.native.compilers import find_cxx
from deployops.native.nvcc import WHEELS, Nvcc, find_nvcc
from deployops.symbolic import registry
from deployops.symbolic.operator import Operator
from deployops.trt_plugins.headers import Headers, fetch_headers, find_headers
from deployops.trt_plugins.library import PluginLibrary, compile_plugins

from ..packages import TENSORRT_RTX, installed, installed_tensorrt_rtx, unavailable

HERE = Path(__file__).resolve().parent
PACK = HERE / "pack" / "pack.py"
TENSORRT_LEAN = "tensorrt-lean-cu13==11.4.0.106"


@pytest.fixture(scope="session")
def wheels() -> Path:
    """A folder with the CUDA compiler from PyPI, and nothing else."""
    return installed("cuda-wheels", WHEELS.split())


@pytest.fixture(scope="session")
def nvcc() -> Nvcc:
    """The CUDA compiler of this machine, or the one from PyPI."""
    try:
        return find_nvcc(find_cxx())
    except NotCheckedError:
        folder = installed("cuda-wheels", WHEELS.split())
        return find_nvcc(find_cxx(), str(next(folder.glob("nvidia/cu*/bin/nvcc"))))


@pytest.fixture(scope="session")
def headers() -> Headers:
    """TensorRT's headers, fetched where they are not there."""
    try:
        return find_headers()
    except NotCheckedError:
        try:
            return fetch_headers()
        except UsageError as error:
            unavailable(str(error))


@pytest.fixture(scope="session")
def pack() -> dict[str, Operator]:
    """The operators of the pack, by their short names."""
    return {op.name.partition("::")[2]: op for op in registry.load([str(PACK)])}


@pytest.fixture(scope="session")
def pack_library(
    pack: dict[str, Operator], nvcc: Nvcc, headers: Headers, tmp_path_factory: pytest.TempPathFactory
) -> PluginLibrary:
    """Their library, for one architecture."""
    return compile_plugins(
        list(pack.values()),
        archs=[80],
        out=tmp_path_factory.mktemp("plugins"),
        nvcc=str(nvcc.path),
        tensorrt_root=headers.folder,
    )


Run = Callable[[str, dict[str, Any]], dict[str, Any]]


@pytest.fixture(scope="session")
def tensorrt(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """``tensorrt("tensorrt_rtx", job)``: what `run_tensorrt.py` finds, in a process with that package from PyPI."""

    def shim(folder: Path) -> list[str]:
        # Importing a plugin makes the parser of TensorRT-RTX load `libtensorrt_rtx.so`; the package has only `….so.1`.
        [real] = (folder / "tensorrt_rtx_libs").glob("libtensorrt_rtx.so.*")
        made = tmp_path_factory.mktemp("shim") / "libtensorrt_rtx.so"
        flags = [f"-Wl,-soname,{made.name}", "-Wl,--no-as-needed", f"-Wl,-rpath,{real.parent}"]
        command = [str(find_cxx().path), "-shared", *flags, str(real), "-o", str(made)]
        subprocess.run(command, check=True)
        return [str(made)]

    def run(module: str, job: dict[str, Any]) -> dict[str, Any]:
        package = {"tensorrt_rtx": TENSORRT_RTX, "tensorrt_lean": TENSORRT_LEAN}[module]
        folder = installed(package.replace("==", "-"), [package])
        work = tmp_path_factory.mktemp("tensorrt")
        preload = shim(folder) if module == "tensorrt_rtx" else []
        (work / "job.json").write_text(json.dumps({"module": module, "preload": preload, **job}))
        command = [
            sys.executable,
            str(HERE / "run_tensorrt.py"),
            str(work / "job.json"),
            str(work / "result.json"),
        ]
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        result: dict[str, Any] = json.loads((work / "result.json").read_text())
        return result | {"stderr": done.stderr}

    return run


@pytest.fixture(scope="session")
def tensorrt_rtx() -> Path:
    """A folder with TensorRT-RTX from PyPI."""
    return installed_tensorrt_rtx()
