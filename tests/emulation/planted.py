"""Kernels with one fault each, made from a sound one by a small change.

Most sound ones compute `flip(x) + Σx` for each row of x, with everything that can go wrong: a row in dynamic shared
memory, a tree of sums in static shared memory, barriers between. One has two attributes of one type and two outputs of
one shape.
"""

# ruff: noqa: E501 (lines of kernels are not broken)

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

FLIP_AND_SUM = """
@operator("planted::{name}", dtypes=("float32",))
def {name}(x: Tensor) -> Tensor:
    return x.flip(-1) + x.sum(-1, keepdim=True)

@{name}.fake
def _(x):
    return torch.empty_like(x)

@{name}.samples
def _(draw):
    yield (draw(3, 64),)
    yield (draw(2, 100),)
"""


@dataclass(frozen=True)
class Kernel:
    """The text of a `.cuh` and the operator that it computes; `@` and `{name}` are the operator's name."""

    code: str
    operator: str = FLIP_AND_SUM


SOUND = Kernel("""\
#pragma once
#include "deployops/cuda/launch.h"
namespace deployops {

__global__ void @_kernel(const float* x, int64_t n, float* y) {
  __shared__ float part[64];
  float* row = dynamic_shared<float>();
  const float* from = x + blockIdx.x * n;
  const int t = int(threadIdx.x);
  float sum = 0;
  for (int64_t i = t; i < n; i += 64) {
    row[i] = from[i];
    sum += from[i];
  }
  part[t] = sum;
  __syncthreads();
  for (int step = 32; step > 0; step /= 2) {
    if (t < step) part[t] += part[t + step];
    __syncthreads();
  }
  for (int64_t i = t; i < n; i += 64) y[blockIdx.x * n + i] = row[n - 1 - i] + part[0];
}

inline cudaError_t @(Stream stream, In<float> x, Out<float> y) {
  const int64_t rows = x.size(0), n = x.size(1);
  return launch(@_kernel, dim3(unsigned(rows)), dim3(64), size_t(n) * sizeof(float), stream, x.data, n, y.data);
}

}  // namespace deployops
""")

# A promise of how large blocks are, as an expression of template parameters.
BOUNDED = Kernel(
    SOUND.code.replace(
        "__global__ void @_kernel",
        "template <class T, int N>\nconstexpr int @_most = N * int(sizeof(T)) / 4;\n"
        "template <class T, int N>\n__global__ void __launch_bounds__(@_most<T, N>, 1) @_kernel",
    )
    .replace("launch(@_kernel", "launch(@_kernel<float, 64>")
    # Kernels that promise less lie beside one that promises nothing.
    .replace(
        "inline cudaError_t",
        "__global__ void __launch_bounds__(32) @_before(float*) {}\n__global__ void @_between(float*) {}\n"
        "__global__ void __launch_bounds__(32) @_behind(float*) {}\ninline cudaError_t",
    )
    .replace(
        "  const int64_t rows",
        "  for (auto small : {@_before, @_behind}) (void)launch(small, 1, 32, 0, stream, y.data);\n"
        "  (void)launch(@_between, 1, 1024, 0, stream, y.data);\n  const int64_t rows",
    )
)

# A warp for each row, lanes exchanging their sums through shared memory and shuffles.
WARP = Kernel("""\
#pragma once
#include "deployops/cuda/launch.h"
namespace deployops {

__global__ void @_kernel(const float* x, int64_t n, float* y) {
  __shared__ float of_lane[32];
  const float* from = x + blockIdx.x * n;
  const int lane = int(threadIdx.x);
  float sum = 0;
  for (int64_t i = lane; i < n; i += 32) sum += from[i];
  of_lane[lane] = sum;
  __syncwarp();
  float total = of_lane[lane ^ 1] + sum;
  for (int step = 16; step > 1; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
  for (int64_t i = lane; i < n; i += 32) y[blockIdx.x * n + i] = from[n - 1 - i] + total;
}

inline cudaError_t @(Stream stream, In<float> x, Out<float> y) {
  return launch(@_kernel, dim3(unsigned(x.size(0))), dim3(32), 0, stream, x.data, x.size(1), y.data);
}

}  // namespace deployops
""")

