// x + residual, rounded, and its rms_norm. Both inputs are read from memory once and both outputs written once.
#pragma once

#include "rms_norm.cuh"

namespace deployops {

constexpr int add_rms_norm_tactics = row_tactics;

namespace detail {

template <class T, int N>
__global__ void __launch_bounds__(most_row_threads<T, N>, 1)
    add_rms_norm_kernel(const T* x, const T* residual, const T* weight, int64_t rows, int64_t n, wide_t<T> eps, T* y,
                        T* residual_out) {
  using W = wide_t<T>;
  RowPart<T, N> part;
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    const int64_t first = row * n;  // one register for four pointers
    const auto add = [=](RowPart<T, N>& p, int64_t begin) {
      p.read(x + first, begin);
      p.each(begin, [=](int64_t i, auto& v) {
        constexpr int count = length_of<decltype(v)>;
        W other[count];
        read_pack<count>(residual + (first + i), other);
#pragma unroll
        for (int k = 0; k < count; ++k) v[k] = widen(narrow<T>(v[k] + other[k]));  // what is normalised is the rounded sum
        write_pack<count>(residual_out + (first + i), v);
      });
    };
    part.begin_row(x + first, n);
    // A long row is read again as the sum; a thread reads what it wrote itself.
    const W r = inverse_rms(part, n, eps, add);
    scale_row(part, static_cast<const T*>(residual_out + first), n, r, weight, y + first);
  }
}

}  // namespace detail

template <class T>
cudaError_t add_rms_norm(Stream stream, In<T> x, In<T> residual, In<T> weight, double eps, Out<T> y,
                         Out<T> residual_out) {
  check_row_vector("weight", untyped(weight), untyped(x));
  bool same = x.rank == residual.rank;
  for (int d = 0; same && d < x.rank; ++d) same = x.size(d) == residual.size(d);
  require(same, "x is ", x, ", residual ", residual, "; expected one shape");
  const int64_t n = x.size(-1), rows = x.numel(0, x.rank - 1);
  if (n == 0 || rows == 0) return cudaSuccess;
  const bool packs = alike_for_packs(x.data, residual.data, y.data, residual_out.data);
  const RowLaunch how = row_launch<T>(rows, n, packs, stream.tactic);
  return launch(packs ? detail::add_rms_norm_kernel<T, full_pack<T>> : detail::add_rms_norm_kernel<T, 1>, how.grid,
                how.block, 0, stream, x.data, residual.data, weight.data, rows, n, wide_t<T>(eps), y.data,
                residual_out.data);
}

}  // namespace deployops
