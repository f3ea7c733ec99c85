"""Kernels as users write them: in their own folder, with the plain words of CUDA; and what they are told when one is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from deployops.errors import UsageError
from deployops.symbolic import registry
from deployops.symbolic.operator import Operator
from deployops.trt_plugins.emulation.build import Sanitizer, build
from deployops.trt_plugins.emulation.check import emulate
from deployops.trt_plugins.emulation.faults import KernelFault, KernelRefusal
from deployops.trt_plugins.emulation.library import EmulatedLibrary, emulated_library

Declare = Callable[..., Operator]

UNARY = """
@operator("user::{name}", dtypes={dtypes})
def {name}(x: Tensor) -> Tensor:
    return x * 2

@{name}.fake
def _(x):
    return torch.empty_like(x)

@{name}.samples
def _(draw):
    yield (draw(5, 40),)
"""


@pytest.fixture
def declare(tmp_path: Path) -> Iterator[Declare]:
    """``declare(name, kernel, declaration)``: an operator with its kernel beside it."""
    made: list[Operator] = []

    def write(
        name: str, kernel: str | None, declaration: str | None = None, dtypes: str = '("float32",)'
    ) -> Operator:
        file = tmp_path / f"{name}_ops.py"
        text = declaration or UNARY.format(name=name, dtypes=dtypes)
        file.write_text(f"import torch\nfrom torch import Tensor\nfrom deployops import operator\n{text}")
        if kernel is not None:
            (tmp_path / f"{name}.cuh").write_text(kernel)
        (op,) = registry.load([str(file)])
        made.append(op)
        return op

    yield write
    for op in made:
        registry.remove(op)


def status(op: Operator) -> tuple[str, str]:
    (result,) = emulate([op])
    return result.status, result.detail


PLAIN = """\
#pragma once
#include <cuda_fp16.h>
#include "deployops/cuda/launch.h"

namespace deployops {

template <class T>
__global__ void doubled_kernel(const T* __restrict__ x, T* __restrict__ y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if constexpr (std::is_same_v<T, __half>) {
    y[i] = __hadd(x[i], x[i]);
  } else {
    y[i] = x[i] + x[i];
  }
}

template <class T>
cudaError_t doubled(cudaStream_t stream, In<T> x, Out<T> y) {
  const int n = int(x.numel());
  return launch(doubled_kernel<T>, (n + 127) / 128, 128, 0, stream, x.data, y.data, n);
}

}  // namespace deployops
"""


def test_a_kernel_on_a_plain_stream(declare: Declare) -> None:
    op = declare("doubled", PLAIN, dtypes='("float32", "float16")')
    assert status(op)[0] == "passed", status(op)
    with emulated_library([op]) as library:
        assert library.tactics(op) == 1
        x = torch.arange(300, dtype=torch.float16)
        (y,) = library.run("user::doubled", (x,))
        assert torch.equal(y, x + x)


SCALED = """\
#pragma once
#include "deployops/cuda/launch.h"
namespace deployops {
template <class T>
__global__ void scaled_kernel(const T* x, T* y, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) y[i] = narrow<T>(widen(x[i]) * wide_t<T>(FACTOR));
}
template <class T>
cudaError_t scaled(cudaStream_t stream, In<T> x, Out<T> y) {
  return launch(scaled_kernel<T>, 1, 64, 0, stream, x.data, y.data, x.numel());
}
}  // namespace deployops
"""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_one_percent_of_a_half_is_a_fault(declare: Declare, dtype: str) -> None:
    """2.02 is no 2: more than one unit in the last place of either half. The reference multiplies by 2, exactly."""
    outcome, detail = status(declare("scaled", SCALED.replace("FACTOR", "2.02"), dtypes=f'("{dtype}",)'))
    assert outcome == "failed"
    assert "ULP of that number" in detail
    right = declare(
        "scaled_right",
        SCALED.replace("FACTOR", "2.0").replace("scaled", "scaled_right"),
        dtypes=f'("{dtype}",)',
    )
    assert status(right)[0] == "passed"


TWO_WAYS = """\
#pragma once
#include "deployops/cuda/launch.h"
namespace deployops {
constexpr int twofold_tactics = 2;
__global__ void twofold_kernel(const float* x, float* y, int64_t n, float factor) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] * factor;
}
inline cudaError_t twofold(Stream stream, In<float> x, Out<float> y) {
  return launch(twofold_kernel, 1, 64, 0, stream, x.data, y.data, x.numel(), stream.tactic == 1 ? 2.5f : 2.0f);
}
}  // namespace deployops
"""


def test_every_tactic_is_checked(declare: Declare) -> None:
    outcome, detail = status(declare("twofold", TWO_WAYS))
    assert outcome == "failed"
    assert "tactic 1" in detail
    assert "tactic 0" not in detail


GATHER = """
@operator("user::add_lists", dtypes=("float32",))
def add_lists(total: Tensor, parts: list[Tensor], weights: list[float], name: str, shift: float | None = None) -> Tensor:
    y = total + sum(w * p for w, p in zip(weights, parts)) + (0.0 if shift is None else shift)
    return y if name == "plus" else -y

