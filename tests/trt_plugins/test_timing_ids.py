"""TensorRT takes what it timed before for a plugin of the same timing-cache id: another kernel must have another one."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest

from deployops.native.compilers import find_cxx
from deployops.native.nvcc import Nvcc
from deployops.trt_plugins.headers import Headers
from deployops.trt_plugins.library import PluginLibrary, compile_plugins

HERE = Path(__file__).resolve().parent

PACK = """
    import torch
    from torch import Tensor
    from deployops import operator

    def declare(name):
        @operator(f"trttimed::{name}", dtypes=("float32",))
        def op(x: Tensor) -> Tensor:
            return x * 2
        @op.fake
        def _(x):
            return torch.empty_like(x)
        @op.samples
        def _(draw):
            yield (draw(3),)

    for name in ("first", "second"):
        declare(name)
"""
KERNEL = """
    #pragma once
    #include "deployops/cuda/launch.h"
    #include "NAME.h"
    namespace deployops {
    namespace {  // nvcc makes names of it that are of this file alone
    __device__ float NAME_table[] = {NAME_factor, NAME_factor};
    template <class T>
    __global__ void NAME_kernel(const T* x, int64_t n, T* y) {
      for (int64_t i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] * NAME_table[i % 2];
    }
    }  // namespace
    template <class T>
    cudaError_t NAME(Stream stream, In<T> x, Out<T> y) {
      return launch(NAME_kernel<T>, 1, 128, 0, stream, x.data, x.numel(), y.data);
    }
    }  // namespace deployops
"""


@pytest.fixture(scope="module")
def program(nvcc: Nvcc, headers: Headers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("program") / "timing_ids"
    command = [str(find_cxx().path), "-std=c++17", "-Wno-deprecated-declarations", f"-I{nvcc.include}"]
    command += ["-isystem", str(headers.folder), str(HERE / "timing_ids.cpp"), "-o", str(made), "-ldl"]
    subprocess.run(command, check=True)
    return made


def test_a_changed_kernel_is_timed_anew_and_nothing_else(
    program: Path, nvcc: Nvcc, headers: Headers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pack.py").write_text(textwrap.dedent(PACK))
    for name in ("first", "second"):
        (tmp_path / f"{name}.cuh").write_text(textwrap.dedent(KERNEL).replace("NAME", name))
        (tmp_path / f"{name}.h").write_text(f"#pragma once\nconstexpr float {name}_factor = 2;\n")

    def compiled(cache: str) -> PluginLibrary:
        monkeypatch.setenv("DEPLOYOPS_CACHE", str(tmp_path / cache))
        return compile_plugins(
            [str(tmp_path / "pack.py")],
            archs=[80],
            out=tmp_path / "lib",
            nvcc=str(nvcc.path),
            tensorrt_root=headers.folder,
        )

    def ids() -> dict[str, str]:
        command = [str(program), str(tmp_path / "lib" / "libdeployops_trt.so")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return dict(line.split(": ", 1) for line in done.stdout.splitlines())

    first = compiled("cache").path.read_bytes()
    before = ids()
    assert before.keys() == {"First", "Second"}
    (tmp_path / "second.h").write_text("#pragma once\nconstexpr float second_factor = 3;\n")
    assert compiled("cache").compiled == 2  # the kernel, and the digests
    after = ids()
    assert after["First"] == before["First"]
    assert after["Second"] != before["Second"]
    fingerprint = "trttimed::Second 1 {}".format(before["Second"].split()[2])
    assert all(text.startswith(fingerprint) for text in (before["Second"], after["Second"]))
    # by its content alone: as it was, made anew where nothing is kept, it is the same
    (tmp_path / "second.h").write_text("#pragma once\nconstexpr float second_factor = 2;\n")
    again = compiled("another cache")
    assert again.compiled == 5
    assert again.path.read_bytes() == first