# Blocks that add to one sum in global memory, and the last of them to come writes (a threadfence reduction).
GRID = Kernel("""\
#pragma once
#include "deployops/cuda/launch.h"
namespace deployops {

__global__ void @_kernel(const float* x, int64_t rows, int64_t n, float* y, float* sums, unsigned* count) {
  __shared__ bool last;
  const int t = int(threadIdx.x);
  float sum = 0;
  if (t == 0) {
    for (int64_t i = 0; i < n; ++i) sum += x[blockIdx.x * n + i];
    sums[blockIdx.x] = sum;
    __threadfence();
    last = atomicAdd(count, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  for (int64_t i = t; i < rows * n; i += 32) y[i] = x[i / n * n + n - 1 - i % n] + sums[i / n];
}

inline cudaError_t @(Stream stream, In<float> x, Out<float> y) {
  const int64_t rows = x.size(0);
  float* sums = nullptr;
  unsigned* count = nullptr;
  cudaError_t error = cudaMallocAsync(&sums, size_t(rows) * sizeof(float), stream);
  if (error == cudaSuccess) error = cudaMallocAsync(&count, sizeof(unsigned), stream);
  if (error == cudaSuccess) error = cudaMemsetAsync(count, 0, sizeof(unsigned), stream);
  if (error == cudaSuccess) {
    error = launch(@_kernel, dim3(unsigned(rows)), dim3(32), 0, stream, x.data, rows, x.size(1), y.data, sums, count);
  }
  if (sums != nullptr) cudaFreeAsync(sums, stream);
  if (count != nullptr) cudaFreeAsync(count, stream);
  return error;
}

}  // namespace deployops
""")

BELOW_AND_ABOVE = """
@operator("planted::{name}", dtypes=("float32",), outputs=("below", "above"))
def {name}(x: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    return (x - low).clamp(max=0), (x - high).clamp(min=0)

@{name}.fake
def _(x, low, high):
    return torch.empty_like(x), torch.empty_like(x)

@{name}.samples
def _(draw):
    yield draw(3, 64), -0.25, 0.5
"""

# How far each number lies below `low`, and how far above `high`.
CUTS = Kernel(
    """\
#pragma once
#include "deployops/cuda/launch.h"
namespace deployops {

__global__ void @_kernel(const float* x, int64_t n, float low, float high, float* below, float* above) {
  const int64_t i = int64_t(blockIdx.x) * 64 + threadIdx.x;
  if (i >= n) return;
  below[i] = x[i] >= low ? 0.0f : x[i] - low;
  above[i] = x[i] <= high ? 0.0f : x[i] - high;
}

inline cudaError_t @(Stream stream, In<float> x, double low, double high, Out<float> below, Out<float> above) {
  return launch(@_kernel, blocks_for(x.numel(), 64), 64, 0, stream, x.data, x.numel(), float(low), float(high), below.data,
                above.data);
}

}  // namespace deployops
""",
    BELOW_AND_ABOVE,
)

EXTREMES_OF_ROWS = """
@operator("planted::{name}", dtypes=("float32",), outputs=("largest", "smallest", "last", "all_small", "peak", "trough"))
def {name}(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    numbers = torch.arange(x.shape[-1], device=x.device)
    last = torch.where(x > 0, numbers, torch.full_like(numbers, -1)).amax(-1).to(torch.int32)
    return x.amax(-1), x.amin(-1), last, (x < 5).all(-1), x.abs().amax(-1), x.abs().amin(-1)

@{name}.fake
def _(x):
    rows, number, flag = x.new_empty(x.shape[0]), torch.int32, torch.bool
    return (torch.empty_like(rows), torch.empty_like(rows), torch.empty_like(rows, dtype=number),
            torch.empty_like(rows, dtype=flag), torch.empty_like(rows), torch.empty_like(rows))

@{name}.samples
def _(draw):
    yield (draw(3, 64),)
    yield (draw(2, 101),)
"""

