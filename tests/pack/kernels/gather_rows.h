#pragma once
#include <cstring>

#include "deployops/parallel.h"
#include "deployops/tensor.h"

namespace deployops {

template <class T, class I>
void gather_rows(const Parallel& par, In<T> x, In<I> index, Out<T> rows, Out<bool> found) {
  require(x.rank == 2 && index.rank == 1, "x is ", x, " and index ", index, "; expected (N, C) and (K,)");
  const int64_t c = x.size(1);
  par(index.numel(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t from = int64_t(index[k]);
      require(from < x.size(0), "index[", k, "] is ", from, "; x has ", x.size(0), " rows");
      found[k] = from >= 0;
      for (int64_t i = 0; i < c; ++i) rows[k * c + i] = found[k] ? x[from * c + i] : T(wide_t<T>(0));
    }
  });
}

}  // namespace deployops
