#pragma once
#include "deployops/parallel.h"
#include "deployops/tensor.h"

namespace deployops {

inline void strided_pairs(const Parallel&, In<float> x, Out<float> y) {
  for (int64_t n = 0; n < y.size(0); ++n) {
    for (int64_t k = 0; k < y.size(1); ++k) {
      y[n * y.size(1) + k] = x[n * x.size(1) + 2 * k] + x[n * x.size(1) + 2 * k + 1];
    }
  }
}

}  // namespace deployops