# Largest and smallest numbers of a row and of their absolute values, the last positive one, whether all are below 5: each
# begins somewhere, in an output, in shared memory, or in the workspace.
EXTREMES = Kernel(
    """\
#pragma once
#include "deployops/cuda/launch.h"
namespace deployops {

__global__ void @_kernel(const float* x, int64_t n, float* least, float* largest, float* smallest, int32_t* last,
                         bool* all_small, float* peak, float* trough) {
  __shared__ float most;
  const unsigned row = blockIdx.x;
  largest[row] = -INFINITY;
  smallest[row] = INFINITY;
  last[row] = -1;
  all_small[row] = true;
  most = 0;
  least[row] = INFINITY;
  for (int64_t i = 0; i < n; ++i) {
    const float v = x[row * n + i];
    largest[row] = fmaxf(largest[row], v);
    smallest[row] = fminf(smallest[row], v);
    if (v > 0) atomicMax(&last[row], int32_t(i));
    if (!(v < 5)) all_small[row] = false;
    most = fmaxf(most, fabsf(v));
    least[row] = fminf(least[row], fabsf(v));
  }
  peak[row] = most;
  trough[row] = least[row];
}

inline size_t @_workspace(In<float> x, Out<float>, Out<float>, Out<int32_t>, Out<bool>, Out<float>, Out<float>) {
  return size_t(x.size(0)) * sizeof(float);
}
inline cudaError_t @(Stream stream, In<float> x, Out<float> largest, Out<float> smallest, Out<int32_t> last,
                     Out<bool> all_small, Out<float> peak, Out<float> trough) {
  return launch(@_kernel, dim3(unsigned(x.size(0))), dim3(1), 0, stream, x.data, x.size(1),
                static_cast<float*>(stream.workspace), largest.data, smallest.data, last.data, all_small.data, peak.data,
                trough.data);
}

}  // namespace deployops
""",
    EXTREMES_OF_ROWS,
)

TWICE = """
@operator("planted::{name}", dtypes=("float32",))
def {name}(x: Tensor) -> Tensor:
    return x * 2

@{name}.fake
def _(x):
    return torch.empty_like(x)

@{name}.samples
def _(draw):
    yield (draw(3, 64),)
    yield (draw(2, 101),)
"""

# Four numbers at a time, where both tensors begin at a multiple of 16 bytes.
PACKS = Kernel(
    """\
#pragma once
#include "deployops/cuda/launch.h"
namespace deployops {

__global__ void @_kernel(const float* x, int64_t n, bool packs, float* y) {
  const int64_t i = (int64_t(blockIdx.x) * 64 + threadIdx.x) * 4;
  if (packs && i + 4 <= n) {
    const float4 v = *reinterpret_cast<const float4*>(x + i);
    *reinterpret_cast<float4*>(y + i) = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w);
    return;
  }
  for (int64_t k = i; k < n && k < i + 4; ++k) y[k] = 2 * x[k];
}

inline bool @_aligned(const float* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
inline cudaError_t @(Stream stream, In<float> x, Out<float> y) {
  const bool packs = @_aligned(x.data) && @_aligned(y.data);
  return launch(@_kernel, blocks_for(x.numel(), 256) + 1, 64, 0, stream, x.data, x.numel(), packs, y.data);
}

}  // namespace deployops
""",
    TWICE,
)


@dataclass(frozen=True)
class Fault:
    """`source` with `before` replaced by `after`, and what the check says of it."""

    said: str  # a regular expression
    before: str
    after: str
    source: Kernel = SOUND

    @property
    def kernel(self) -> Kernel:
        assert self.before in self.source.code
        return replace(self.source, code=self.source.code.replace(self.before, self.after, 1))


