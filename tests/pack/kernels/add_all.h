#pragma once
#include "deployops/parallel.h"
#include "deployops/tensor.h"

namespace deployops {

template <class T>
void add_all(const Parallel& par, In<T> x, In<T> bias, InList<T> xs, Out<T> y) {
  require(!bias || bias.numel() == x.numel(), "bias is ", bias, "; expected ", x);
  for (const In<T>& t : xs) require(t.numel() == x.numel(), "xs has ", t, "; expected ", x);
  par(y.numel(), 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double sum = double(wide_t<T>(x[i]));
      if (bias) sum += double(wide_t<T>(bias[i]));
      for (const In<T>& t : xs) sum += double(wide_t<T>(t[i]));
      y[i] = T(wide_t<T>(sum));
    }
  });
}

}  // namespace deployops