@add_lists.fake
def _(total, parts, weights, name, shift=None):
    return torch.empty_like(total)

@add_lists.samples
def _(draw):
    yield draw(4, 5), [draw(4, 5), draw(4, 5)], [2.0, -0.5], "plus"
    yield draw.call(draw(7), [draw(7)], [3.0], "minus", shift=1.5)
"""
GATHER_KERNEL = """\
#pragma once
#include "deployops/cuda/launch.h"
namespace deployops {
__global__ void add_lists_kernel(const float* from, const float* part, float weight, float shift, float sign, float* y,
                                 int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) y[i] = sign * (from[i] + weight * part[i] + shift);
}
inline cudaError_t add_lists(Stream stream, In<float> total, InList<float> parts, Span<double> weights,
                             std::string_view name, std::optional<double> shift, Out<float> y) {
  require(parts.size() == weights.size(), "there are ", parts.size(), " parts and ", weights.size(), " weights");
  const float* from = total.data;
  for (size_t k = 0; k < parts.size(); ++k) {
    const bool last = k + 1 == parts.size();
    const cudaError_t error =
        launch(add_lists_kernel, 1, 32, 0, stream, from, parts[k].data, float(weights[k]),
               last && shift ? float(*shift) : 0.0f, last && name != "plus" ? -1.0f : 1.0f, y.data, y.numel());
    if (error != cudaSuccess) return error;
    from = y.data;
  }
  return cudaSuccess;
}
}  // namespace deployops
"""


def test_lists_texts_and_optional_numbers_arrive(declare: Declare) -> None:
    op = declare("add_lists", GATHER_KERNEL, GATHER)
    assert status(op) == ("passed", "10 runs")
    with (
        emulated_library([op]) as library,
        pytest.raises(KernelRefusal, match="there are 1 parts and 2 weights"),
    ):
        library.run(op, (torch.zeros(3), [torch.zeros(3)], [1.0, 2.0], "plus"))


COUNTED = """
@torch.library.custom_op("user::count_up", mutates_args=("counts",))
def count_up_(counts: Tensor, x: Tensor) -> None:
    counts += x

@count_up_.register_fake
def _(counts, x):
    return None

from deployops import adopt
count_up = adopt("user::count_up", dtypes=("int32",))

@count_up.samples
def _(draw):
    yield draw(3, 4), draw(3, 4)