# What every run finds.
ALWAYS = {
    "global_read_beyond": Fault(
        r"reads \d+ bytes beyond the end of `x`.* at \S*global_read_beyond\.cuh:1\d", "i < n; i += 64", "i <= n; i += 64"
    ),
    "global_write_beyond": Fault(
        r"writes \d+ bytes beyond the end of `y`.* at \S*global_write_beyond\.cuh:2\d",
        "y[blockIdx.x * n + i]",
        "y[blockIdx.x * n + i + 64]",
    ),
    "global_read_before": Fault(
        r"reads \d+ bytes before the beginning of `x`", "sum += from[i];", "sum += from[i] + 0 * from[i - 1];"
    ),
    "dynamic_shared_beyond": Fault(
        r"beyond the end of the dynamic shared memory, which has 256.* at \S*\.cuh:2\d", "row[n - 1 - i]", "row[n - i]"
    ),
    "writes_an_input": Fault(r"writes byte \d+ of `x` at", "row[i] = from[i];", "row[i] = from[i]; const_cast<float*>(from)[i] = 0;"),
    "divergent_barrier": Fault(
        r"2 barriers|two barriers|deadlock|ends while", "  part[t] = sum;\n", "  part[t] = sum;\n  if (t < 32) __syncthreads();\n"
    ),
    "thread_leaves_early": Fault(
        r"thread \d+ of the block ends while \d+ others wait for it at __syncthreads, \S*thread_leaves_early\.cuh:\d+"
        r"|have ended and never come to __syncthreads at \S*thread_leaves_early\.cuh:\d+",
        "  part[t] = sum;\n",
        "  part[t] = sum;\n  if (t == 63) return;\n",
    ),
    "mask_without_caller": Fault(
        r"calls with the mask 0x0000ffff, which leaves it out, at \S*mask_without_caller\.cuh:1\d",
        "0xffffffffu, total, step",
        "0x0000ffffu, total, step",
        WARP,
    ),
    "mask_of_absent_lanes": Fault(
        r"names lane 16 of warp 0, which does not exist: the block has too few threads", "dim3(32)", "dim3(16)", WARP
    ),
    "mask_of_lanes_that_left": Fault(
        r"names lane 31 of warp 0, which has ended|lane 31 of warp 0 ends while others, whose mask 0xffffffff",
        "  float total =",
        "  if (lane == 31) return;\n  float total =",
        WARP,
    ),
    "lanes_elsewhere": Fault(
        r"deadlock: each of the \d+ threads left waits|lanes of warp 0 meet at two places|where others wait for it",
        "  float total = of_lane[lane ^ 1] + sum;",
        "  float total = of_lane[lane ^ 1] + sum;\n  if (lane < 16) total += 0 * __shfl_xor_sync(0xffffffffu, total, 16);",
        WARP,
    ),
    "shuffle_from_outside": Fault(
        r"takes from lane 16, which the mask 0x0000ffff leaves out|takes from lane \d+, which the mask",
        "  float total = of_lane[lane ^ 1] + sum;",
        "  float total = of_lane[lane ^ 1] + sum;\n  if (lane < 16) total += 0 * __shfl_sync(0x0000ffffu, total, lane + 16);",
        WARP,
    ),
    "unwritten_shared": Fault(r"nan at", "  part[t] = sum;\n", "  if (t != 5) part[t] = sum;\n"),
    "unwritten_dynamic_shared": Fault(r"nan at", "row[i] = from[i];", "if (i != 3) row[i] = from[i];"),
    "unwritten_output": Fault(r"nan at", "dim3(unsigned(rows))", "dim3(unsigned(rows - 1))"),
    "block_too_large": Fault(
        r"blocks of \(2048, 1, 1\) threads; expected 1 … 1024 in all", "dim3(64)", "dim3(2048)"
    ),
    "block_larger_than_promised": Fault(
        r"a launch with blocks of 64 threads of the kernel `block_larger_than_promised_kernel<float, 64>`, which promises at "
        r"most 63",
        "@_most<T, N>, 1", "@_most<T, N> - 1, 1", BOUNDED
    ),
    "dynamic_shared_written_just_beyond": Fault(
        r"block \(0, 0, 0\): writes [0-3] bytes beyond the end of the dynamic shared memory, which has 252",
        "size_t(n) * sizeof(float)", "size_t(n) * sizeof(float) - 4",
    ),
    "grid_too_large": Fault(
        r"grid of \(1, 100000, 1\) blocks", "dim3(unsigned(rows))", "dim3(1, 100000)"
    ),
    "empty_grid": Fault(r"grid of \(0, 1, 1\) blocks", "dim3(unsigned(rows))", "dim3(unsigned(rows - rows))"),
    "too_much_shared": Fault(
        r"65536 bytes of dynamic shared memory; 49152 are allowed", "size_t(n) * sizeof(float)", "size_t(65536)"
    ),
    "swallowed_error": Fault(
        r"and the launcher reports success",
        "  return launch(@_kernel, dim3(unsigned(rows)), dim3(64)",
        "  if (rows < 0) return cudaErrorUnknown;\n  (void)launch(@_kernel, dim3(unsigned(rows)), dim3(0), 0, stream, x.data, n, y.data);\n"
        "  return cudaSuccess;\n  (void)launch(@_kernel, dim3(unsigned(rows)), dim3(64)",
    ),
    "launcher_reads_device_memory": Fault(
        r"the launcher, which runs on the processor, reads byte 0 of `x` at \S*\.cuh:\d+",
        "const int64_t rows = x.size(0)",
        "if (x.data[0] > 1e9f) return cudaErrorUnknown;\n  const int64_t rows = x.size(0)",
    ),
    "static_shared_index": Fault(
        r"takes index \d+ of an array of type 'float ?\[64\]', at \S*static_shared_index\.cuh:1\d",
        "for (int step = 32;",
        "for (int step = 64;",
    ),
    "misaligned_pack": Fault(
        r"accesses .*float4.* 4 bytes past a multiple of 16, its alignment, at \S*misaligned_pack\.cuh:1\d", "    sum += from[i];", "    sum += from[i] + 0 * reinterpret_cast<const float4*>(from + 1)->x;"
    ),
    "divides_by_zero": Fault(
        r"divides an integer by 0, or beyond its range, at \S*divides_by_zero\.cuh:1\d", "  part[t] = sum;", "  part[t] = sum + float(64 / (t / 64));"
    ),
    "attributes_in_other_order": Fault(
        r"output 0: \S+ at \[\d+, \d+\], where the reference in float64 has", "double low, double high,", "double high, double low,", CUTS
    ),
    "default_stream": Fault(
        r"the kernel `default_stream_kernel` is launched on the default stream, not on the stream given: in TensorRT it would race with what runs before and after(?!; and)",
        "sizeof(float), stream,", "sizeof(float), nullptr,"
    ),
    "default_stream_per_thread": Fault(
        r"the kernel `default_stream_per_thread_kernel` is launched on the default stream", "sizeof(float), stream,", "sizeof(float), cudaStreamPerThread,"
    ),
    "second_launch_on_another_stream": Fault(
        r"the kernel `second_launch_on_another_stream_kernel` is launched on another stream, not on the stream given",
        "  return launch(@_kernel,",
        "  const cudaError_t first = launch(@_kernel, dim3(unsigned(rows)), dim3(64), size_t(n) * sizeof(float), stream, x.data, n, y.data);\n"
        "  if (first != cudaSuccess) return first;\n  stream.stream = reinterpret_cast<cudaStream_t>(&stream);\n  return launch(@_kernel,",
    ),
    "memset_on_the_default_stream": Fault(
        r"the launcher calls cudaMemsetAsync on the default stream, not on the stream given", "sizeof(unsigned), stream);\n  if (error == cudaSuccess) {", "sizeof(unsigned));\n  if (error == cudaSuccess) {", GRID
    ),
    "memset_beyond": Fault(
        r"the launcher's cudaMemsetAsync writes 0 bytes beyond the end of memory from cudaMallocAsync, which has 4", "cudaMemsetAsync(count, 0, sizeof(unsigned)", "cudaMemsetAsync(count, 0, 2 * sizeof(unsigned)", GRID
    ),
    "unwritten_output_in_fmax": Fault(r"output 0: 1\.3\S*e\+36 at", "  largest[row] = -INFINITY;\n", "", EXTREMES),
    "unwritten_output_in_fmin": Fault(r"output 1: -2\.6\S*e\+36 at", "  smallest[row] = INFINITY;\n", "", EXTREMES),
    "unwritten_output_in_integer_maximum": Fault(r"unwritten memory large: output 2: \d of \d values differ", "  last[row] = -1;\n", "", EXTREMES),
    "unwritten_output_in_and": Fault(r"unwritten memory 0: output 3: \d of \d values differ", "  all_small[row] = true;\n", "", EXTREMES),
    "unwritten_shared_in_fmax": Fault(r"output 4: 1\.3\S*e\+36 at", "  most = 0;\n", "", EXTREMES),
    "unwritten_workspace_in_fmin": Fault(r"output 5: 0 at|output 5: -2\.6\S*e\+36 at", "  least[row] = INFINITY;\n", "", EXTREMES),
    "input_alignment_unchecked": Fault(
        r"unaligned inputs.* accesses .*float4.* 4 bytes past a multiple of 16", "@_aligned(x.data) && ", "", PACKS
    ),
    "output_alignment_unchecked": Fault(
        r"unaligned outputs.* accesses .*float4.* 4 bytes past a multiple of 16", " && @_aligned(y.data)", "", PACKS
    ),
    "pack_written_past_the_tail": Fault(
        r"the kernel `pack_written_past_the_tail_kernel` writes 0 bytes beyond the end of `y`, which has 808", "i + 4 <= n", "i < n", PACKS
    ),
    "written_just_before": Fault(
        r"writes [14] bytes before the beginning of `y`", "  for (int64_t k = i;", "  if (i == 0) y[-1] = 0;\n  for (int64_t k = i;", PACKS
    ),
    "outputs_swapped": Fault(
        r"output 0: \d\S* at \[\d+, \d+\], where the reference in float64 has 0", "below.data,\n                above.data", "above.data,\n                below.data", CUTS
    ),
}  # fmt: skip

