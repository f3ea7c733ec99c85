"""What nvcc makes of kernels, interpreted and judged: shipped ones, and user kernels that are right, wrong, or beyond it."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from deployops.cli.emulate import emulate as emulate_command
from deployops.errors import UsageError
from deployops.native.nvcc import Nvcc
from deployops.symbolic import registry
from deployops.symbolic.operator import Operator
from deployops.trt_plugins.ptx.check import PtxResult, interpret, render_ptx

SOURCE = """
    import torch
    from torch import Tensor
    from deployops import operator

    @operator("ptxuser{n}::twice", dtypes=("float32",))
    def twice(x: Tensor) -> Tensor:
        return x * 2
    @twice.fake
    def _(x):
        return torch.empty_like(x)
    @twice.samples
    def _(draw):
        yield (draw(5),)
        yield (draw(100),)
"""

KERNEL = """
    #pragma once
    #include "deployops/cuda/launch.h"
    namespace deployops {
    __global__ void twice_kernel(const float* x, float* y, int n) {
      const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
      if (i < n) y[i] = x[i] * 2.f;
    }
    template <class T>
    cudaError_t twice(Stream stream, In<T> x, Out<T> y) {
      const int n = int(x.numel());
      if (n == 0) return cudaSuccess;
      return launch(twice_kernel, (n + 31) / 32, 32, 0, stream, x.data, y.data, n);
    }
    }  // namespace deployops
"""
_made = 0


def checked(folder: Path, nvcc: Nvcc, kernel: str) -> PtxResult:
    global _made
    _made += 1
    (folder / "pack.py").write_text(textwrap.dedent(SOURCE).replace("{n}", str(_made)))
    (folder / "twice.cuh").write_text(textwrap.dedent(kernel))
    result, *_ = interpret(registry.load([str(folder / "pack.py")]), nvcc=str(nvcc.path))
    return result  # behind it comes what was never launched, after a fault in the first of two launches


def shipped(name: str) -> Operator:
    registry.load_builtin()
    return next(op for op in registry.all_operators() if op.name == f"deployops::{name}")


def test_shipped_kernels_compute_what_their_references_do(nvcc: Nvcc) -> None:
    """Elementwise, and along rows with shuffles, barriers and shared memory; all four dtypes."""
    found = interpret([shipped("relu"), shipped("rms_norm")], nvcc=str(nvcc.path))
    # the scalar form of a row's kernel too, which is for inputs that lie differently than outputs
    assert not [r for r in found if not r.dtype], render_ptx(found)
    results = found
    assert {(r.operator, r.dtype) for r in results} == {
        (f"deployops::{name}", dtype)
        for name in ("relu", "rms_norm")
        for dtype in ("float32", "float64", "float16", "bfloat16")
    }
    assert {r.status for r in results} == {"passed"}, render_ptx(results)
    for r in results:
        assert r.runs >= 30
        assert r.compared == r.runs
        assert r.largest < 16  # ULP, against the emulation, which rounds products and sums apart
    assert all(r.same == r.compared for r in results if r.operator.endswith("relu"))


def test_a_user_kernel(tmp_path: Path, nvcc: Nvcc) -> None:
    result = checked(tmp_path, nvcc, KERNEL)
    assert (result.status, result.runs, result.same) == ("passed", 2, 2)


def test_what_only_nvcc_takes_is_checked_too(tmp_path: Path, nvcc: Nvcc) -> None:
    kernel = KERNEL.replace(
        "return launch(twice_kernel, (n + 31) / 32, 32, 0, stream, x.data, y.data, n);",
        "twice_kernel<<<(n + 31) / 32, 32, 0, stream>>>(x.data, y.data, n); return cudaGetLastError();",
    )
    result = checked(tmp_path, nvcc, kernel)
    assert (result.status, result.runs, result.compared) == (
        "passed",
        2,
        0,
    )  # the emulation does not compile it


@pytest.mark.parametrize(
    "launch",
    ["return launch(twice_kernel, (n + 31) / 32, 32, 0, nullptr, x.data, y.data, n);",
     "twice_kernel<<<(n + 31) / 32, 32>>>(x.data, y.data, n); return cudaGetLastError();"],
)  # fmt: skip
def test_a_launch_on_the_default_stream_fails(launch: str, tmp_path: Path, nvcc: Nvcc) -> None:
    right = "return launch(twice_kernel, (n + 31) / 32, 32, 0, stream, x.data, y.data, n);"
    result = checked(tmp_path, nvcc, KERNEL.replace(right, launch))
    assert result.status == "failed"
    assert (
        "the kernel `twice_kernel` is launched on the default stream, not on the stream given"
        in result.detail
    )


def test_an_output_that_is_used_unwritten_fails(tmp_path: Path, nvcc: Nvcc) -> None:
    # fmaxf swallows NaN
    kernel = KERNEL.replace("y[i] = x[i] * 2.f", "y[i] = fmaxf(y[i], x[i] * 2.f)")
    assert checked(tmp_path, nvcc, kernel).status == "failed"


def test_a_wrong_formula_fails(tmp_path: Path, nvcc: Nvcc) -> None:
    assert checked(tmp_path, nvcc, KERNEL.replace("* 2.f", "* 2.5f")).status == "failed"


def test_an_access_beyond_a_tensor_is_at_its_line(tmp_path: Path, nvcc: Nvcc) -> None:
    result = checked(tmp_path, nvcc, KERNEL.replace("if (i < n) ", ""))
    assert result.status == "failed"
    line = 1 + next(k for k, text in enumerate(textwrap.dedent(KERNEL).split("\n")) if "y[i] =" in text)
    assert f"twice.cuh:{line}" in result.detail
    assert "thread (5, 0, 0) of block (0, 0, 0) reads 4 bytes beyond the end of `x`" in result.detail


@pytest.mark.parametrize(
    ("some", "who"),
    [("if (i % 32 < 16) __syncthreads();", 16), ("if (i >= 64) return;\n  __syncthreads();", 64),
     ("if (threadIdx.x >= 8) __syncwarp();", 0)],
)  # fmt: skip
def test_a_barrier_that_some_threads_leave_out(some: str, who: int, tmp_path: Path, nvcc: Nvcc) -> None:
    """At the kernel's end, where nobody waits for ever; told with kernel, thread and line."""
    kernel = KERNEL.replace("y[i] = x[i] * 2.f;", f"y[i] = x[i] * 2.f;\n  {some}")
    result = checked(tmp_path, nvcc, kernel.replace("(n + 31) / 32, 32", "(n + 95) / 96, 96"))
    assert result.status == "failed"
    told = f"the kernel `twice_kernel`: thread ({who}, 0, 0) of block (0, 0, 0) ends, and never comes to where others wait"
    assert told in result.detail
    assert "twice.cuh:" in result.detail


