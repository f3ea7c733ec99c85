#pragma once
#include "deployops/parallel.h"
#include "deployops/tensor.h"

namespace deployops {

template <class T>
void weighted_sum(const Parallel& par, InList<T> xs, Span<double> weights, Out<T> y) {
  require(xs.size() > 0 && xs.size() == weights.size(), "there are ", xs.size(), " tensors and ", weights.size(),
          " weights");
  for (const In<T>& x : xs) require(x.numel() == xs[0].numel(), "xs are ", x, " and ", xs[0], "; expected one shape");
  Scratch<double> sum = par.scratch<double>(y.numel());
  par(y.numel(), 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      sum[i] = 0;
      for (size_t k = 0; k < xs.size(); ++k) sum[i] += weights[k] * double(wide_t<T>(xs[k][i]));
      y[i] = T(wide_t<T>(sum[i]));
    }
  });
}

}  // namespace deployops
