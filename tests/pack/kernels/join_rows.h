#pragma once
#include <cstring>

#include "deployops/parallel.h"
#include "deployops/tensor.h"

namespace deployops {

template <class T>
void join_rows(const Parallel&, InList<T> xs, InList<T> ys, NewOut<T> y) {
  int64_t rows = 0, columns = -1;
  for (InList<T> list : {xs, ys}) {
    for (const In<T>& t : list) {
      require(t.rank == 2 && (columns < 0 || t.size(1) == columns), "a tensor is ", t, "; expected rows of ", columns);
      rows += t.size(0);
      columns = t.size(1);
    }
  }
  const Out<T> out = y.allocate({rows, columns});
  T* to = out.data;
  for (InList<T> list : {xs, ys}) {
    for (const In<T>& t : list) {
      if (t.numel() > 0) std::memcpy(to, t.data, size_t(t.numel()) * sizeof(T));
      to += t.numel();
    }
  }
}

}  // namespace deployops
