#pragma once
#include "deployops/parallel.h"
#include "deployops/tensor.h"

namespace deployops {

template <class T>
void shift_(const Parallel& par, Out<T> x, In<T> by, int64_t times, Out<T> y) {
  require(x.rank > 0 && x.numel() == by.numel(), "x is ", x, ", by ", by, "; expected one shape");
  const int64_t c = x.size(-1);
  par(y.numel(), 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      wide_t<T> sum = 0;
      for (int64_t i = r * c; i < (r + 1) * c; ++i) {
        x[i] = T(wide_t<T>(x[i]) + wide_t<T>(by[i]) * wide_t<T>(times));
        sum += wide_t<T>(x[i]);
      }
      y[r] = T(sum);
    }
  });
}

}  // namespace deployops
