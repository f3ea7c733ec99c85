"""Indices that overflow with 2^31 elements, and with 2^32, are found; what cannot be said of such tensors is not said."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from deployops.cli.emulate import emulate as emulate_command
from deployops.symbolic import registry
from deployops.symbolic.checking.tally import CheckResult
from deployops.trt_plugins.emulation.build import build
from deployops.trt_plugins.emulation.calls import Manner
from deployops.trt_plugins.emulation.faults import KernelRefusal
from deployops.trt_plugins.emulation.large import Rows, emulate_large, enlarged
from deployops.trt_plugins.emulation.library import EmulatedLibrary
from deployops.trt_plugins.emulation.packing import packed

DECLARATION = """
    import torch
    from torch import Tensor
    from deployops import operator

    @operator("large{n}::turned", dtypes=("float16", "float32"))
    def turned(x: Tensor) -> Tensor:
        return {reference}
    @turned.fake
    def _(x):
        return torch.empty_like(x)
    @turned.samples
    def _(draw):
        yield (draw(5, 24),)
        yield (draw(3, 64),)
"""

# `@Index` of an element, `@Row` of a row's beginning, `@Step` in a loop
KERNEL = """
    #pragma once
    #include "deployops/cuda/launch.h"
    namespace deployops {
    template <class T>
    __global__ void turned_kernel(const T* x, @Count n, T* y) {
      @Index i = @Index(blockIdx.x) * blockDim.x + threadIdx.x;
      if (i < n) y[i] = narrow<T>(-widen(x[i]));
    }
    template <class T>
    cudaError_t turned(Stream stream, In<T> x, Out<T> y) {
      const int64_t n = x.numel();
      if (n == 0) return cudaSuccess;
      return launch(turned_kernel<T>, unsigned((n + 127) / 128), 128, 0, stream, x.data, n, y.data);
    }
    }  // namespace deployops
"""
ROWS = """
    #pragma once
    #include "deployops/cuda/launch.h"
    namespace deployops {
    template <class T>
    __global__ void turned_kernel(const T* x, int n, T* y) {
      const T* from = x + @Row(blockIdx.x) * n;
      for (int i = threadIdx.x; i < n; i += 32) y[int64_t(blockIdx.x) * n + i] = narrow<T>(-widen(from[i]));
    }
    template <class T>
    cudaError_t turned(Stream stream, In<T> x, Out<T> y) {
      return launch(turned_kernel<T>, unsigned(x.size(0)), 32, 0, stream, x.data, int(x.size(1)), y.data);
    }
    }  // namespace deployops
"""
AROUND = """
    #pragma once
    #include "deployops/cuda/launch.h"
    namespace deployops {
    template <class T>
    __global__ void turned_kernel(const T* x, int64_t n, T* y) {
      for (int64_t i = int64_t(blockIdx.x) * 128 + threadIdx.x; i < n; i += 8 * 128) y[i] = narrow<T>(-widen(x[i]));
    }
    template <class T>
    cudaError_t turned(Stream stream, In<T> x, Out<T> y) {
      return launch(turned_kernel<T>, 8, 128, 0, stream, x.data, x.numel(), y.data);
    }
    }  // namespace deployops
"""
# Beyond 2^30 elements with half as many blocks, of which one in the middle computes the end.
OTHERWISE = """
    #pragma once
    #include "deployops/cuda/launch.h"
    namespace deployops {
    template <class T>
    __global__ void turned_kernel(const T* x, int64_t n, int64_t more, T* y) {
      const int64_t block = (blockIdx.x + more) % gridDim.x;
      for (int64_t i = block * n / gridDim.x + threadIdx.x; i < (block + 1) * n / gridDim.x; i += 128) {
        y[i] = narrow<T>(-widen(x[i]));
      }
    }
    template <class T>
    cudaError_t turned(Stream stream, In<T> x, Out<T> y) {
      const int64_t n = x.numel(), blocks = (n + 127) / 128;
      if (n < 1 << 30) return launch(turned_kernel<T>, unsigned(blocks), 128, 0, stream, x.data, n, 0, y.data);
      return launch(turned_kernel<T>, unsigned(blocks / 2), 128, 0, stream, x.data, n, blocks / 4, y.data);
    }
    }  // namespace deployops
