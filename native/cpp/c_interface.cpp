// The kernels through plain C, for callers without ONNX Runtime (native/cpu_library.py). Nothing is thrown.
//
// Every function returns 0, or 1 with a message in `error`.

#include <cstdio>
#include <cstring>
#include <exception>

#include "level.h"
#include "thread_pool.h"

using namespace deployops;

namespace {

struct CError {
  char* text;
  size_t size;
};

template <class F>
int guarded(CError error, F&& f) noexcept {
  try {
    f();
    return 0;
  } catch (const std::bad_alloc&) {
    std::snprintf(error.text, error.size, "there is not enough memory");
  } catch (const std::exception& e) {
    std::snprintf(error.text, error.size, "%s", e.what());
  } catch (...) {
    std::snprintf(error.text, error.size, "the kernel threw something that is no std::exception");
  }
  return 1;
}

const OperatorSpec& operator_at(size_t index) {
  require(index < operator_table().count, "there is no operator number ", index);
  return operator_table()[index];
}

}  // namespace

#define DEPLOYOPS_EXPORT extern "C" __attribute__((visibility("default")))

// Counts up with every change to this interface; a caller compares it with the one it was written for.
DEPLOYOPS_EXPORT int deployops_interface_version() { return 1; }

// The name of a level, null after the last one; whether the processor runs it.
DEPLOYOPS_EXPORT const char* deployops_level(size_t index, int* supported) {
  if (index >= level_table().count) return nullptr;
  *supported = level_table()[index].supported();
  return level_table()[index].name;
}

// The torch name of an operator and its declaration's fingerprint; null after the last one.
DEPLOYOPS_EXPORT const char* deployops_operator(size_t index, const char** fingerprint) {
  if (index >= operator_table().count) return nullptr;
  *fingerprint = operator_table()[index].fingerprint;
  return operator_table()[index].name;
}

// The shapes of the outputs: rank −1 where the kernel allocates.
DEPLOYOPS_EXPORT int deployops_shapes(size_t index, const TensorRef* inputs, Shape* outputs, char* error,
                                      size_t error_size) {
  return guarded({error, error_size}, [&] {
    const OperatorSpec& op = operator_at(index);
    op.shapes(inputs, outputs);
    for (size_t k = 0; k < op.outputs.count; ++k) {
      if (op.outputs[k].by_kernel) outputs[k].rank = -1;
    }
  });
}

// Runs a kernel. `level` null: the best one. Outputs that overwrite an input hold its content already.
DEPLOYOPS_EXPORT int deployops_run(size_t index, size_t row, const char* level, int threads, const OperatorCall* call,
                                   char* error, size_t error_size) {
  return guarded({error, error_size}, [&] {
    const OperatorSpec& op = operator_at(index);
    require(row < op.rows.count, "there is no combination of dtypes number ", row);
    static const size_t best = chosen_level();
    const size_t chosen = level == nullptr ? best : find_level(level);
    Runtime runtime;
    runtime.context = &threads;
    if (threads > 1) {
      runtime.run = [](void* count, void (*task)(void*, size_t), void* work, size_t n) {
        ThreadPool::instance().run(*static_cast<int*>(count), task, work, n);
      };
    }
    const Parallel parallel(runtime);
    OperatorCall complete = *call;
    complete.parallel = &parallel;
    op.kernels[chosen][row](complete);
  });
}
