#pragma once
#include <algorithm>
#include <limits>
#include <optional>

#include "deployops/parallel.h"
#include "deployops/tensor.h"

template <class T>
void limit(const deployops::Parallel& par, deployops::In<T> x, double low, std::optional<double> high,
          deployops::Out<T> y) {
  const double most = high.value_or(std::numeric_limits<double>::infinity());
  par(x.numel(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double v = double(deployops::wide_t<T>(x[i]));
      y[i] = v != v ? x[i] : T(deployops::wide_t<T>(std::min(std::max(v, low), most)));
    }
  });
}