"""
_made = 0


def declared(folder: Path, kernel: str, reference: str = "-x", **types: str) -> Path:
    global _made
    _made += 1
    for name, text in types.items():
        assert f"@{name}" in kernel
        kernel = kernel.replace(f"@{name}", text)
    text = textwrap.dedent(DECLARATION).replace("{n}", str(_made)).replace("{reference}", reference)
    (folder / "pack.py").write_text(text)
    (folder / "turned.cuh").write_text(textwrap.dedent(kernel))
    return folder / "pack.py"


def checked(folder: Path, kernel: str, reference: str = "-x", **types: str) -> CheckResult:
    [result] = emulate_large(registry.load([str(declared(folder, kernel, reference, **types))]))
    return result


def test_indices_of_64_bits_pass(tmp_path: Path) -> None:
    result = checked(tmp_path, KERNEL, Index="int64_t", Count="int64_t")
    assert (result.status, result.detail) == ("passed", "4 runs")  # two samples, 2^31 and 2^32


def test_rows_that_begin_at_64_bits_pass(tmp_path: Path) -> None:
    result = checked(tmp_path, ROWS, Row="int64_t")
    assert (result.status, result.detail) == ("passed", "4 runs")


@pytest.mark.parametrize(
    ("index", "count", "where"),
    [
        ("int", "int64_t", r"2^31"),  # the index turns negative, and is below n
        ("int", "int", r"2^31"),  # n is negative: nobody writes
        ("unsigned", "int64_t", r"2^32"),
        ("unsigned", "unsigned", r"2^32"),
    ],
)
def test_an_index_that_overflows(index: str, count: str, where: str, tmp_path: Path) -> None:
    result = checked(tmp_path, KERNEL, Index=index, Count=count)
    assert result.status == "failed"
    assert f"sample 0 in float16 (x: [5,24]), behind zeros up to {where} elements" in result.detail
    assert "an index that overflows?" in result.detail
    assert ("2^31" in result.detail) == (index == "int")


def test_an_index_that_turns_negative_is_told_with_its_line(tmp_path: Path) -> None:
    result = checked(tmp_path, KERNEL, Index="int", Count="int64_t")
    assert "bytes before the beginning of `x` at" in result.detail
    assert "turned.cuh:8" in result.detail


@pytest.mark.parametrize(("row", "where"), [("int", "2^31"), ("unsigned", "2^32")])
def test_a_product_that_overflows(row: str, where: str, tmp_path: Path) -> None:
    result = checked(tmp_path, ROWS, Row=row)
    assert result.status == "failed"
    assert f"behind zeros up to {where} elements" in result.detail


def test_blocks_that_go_round_are_not_checked(tmp_path: Path) -> None:
    result = checked(tmp_path, AROUND)
    assert result.status == "not checked"
    assert "it launches blocks that go round the tensors" in result.detail


def test_another_way_for_huge_tensors_is_not_checked(tmp_path: Path) -> None:
    """What the blocks that are run leave out is no fault."""
    result = checked(tmp_path, OTHERWISE)
    assert result.status == "not checked"
    assert result.detail == "4 × it launches another number of blocks for each element than with 2^29"


def test_rows_that_depend_on_each_other_are_not_checked(tmp_path: Path) -> None:
    result = checked(tmp_path, KERNEL, "-x + 0 * x.mean() - x.std() * 0.5", Index="int64_t", Count="int64_t")
    assert result.status == "not checked"
    assert "no rows that do not depend on each other" in result.detail


def test_it_takes_little_memory(tmp_path: Path) -> None:
    import torch

    [op] = registry.load([str(declared(tmp_path, KERNEL, Index="int64_t", Count="int64_t"))])
    x = torch.randn(5, 24)
    with EmulatedLibrary(build([op], large=True), [op]) as library:
        call, _ = packed(op, library.number(op), (x,), {}, Manner(), [x])
        bigger = enlarged(call, Rows(5, 1), 1 << 32)
        assert bigger.inputs[0].size > 4 << 32  # bytes
        reply = library.answer(op, bigger)
        assert reply.outputs[0] == (-x).numpy().tobytes()
        status = Path(f"/proc/{library.pid}/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))  # KiB
    assert peak < 1 << 19


def test_a_machine_that_gives_no_memory(tmp_path: Path) -> None:
    import torch

    [op] = registry.load([str(declared(tmp_path, KERNEL, Index="int64_t", Count="int64_t"))])
    x = torch.randn(5, 24)
    with EmulatedLibrary(build([op], large=True), [op]) as library:
        call, _ = packed(op, library.number(op), (x,), {}, Manner(), [x])
        with pytest.raises(KernelRefusal, match=r"no memory for `x`: \d+ bytes"):
            library.answer(op, enlarged(call, Rows(5, 1), 1 << 58))


def test_the_command(tmp_path: Path) -> None:
    declared(tmp_path, KERNEL, Index="int", Count="int64_t")
    ops = ["--ops", str(tmp_path / "pack.py"), "--large"]
    assert CliRunner().invoke(emulate_command, ops).exit_code == 1
    both = CliRunner().invoke(emulate_command, [*ops, "--sanitize", "address"])
    assert "--large is a check of its own" in str(both.exception)
