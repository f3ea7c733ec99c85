// The kernels of a library behind plain C, for bench_gpu.py. The table of operators is generated beside it.
#include <cstdio>
#include <exception>

#include "deployops/cuda/operator_call.h"

namespace bench {
struct Operator {
  const char *name, *fingerprint;
  const deployops::CudaKernels* kernels;
};
extern const Operator operators[];
extern const size_t operator_count;
}  // namespace bench

#define EXPORT extern "C" __attribute__((visibility("default")))

// The torch name of an operator; null after the last one. How many tactics it has, and of which declaration it is.
EXPORT const char* bench_operator(size_t number, int* tactics, const char** fingerprint) {
  if (number >= bench::operator_count) return nullptr;
  *tactics = bench::operators[number].kernels->tactics;
  *fingerprint = bench::operators[number].fingerprint;
  return bench::operators[number].name;
}

// Launches a kernel. 0, or 1 with the reason in `text`; does not wait.
EXPORT int bench_launch(size_t number, size_t row, int tactic, void* stream, deployops::OperatorCall* call, char* text,
                        size_t size) {
  static const deployops::Parallel one_thread;
  call->parallel = &one_thread;
  try {
    if (bench::operators[number].kernels->workspace(*call, row) != 0) {
      throw deployops::InputError("the kernel asks for a workspace, which this program does not give");
    }
    cudaError_t error = bench::operators[number].kernels->entries[row](
        *call, deployops::Stream{static_cast<cudaStream_t>(stream), tactic});
    const cudaError_t last = cudaGetLastError();
    if (error == cudaSuccess) error = last;
    if (error == cudaSuccess) return 0;
    std::snprintf(text, size, "%s: %s", cudaGetErrorName(error), cudaGetErrorString(error));
  } catch (const std::exception& e) {
    std::snprintf(text, size, "%s", e.what());
  }
  return 1;
}
