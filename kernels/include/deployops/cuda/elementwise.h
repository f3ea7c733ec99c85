// Elementwise operators: y[i] = f(x[i], …), with operands that may repeat along some dims.
//
// Launch: a thread for 16 bytes of the output, and blocks until there are enough of them (then each goes on with those a
// grid further). Memory: every operand is read once and the output written once; what repeats comes from the caches.
#pragma once

#include "deployops/cuda/launch.h"
#include "deployops/cuda/pack.h"

namespace deployops {

constexpr int elementwise_tactics = 4;

// The dims of an output, the outermost first, and which of K operands have each of them; the others repeat along it.
template <int K>
class OperandDims {
 public:
  void dimension(int64_t size, const bool (&along)[K]) {
    numel_ *= size;
    if (size == 1) return;
    bool same = rank_ > 0;
    for (int k = 0; same && k < K; ++k) same = along_[rank_ - 1][k] == along[k];
    if (same) {  // neighbours that the same operands have are one
      sizes_[rank_ - 1] *= size;
      return;
    }
    sizes_[rank_] = size;
    for (int k = 0; k < K; ++k) along_[rank_][k] = along[k];
    ++rank_;
  }
  int rank() const { return rank_; }
  int64_t numel() const { return numel_; }
  int64_t size(int d) const { return sizes_[d]; }
  bool along(int d, int operand) const { return along_[d][operand]; }
  // Whether an operand has every dimension, and so lies as the output does.
  bool is_whole(int operand) const {
    for (int d = 0; d < rank_; ++d) {
      if (!along_[d][operand]) return false;
    }
    return true;
  }

 private:
  int rank_ = 0;
  int64_t numel_ = 1;
  int64_t sizes_[max_rank];
  bool along_[max_rank][K];
};

namespace detail {

template <class T, int K, class Index>
struct Operands {
  const T* data[K];
  bool whole[K];
  int rank;
  Index sizes[max_rank];
  Index strides[K][max_rank];  // 0 where the operand repeats

  // Where the numbers of the operands are for element i of the output.
  __device__ void find(Index i, Index (&at)[K]) const {
#pragma unroll
    for (int k = 0; k < K; ++k) at[k] = 0;
    for (int d = rank - 1; d >= 0; --d) {
      const Index outer = i / sizes[d], inner = i - outer * sizes[d];
#pragma unroll
      for (int k = 0; k < K; ++k) at[k] += inner * strides[k][d];
      i = outer;
    }
  }

  template <int N>
  __device__ void read(Index i, wide_t<T> (&x)[K][N]) const {
    bool all_whole = true;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (whole[k]) read_pack<N>(data[k] + i, x[k]);
      all_whole = all_whole && whole[k];
    }
    if (all_whole) return;
    const int last = rank - 1;
    Index at[K];
    find(i, at);
    const bool within_row = N == 1 || sizes[last] % N == 0;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (j > 0 && !within_row) find(i + j, at);
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (!whole[k]) x[k][j] = widen(data[k][at[k] + (within_row ? Index(j) * strides[k][last] : 0)]);
      }
    }
  }
};

template <class F, class W, int N>
__device__ inline W apply_at(const F& f, const W (&x)[1][N], int j) {
  return f(x[0][j]);
}
template <class F, class W, int N>
__device__ inline W apply_at(const F& f, const W (&x)[2][N], int j) {
  return f(x[0][j], x[1][j]);
}
template <class F, class W, int N>
__device__ inline W apply_at(const F& f, const W (&x)[3][N], int j) {
  return f(x[0][j], x[1][j], x[2][j]);
}

template <int N, class T, int K, class Index, class F>
__device__ inline void elementwise_pack(const F& f, const Operands<T, K, Index>& operands, T* y, Index i) {
  using W = wide_t<T>;
  W x[K][N], result[N];
  operands.template read<N>(i, x);
#pragma unroll
  for (int j = 0; j < N; ++j) result[j] = apply_at(f, x, j);
  write_pack<N>(y + i, result);
}

template <int N, class T, int K, class Index, class F>
__global__ void __launch_bounds__(512, sizeof(Index) == 8 ? 1 : 2)
    elementwise_kernel(F f, Operands<T, K, Index> operands, T* y, Index n) {
  const Index first = Index(blockIdx.x) * blockDim.x + threadIdx.x, step = Index(gridDim.x) * blockDim.x;
  const Index packs = n / N;
  for (Index p = first; p < packs; p += step) elementwise_pack<N>(f, operands, y, p * N);
  if constexpr (N > 1) {
    if (packs * N + first < n) elementwise_pack<1>(f, operands, y, packs * N + first);
  }
}

template <class T, int K, class Index, class F>
cudaError_t launch_elementwise(Stream stream, const OperandDims<K>& dims, T* y, const F& f, const T* const (&data)[K]) {
  Operands<T, K, Index> operands;
  operands.rank = dims.rank();
  bool packs = stream.tactic != 3 && aligned_for_packs(y);
  for (int k = 0; k < K; ++k) {
    operands.data[k] = data[k];
    operands.whole[k] = dims.is_whole(k);
    packs = packs && (!operands.whole[k] || aligned_for_packs(data[k]));
    Index stride = 1;
    for (int d = dims.rank() - 1; d >= 0; --d) {
      operands.strides[k][d] = dims.along(d, k) ? stride : 0;
      if (dims.along(d, k)) stride *= Index(dims.size(d));
    }
  }
  for (int d = 0; d < dims.rank(); ++d) operands.sizes[d] = Index(dims.size(d));
  constexpr unsigned threads_of[elementwise_tactics] = {256, 512, 128, 256};
  const unsigned threads = threads_of[stream.tactic];
  // With 64-bit indices registers are short.
  constexpr int N = sizeof(Index) == 8 && full_pack<T> > 4 ? 4 : full_pack<T>;
  const int64_t n = dims.numel(), work = packs ? (n + N - 1) / N : n;
  return launch(packs ? elementwise_kernel<N, T, K, Index, F> : elementwise_kernel<1, T, K, Index, F>,
                blocks_for(work, threads), threads, 0, stream, f, operands, y, Index(n));
}

}  // namespace detail

// f is a structure with a `__device__ W operator()(W, …) const`, W = wide_t<T>.
template <class T, int K, class F, class... X>
cudaError_t elementwise(Stream stream, const OperandDims<K>& dims, T* y, const F& f, const X*... x) {
  static_assert(K == sizeof...(X));
  const T* const data[K] = {x...};
  if (dims.numel() == 0) return cudaSuccess;
  return fits_in_32_bits(dims.numel()) ? detail::launch_elementwise<T, K, uint32_t>(stream, dims, y, f, data)
                                       : detail::launch_elementwise<T, K, int64_t>(stream, dims, y, f, data);
}

// As above, where no operand repeats.
template <class T, class F>
cudaError_t elementwise(Stream stream, In<T> x, Out<T> y, const F& f) {
  OperandDims<1> dims;
  dims.dimension(x.numel(), {true});
  return elementwise(stream, dims, y.data, f, x.data);
}

}  // namespace deployops