# What the detector of races finds.
RACES = {
    "missing_barrier": Fault(
        r"race: thread \d+ (reads|writes) shared memory at \S*missing_barrier\.cuh:1\d, and thread \d+ (writes|reads) it "
        r"at \S*missing_barrier\.cuh:1\d",
        "  part[t] = sum;\n  __syncthreads();\n",
        "  part[t] = sum;\n",
    ),
    "missing_barrier_in_loop": Fault(
        r"race: .* shared memory", "    if (t < step) part[t] += part[t + step];\n    __syncthreads();", "    if (t < step) part[t] += part[t + step];"
    ),
    "missing_barrier_before_row": Fault(
        # The row lies in dynamic shared memory.
        r"race: thread \d+ reads shared memory at \S*\.cuh:1[67], and thread \d+ writes it at \S*\.cuh:1\d",
        "  __syncthreads();\n  for (int step = 32; step > 0; step /= 2) {\n    if (t < step) part[t] += part[t + step];\n    __syncthreads();\n  }",
        "  for (int step = 32; step > 0; step /= 2) part[t] += 0;",
    ),
    "racing_write": Fault(
        r"race: thread \d+ .* shared memory", "  part[t] = sum;\n", "  part[t] = sum;\n  part[63] += 0;\n"
    ),
    "racing_blocks": Fault(
        r"race: thread \d+ writes byte \d+ of `y` .* of another block writes it",
        "y[blockIdx.x * n + i]",
        "y[i]",
    ),
    "missing_syncwarp": Fault(r"race: .* shared memory", "  __syncwarp();\n", "", WARP),
    "plain_counter": Fault(
        r"race: .*memory from cudaMallocAsync", "atomicAdd(count, 1u)", "(*count)++", GRID
    ),
}  # fmt: skip

