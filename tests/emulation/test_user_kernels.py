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
from deployops.trt_plugins.emulation.build import build
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
    assert status(op) == ("passed", "6 runs")
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