"""
COUNTED_KERNEL = """\
#pragma once
#include "deployops/cuda/launch.h"
namespace deployops {
__global__ void count_up_kernel(int32_t* counts, const int32_t* x, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&counts[i], x[i]);
}
inline cudaError_t count_up(Stream stream, Out<int32_t> counts, In<int32_t> x) {
  return launch(count_up_kernel, 1, 32, 0, stream, counts.data, x.data, x.numel());
}
}  // namespace deployops
"""


def test_an_argument_is_written_in_place(declare: Declare) -> None:
    assert status(declare("count_up", COUNTED_KERNEL, COUNTED))[0] == "passed"


def test_without_a_kernel_nothing_is_checked(declare: Declare) -> None:
    outcome, detail = status(declare("absent", None))
    assert outcome == "not checked"
    assert "absent.cuh" in detail
    assert "cudaError_t absent(Stream stream, In<float> x, Out<float> y)" in detail


def test_a_mistake_is_told_at_its_line(declare: Declare) -> None:
    op = declare("doubled", PLAIN.replace("__hadd(x[i], x[i])", "__hadd(x[i], z[i])"), dtypes='("float16",)')
    outcome, detail = status(op)
    assert outcome == "failed"
    assert "doubled.cuh:12" in detail
    assert "‘z’" in detail or "'z'" in detail


def test_a_wrong_signature_is_told_with_the_right_one(declare: Declare) -> None:
    op = declare("doubled", PLAIN.replace("In<T> x, Out<T> y", "In<T> x, int64_t k, Out<T> y"))
    outcome, detail = status(op)
    assert outcome == "failed"
    assert "cudaError_t doubled(Stream stream, In<float> x, Out<float> y)" in detail


@pytest.mark.parametrize(
    ("written", "right"),
    [
        ("doubled_kernel<T><<<1, 128, 0, stream>>>(x.data, y.data, n)", "launch(kernel, grid"),
        ("extern __shared__ float held[]", "dynamic_shared<T>()"),
    ],
)
def test_what_only_nvcc_understands_is_named(written: str, right: str, declare: Declare) -> None:
    op = declare("doubled", PLAIN.replace("  return launch", f"  {written};\n  return launch"))
    outcome, detail = status(op)
    assert outcome == "not checked"
    assert right in detail


def test_a_kernel_that_does_not_end_is_stopped(declare: Declare) -> None:
    op = declare("doubled", PLAIN.replace("if (i >= n) return;", "while (*(const volatile T*)x == x[0]) {}"))
    with EmulatedLibrary(build([op]), [op], time_limit=2) as library:
        with pytest.raises(KernelFault, match="did not end within 2 s"):
            library.run(op, (torch.ones(3),))
        with pytest.raises(KernelFault, match="did not end"):  # another process is started
            library.run(op, (torch.ones(3),))


SUMS = """
@operator("user::total", dtypes=("float32",))
def total(x: Tensor, scale: float = 2.0) -> Tensor:
    return x.sum().reshape(1) * scale

@total.fake
def _(x, scale=2.0):
    return x.new_empty(1)

@total.samples
def _(draw):
    yield (draw(5, 40),)
    yield draw(1000), 0.5
"""
SUMS_KERNEL = """\
#pragma once
#include "deployops/cuda/launch.h"
namespace deployops {
constexpr int total_blocks = 7;
__global__ void total_first(const float* x, int64_t n, float* sums) {
  const int64_t begin = n * blockIdx.x / gridDim.x, end = n * (blockIdx.x + 1) / gridDim.x;
  float sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += x[i];
  sums[blockIdx.x] = sum;
}
__global__ void total_second(const float* sums, float scale, float* y) {
  float sum = 0;
  for (int k = 0; k < total_blocks; ++k) sum += sums[k];
  y[0] = sum * scale;
}
inline size_t total_workspace(In<float>, double, Out<float>) { return total_blocks * sizeof(float); }
inline cudaError_t total(Stream stream, In<float> x, double scale, Out<float> y) {
  float* const sums = static_cast<float*>(stream.workspace);
  const cudaError_t error = launch(total_first, total_blocks, 1, 0, stream, x.data, x.numel(), sums);
  if (error != cudaSuccess) return error;
  return launch(total_second, 1, 1, 0, stream, sums, float(scale), y.data);
}
}  // namespace deployops
"""


@pytest.mark.parametrize("sanitize", [None, "address", "thread"])
def test_a_kernel_has_the_workspace_that_it_asks_for(declare: Declare, sanitize: Sanitizer | None) -> None:
    [result] = emulate([declare("total", SUMS_KERNEL, SUMS)], sanitize=sanitize)
    assert result.status == "passed", result.detail


@pytest.mark.parametrize(
    ("sanitize", "before", "after", "told"),
    [
        # one element too small: at the promised alignment, the page does not end with the workspace
        (None, "return total_blocks *", "return (total_blocks - 1) *", "beyond the end of the workspace, which has 24"),
        ("address", "return total_blocks *", "return (total_blocks - 1) *", r"heap-buffer-overflow: writes 4 bytes at"),
        # far too small
        (None, "sums[blockIdx.x] =", "sums[blockIdx.x + 64] =", r"writes \d+ bytes beyond the end of the workspace"),
        (None, "sums[blockIdx.x] = sum", "if (blockIdx.x) sums[blockIdx.x] = sum", "nan"),
        (None, "inline size_t total_workspace", "inline size_t totals_workspace", "which is nobody's"),
        ("thread", "sums[blockIdx.x] =", "sums[0] =", r"race: .* of the workspace"),
        (None, "(In<float>, double, Out<float>) {", "(In<float> x, double, Out<float>) { if (x[0] > 0) return 0;", "the launcher"),
        (None, "inline size_t total_workspace", "inline int total_workspace", "a number of bytes, a size_t"),
        (None, "total_workspace(In<float>, double,", "total_workspace(In<float>, float, float,", "total_workspace"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_workspace_is_found(
    declare: Declare, sanitize: Sanitizer | None, before: str, after: str, told: str
) -> None:
    assert before in SUMS_KERNEL
    [result] = emulate([declare("total", SUMS_KERNEL.replace(before, after), SUMS)], sanitize=sanitize)
    assert result.status == "failed", result.detail
    assert re.search(told, result.detail), result.detail


SNAKE = """
@operator("user::snake")
def snake(x: Tensor, alpha: float = 1.0) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide + torch.sin(alpha * wide) ** 2 / alpha).to(x.dtype)