# What AddressSanitizer and UndefinedBehaviorSanitizer find.
ADDRESS = {
    "static_shared_beyond": Fault(
        r"global-buffer-overflow: reads 4 bytes at \S*static_shared_beyond\.cuh:1\d.* the shared memory `part`",
        "part[t] += part[t + step];",
        "part[t] += *(&part[0] + t + 2 * step);",
    ),
    "heap_beyond": Fault(
        r"heap-buffer-overflow: reads 4 bytes at \S*heap_beyond\.cuh:1\d", "i < n; i += 64", "i <= n; i += 64"
    ),
    "local_beyond": Fault(
        r"stack-buffer-overflow|index 4 out of bounds",
        "  part[t] = sum;",
        "  volatile float held[4] = {};\n  part[t] = sum + 0 * held[n - n + 4];",
    ),
    "undefined_shift": Fault(
        r"shift exponent 6\d is too large.*, at \S*undefined_shift\.cuh:\d+",
        "  part[t] = sum;",
        "  part[t] = sum + 0 * float(1 << (n + 1 - n + 63));",
    ),
}

SOUND_ONES = {
    "sound": SOUND,
    "sound_bounded": BOUNDED,
    "sound_warp": WARP,
    "sound_grid": GRID,
    "sound_cuts": CUTS,
    "sound_extremes": EXTREMES,
    "sound_packs": PACKS,
}


def plant(folder: Path, names: list[str]) -> Path:
    """The file that declares these operators, with their kernels beside it."""
    kernels = {
        name: f.kernel for faults in (ALWAYS, RACES, ADDRESS) for name, f in faults.items()
    } | SOUND_ONES
    for name in names:
        (folder / f"{name}.cuh").write_text(kernels[name].code.replace("@", name))
    declarations = folder / "planted_ops.py"
    head = "import torch\nfrom torch import Tensor\nfrom deployops import operator\n"
    declarations.write_text(head + "".join(kernels[name].operator.format(name=name) for name in names))
    return declarations
