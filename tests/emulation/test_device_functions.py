"""What CUDA gives kernels, against what it is by definition: conversions, votes, shuffles of all widths, atomics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deployops.symbolic import registry
from deployops.symbolic.checking.tally import CheckResult
from deployops.trt_plugins.emulation.check import emulate

DECLARATIONS = '''
import torch
from torch import Tensor
from deployops import operator

def samples(draw):
    yield (draw(4, 32),)
    yield (draw(3, 64, low=-7e4, high=7e4),)

def edges(draw):
    yield (draw.edges(),)
    yield (draw(500) * 1e-6,)
    yield (draw(64, low=65500, high=65540),)

@operator("device::to_half", dtypes=("float32", "float64"))
def to_half(x: Tensor) -> Tensor:
    return x.half()

@operator("device::to_bfloat16", dtypes=("float32",))
def to_bfloat16(x: Tensor) -> Tensor:
    return x.bfloat16()

@operator("device::half_product", dtypes=("float16",))
def half_product(x: Tensor) -> Tensor:
    return torch.cat([x * x.flip(0), x + x.flip(0)])

@operator("device::positive_before", dtypes=("float32",))
def positive_before(x: Tensor) -> Tensor:
    """How many lanes before this one have a positive number."""
    p = (x > 0).reshape(-1, 32).int()
    return (p.cumsum(-1) - p).reshape(x.shape).int()

@operator("device::sums_of_eight", dtypes=("float32",))
def sums_of_eight(x: Tensor) -> Tensor:
    return x.reshape(-1, 8).cumsum(-1).reshape(x.shape)

@operator("device::rotated", dtypes=("float64", "float16"))
def rotated(x: Tensor) -> Tensor:
    return x.reshape(-1, 32).roll(3, -1).reshape(x.shape)

@operator("device::equal_lanes", dtypes=("float32",))
def equal_lanes(x: Tensor) -> Tensor:
    """How many lanes have a number with the same whole part, and the largest of these."""
    w = x.clamp(-3, 3).int().reshape(-1, 32)
    return ((w[:, :, None] == w[:, None, :]).sum(-1) * 100 + w.amax(-1, keepdim=True)).reshape(x.shape).int()

@operator("device::histogram", dtypes=("float32",))
def histogram(x: Tensor) -> Tensor:
    return torch.bincount(x.clamp(0, 7).long().flatten(), minlength=8).int()

for op in (to_half, to_bfloat16, half_product):
    op.samples(edges)
for op in (positive_before, sums_of_eight, rotated, equal_lanes, histogram):
    op.samples(samples)
to_half.fake(lambda x: torch.empty_like(x, dtype=torch.float16))
to_bfloat16.fake(lambda x: torch.empty_like(x, dtype=torch.bfloat16))
half_product.fake(lambda x: x.new_empty(2 * x.shape[0]))
positive_before.fake(lambda x: torch.empty_like(x, dtype=torch.int32))
sums_of_eight.fake(lambda x: torch.empty_like(x))
rotated.fake(lambda x: torch.empty_like(x))
equal_lanes.fake(lambda x: torch.empty_like(x, dtype=torch.int32))
histogram.fake(lambda x: x.new_empty(8, dtype=torch.int32))
'''

# name -> parameters of the kernel, its body, and what it is launched with. `i` is the thread's number in the grid.
KERNELS = {
    "to_half": ("template <class T>", "T", "__half", "y[i] = __half(x[i]);"),
    "to_bfloat16": ("", "float", "__nv_bfloat16", "y[i] = __float2bfloat16_rn(x[i]);"),
    "half_product": (
        "",
        "__half",
        "__half",
        "y[i] = __hmul(x[i], x[n - 1 - i]); y[n + i] = __low2half(__hadd2(__halves2half2(x[i], x[i]), "
        "__half2half2(x[n - 1 - i])));",
    ),
    "positive_before": (
        "",
        "float",
        "int32_t",
        "const unsigned lane = threadIdx.x % 32;"
        "y[i] = __popc(__ballot_sync(0xffffffffu, x[i] > 0) & ((1u << lane) - 1));",
    ),
    "sums_of_eight": (
        "",
        "float",
        "float",
        "float v = x[i]; for (unsigned d = 1; d < 8; d *= 2) { const float o = __shfl_up_sync(0xffffffffu, v, d, 8); "
        "if (threadIdx.x % 8 >= d) v += o; } y[i] = v;",
    ),
    "rotated": (
        "template <class T>",
        "T",
        "T",
        "y[i] = __shfl_sync(0xffffffffu, x[i], int(threadIdx.x + 29));",
    ),
    "equal_lanes": (
        "",
        "float",
        "int32_t",
        "const int w = int(fminf(fmaxf(x[i], -3.0f), 3.0f));"
        "y[i] = __popc(__match_any_sync(0xffffffffu, w)) * 100 + __reduce_max_sync(0xffffffffu, w);",
    ),
    "histogram": (
        "",
        "float",
        "int32_t",
        "__shared__ int h[8]; if (threadIdx.x < 8) h[threadIdx.x] = 0; __syncthreads();"
        "atomicAdd(&h[int(fminf(fmaxf(x[i], 0.0f), 7.0f))], 1); __syncthreads();"
        "if (threadIdx.x < 8) atomicAdd(&y[threadIdx.x], h[threadIdx.x]);",
    ),
}
SOURCE = """\
#pragma once
#include "deployops/cuda/launch.h"
namespace deployops {{
{template}
__global__ void {name}_kernel(const {x}* x, {y}* y, int64_t n) {{
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  {body}
}}
{template}
inline cudaError_t {name}(cudaStream_t stream, In<{x}> x, Out<{y}> y) {{
  const int64_t n = x.numel();
  const cudaError_t error = cudaMemsetAsync(y.data, 0, size_t(y.numel()) * sizeof({y}), stream);
  if (error != cudaSuccess) return error;
  return launch({name}_kernel{arguments}, unsigned((n + 31) / 32), 32, 0, stream, x.data, y.data, n);
}}
}}  // namespace deployops
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, CheckResult]]:
    folder = tmp_path_factory.mktemp("device")
    (folder / "device_ops.py").write_text(DECLARATIONS)
    for name, (template, x, y, body) in KERNELS.items():
        text = SOURCE.format(
            name=name, template=template, x=x, y=y, body=body, arguments="<T>" if template else ""
        )
        (folder / f"{name}.cuh").write_text(text)
    operators = registry.load([str(folder / "device_ops.py")])
    yield {r.operator.partition("::")[2]: r for r in emulate(operators)}
    for op in operators:
        registry.remove(op)


@pytest.mark.parametrize("name", KERNELS)
def test_device_functions(name: str, results: dict[str, CheckResult]) -> None:
    assert results[name].status == "passed", results[name].detail
    assert "not checked" not in results[name].detail