@snake.fake
def _(x, alpha=1.0):
    return torch.empty_like(x)

@snake.samples
def _(draw):
    yield draw(3, 5), 0.5
    yield draw(0, 4), 1.0
    yield draw(7000), 1.0
"""


def test_the_kernel_of_the_documentation(declare: Declare) -> None:
    page = (Path(__file__).parents[2] / "docs" / "emulation.md").read_text()
    found = re.search(r"^```cpp\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert status(declare("snake", found[1], SNAKE))[0] == "passed"


def test_an_unknown_sanitizer_is_refused() -> None:
    with pytest.raises(UsageError, match="known are address, thread"):
        emulate([], sanitize="memory")  # type: ignore[arg-type]


def test_an_operator_without_a_kernel_is_no_pass_of_the_command(declare: Declare, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from deployops.cli.emulate import emulate as command

    declare("doubled", PLAIN)
    declare("kernelless", None)
    good, without = (str(tmp_path / f"{name}_ops.py") for name in ("doubled", "kernelless"))
    run = CliRunner().invoke
    assert run(command, ["--ops", good]).exit_code == 0
    both = run(command, ["--ops", good, "--ops", without])
    assert (both.exit_code, "has no kernel" in both.output) == (3, True)
    assert run(command, ["--ops", f"{good}::doubled"]).exit_code == 0


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([("a", "float32", "passed"), ("a", "", "not checked")], 0),  # kernels that no sample launches
        ([("a", "float32", "passed"), ("a", "float16", "not checked")], 3),
        ([("a", "float32", "passed"), ("b", "", "not checked")], 3),
        ([("a", "float32", "failed"), ("b", "", "not checked")], 1),
    ],
)
def test_exit_codes_of_interpreted_ptx(rows: list[tuple[str, str, str]], code: int) -> None:
    from deployops.cli.emulate import _exit_code
    from deployops.trt_plugins.ptx.check import PtxResult

    results = [PtxResult(name, dtype, status, 0, 0, 0, 0.0, "") for name, dtype, status in rows]  # type: ignore[arg-type]
    assert _exit_code(results) == code


def test_the_kernel_to_write_for_a_size_that_the_data_decides(tmp_path: Path) -> None:
    from deployops.native.kernel_files import find_kernel

    file = tmp_path / "sized_for_cpu.py"
    file.write_text(
        "import torch\nfrom torch import Tensor\nfrom deployops import operator\n"
        '@operator("user::sized_for_cpu", dtypes=("float32",))\n'
        "def sized_for_cpu(x: Tensor) -> Tensor:\n    return x[x > 0]\n"
        "@sized_for_cpu.fake\n"
        "def _(x):\n    return x.new_empty(torch.library.get_ctx().new_dynamic_size())\n"
        "@sized_for_cpu.samples\n"
        "def _(draw):\n    yield (draw(4),)\n"
    )
    (op,) = registry.load([str(file)])
    try:
        with pytest.raises(UsageError, match="NewOut<float> y"):
            find_kernel(op)
    finally:
        registry.remove(op)
