"""The emulation on another processor (aarch64, in qemu), and with the switching of stacks that any processor has."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from deployops.native.cuda_signature import cuda_entries, cuda_entries_symbol
from deployops.native.kernel_files import INCLUDE
from deployops.symbolic.operator import Operator
from deployops.trt_plugins import emulation

CPP = Path(emulation.__file__).parent / "cpp"

# Runs rms_norm on rows of 1 … n, in three ways, and prints the results; then what a divergent barrier says.
MAIN = """
#include <cstdio>
#include <vector>
#include "interface.h"
using namespace deployops;
extern "C" const CudaKernels* {symbol}();
namespace deployops::emulation {{
const CudaKernels* operator_kernels(size_t number) {{ return number == 0 ? {symbol}() : nullptr; }}
}}
extern "C" int deployops_emulated_run(size_t, size_t, int, uint32_t, int, OperatorCall*, char*, size_t);

__global__ void divergent() {{
  if (threadIdx.x < 7) __syncthreads();
}}

int main() {{
  constexpr int64_t rows = 40, n = 200;
  std::vector<float> x(rows * n), y(rows * n);
  for (int64_t i = 0; i < rows * n; ++i) x[size_t(i)] = float(i % n + 1);
  const int64_t sizes[] = {{rows, n}};
  char text[4096];
  for (int way = 0; way < 3; ++way) {{
    TensorRef inputs[2], output;
    inputs[0] = {{x.data(), sizes, 2, 1}};
    output = {{y.data(), sizes, 2, 1}};
    AttributeRef eps;
    eps.present = true;
    eps.f = 1e-6;
    OperatorCall call{{}};
    call.inputs = inputs;
    call.input_count = 1;
    call.attributes = &eps;
    call.outputs = &output;
    if (deployops_emulated_run(0, {row}, way, uint32_t(way), 2, &call, text, sizeof text)) {{
      std::printf("%s\\n", text);
      return 1;
    }}
    for (float v : y) std::printf("%.9g ", double(v));
    std::printf("\\n");
  }}
  if (launch(divergent, dim3(1), dim3(64), 0, nullptr) == cudaSuccess) return 2;
  return 0;
}}
"""


def compile_and_run(
    folder: Path, op: Operator, compiler: list[str], runner: list[str]
) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    from deployops.native.kernel_files import find_kernel
    from deployops.native.signature import kernel_rows

    kernel = find_kernel(op, ".cuh")
    (folder / "entries.cpp").write_text(cuda_entries(op, kernel.name))
    row = [dict(r.inputs)["x"] for r in kernel_rows(op)].index("float32")
    (folder / "main.cpp").write_text(MAIN.format(symbol=cuda_entries_symbol(op), row=row))
    sources = [
        str(CPP / f"{n}.cpp")
        for n in ("context", "memory", "block", "meetings", "races", "device", "interface")
    ]
    program = folder / "program"
    folders = [
        f"-I{CPP / 'include'}",
        "-iquote",
        str(INCLUDE),
        "-iquote",
        str(kernel.parent),
        "-iquote",
        str(CPP),
    ]
    command = [
        *compiler, "-std=c++17", "-O2", "-pthread", "-Wno-unknown-pragmas", *folders,
        str(folder / "entries.cpp"), str(folder / "main.cpp"), *sources, "-o", str(program),
    ]  # fmt: skip
    subprocess.run(command, check=True)
    done = subprocess.run([*runner, str(program)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    return [np.array(line.split(), float) for line in done.stdout.splitlines()]


def check(results: list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]) -> None:
    x = np.arange(1, 201, dtype=np.float64)
    expected = np.tile(x / np.sqrt((x * x).mean() + 1e-6), 40)
    assert len(results) == 3
    for got in results:
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_aarch64(shipped: dict[str, Operator], tmp_path: Path) -> None:
    compiler, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64-static")
    if compiler is None or emulator is None:
        pytest.skip("not checked: there is no cross compiler for aarch64, or no qemu-aarch64-static")
    # Not -static: the C library's variables of each thread would lie among those of the kernels.
    asked = subprocess.run(
        [compiler, "-print-file-name=libc.so.6"], capture_output=True, text=True, check=True
    )
    root = Path(asked.stdout.strip()).resolve().parent.parent
    check(compile_and_run(tmp_path, shipped["rms_norm"], [compiler], [emulator, "-L", str(root)]))


def test_stacks_switched_by_ucontext(shipped: dict[str, Operator], tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("not checked: there is no g++")
    flags = [compiler, "-DDEPLOYOPS_EMULATION_UCONTEXT"]
    check(compile_and_run(tmp_path, shipped["rms_norm"], flags, []))