def test_a_launcher_that_reads_device_memory_is_found(tmp_path: Path, nvcc: Nvcc) -> None:
    result = checked(tmp_path, nvcc, KERNEL.replace("if (n == 0)", "if (n == 0 || x.data[0] == 7.f)"))
    assert result.status == "failed"
    assert "touches memory that is not its own" in result.detail


IN_TWO = """
    #pragma once
    #include "deployops/cuda/launch.h"
    namespace deployops {
    __global__ void first_kernel(const float* x, float* held, int n) {
      const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
      if (i < n) held[i] = x[i];
    }
    __global__ void second_kernel(const float* held, float* y, int n) {
      const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
      if (i < n) y[i] = held[i] + held[i];
    }
    template <class T>
    size_t twice_workspace(In<T> x, Out<T>) {
      return size_t(x.numel()) * sizeof(T);
    }
    template <class T>
    cudaError_t twice(Stream stream, In<T> x, Out<T> y) {
      const int n = int(x.numel());
      float* const held = static_cast<float*>(stream.workspace);
      const cudaError_t error = launch(first_kernel, (n + 31) / 32, 32, 0, stream, x.data, held, n);
      return error != cudaSuccess ? error : launch(second_kernel, (n + 31) / 32, 32, 0, stream, held, y.data, n);
    }
    }  // namespace deployops
"""


def test_a_kernel_with_a_workspace(tmp_path: Path, nvcc: Nvcc) -> None:
    result = checked(tmp_path, nvcc, IN_TWO)
    assert (result.status, result.runs, result.same) == ("passed", 2, 2), result.detail


def test_a_workspace_of_one_element_too_few_is_found(tmp_path: Path, nvcc: Nvcc) -> None:
    result = checked(tmp_path, nvcc, IN_TWO.replace("size_t(x.numel())", "size_t(x.numel() - 1)"))
    assert result.status == "failed"
    assert "writes 4 bytes beyond the end of the workspace" in result.detail


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('asm volatile("cp.async.wait_all;" ::: "memory");', "`cp.async.wait_all` is not interpreted"),
        ('if (n == 7) printf("%d", i);', "is not interpreted"),
        ("y[i] += clock();", "is not interpreted"),
    ],
)
def test_what_is_not_interpreted_is_not_checked(tmp_path: Path, nvcc: Nvcc, line: str, told: str) -> None:
    kernel = KERNEL.replace("if (i < n)", line + "\n  if (i < n)").replace(
        "#pragma once", "#pragma once\n#include <cstdio>"
    )
    result = checked(tmp_path, nvcc, kernel)
    assert (result.status, result.runs) == ("not checked", 0)
    assert told in result.detail


def test_a_launcher_that_asks_more_of_the_runtime_is_not_checked(tmp_path: Path, nvcc: Nvcc) -> None:
    kernel = KERNEL.replace("if (n == 0)", "cudaDeviceSynchronize(); if (n == 0)")
    result = checked(tmp_path, nvcc, kernel)
    assert result.status == "not checked"
    assert "its launcher calls cudaDeviceSynchronize, which the interpreter's runtime lacks" in result.detail


def test_the_command(tmp_path: Path, nvcc: Nvcc) -> None:
    (tmp_path / "pack.py").write_text(textwrap.dedent(SOURCE).replace("{n}", "command"))
    (tmp_path / "twice.cuh").write_text(textwrap.dedent(KERNEL))
    command = ["--ptx", "ptxusercommand::twice", "--ops", str(tmp_path / "pack.py"), "--nvcc", str(nvcc.path)]
    done = CliRunner().invoke(emulate_command, [*command, "--json"])
    assert done.exit_code == 0, done.output
    [told] = json.loads(done.output)
    assert (told["dtype"], told["status"], told["runs"]) == ("float32", "passed", 2)
    (tmp_path / "twice.cuh").write_text(textwrap.dedent(KERNEL).replace("2.f", "3.f"))
    assert CliRunner().invoke(emulate_command, command).exit_code == 1
    kernel = KERNEL.replace("if (i < n)", 'asm volatile("cp.async.wait_all;"); if (i < n)')
    (tmp_path / "twice.cuh").write_text(textwrap.dedent(kernel))
    assert CliRunner().invoke(emulate_command, command).exit_code == 3
    refused = CliRunner().invoke(emulate_command, ["--ptx", "--sanitize", "thread"])
    assert isinstance(refused.exception, UsageError)
