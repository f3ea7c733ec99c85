// Scaled dot product attention in one pass over the keys (online softmax: Milakov and Gimelshein 2018,
// arXiv:1805.02867; in tiles: Dao et al. 2022, arXiv:2205.14135). No matrix of all scores is kept.
//
// A block takes some rows (queries) of a key head, and the keys in tiles of 32 through shared memory. In the scores a
// lane is a key, in the sums a few neighbouring columns of the values; a warp has `rows_per_warp` rows. Long rows of q
// and k are taken in slices; values wider than a tile are columns of another block, which computes the scores again.
// Launch: (rows / rows per block · batch · key heads, value width / columns) blocks of 32·warps threads. Memory: q and y
// once, k and v once for each block of rows, in 16-byte packs where rows are whole packs and tensors begin at 16 bytes.
// The arithmetic is that of the ordinary cores, not of the tensor cores.
//
// What 0 · ∞ and 0 · NaN are follows the formula, weights before values. Values in the future of a whole block of rows
// are left out if they are finite. A block with a row whose result is not finite, with finite weights, is computed again
// in the order of the formula.
#pragma once

#include <cmath>
#include <optional>

#include "deployops/cuda/attention_call.h"
#include "deployops/cuda/launch.h"
#include "deployops/cuda/math.h"
#include "deployops/cuda/pack.h"
#include "deployops/cuda/reduce.h"

namespace deployops {

constexpr int attention_tactics = 4;  // 0: by the number of rows

namespace detail {

constexpr int keys_per_tile = 32;
template <class W> constexpr int tile_depth = int(256 / sizeof(W));        // of q and k at once
template <class W> constexpr int columns_per_lane = int(16 / sizeof(W));   // of the values
template <class W> constexpr int tile_columns = 32 * columns_per_lane<W>;

template <class T, int rows_per_warp, int warps>
struct alignas(16) AttentionTiles {
  using W = wide_t<T>;
  static constexpr int rows_per_block = rows_per_warp * warps, threads = 32 * warps;
  // Registers for each thread: as many as these blocks leave.
  static constexpr int blocks_at_once = (sizeof(W) == 8 ? 384 : 512) / threads;
  static constexpr int depth = tile_depth<W>, columns = tile_columns<W>, per_lane = columns_per_lane<W>;

  W keys[keys_per_tile][depth + 1];  // lanes read a column of it: in 32 banks with the one more
  W values[keys_per_tile][columns];
  W queries[rows_per_block][depth];
  W weights[rows_per_block][keys_per_tile];
  // Of each row: its query, and where its bias and its mask begin.
  int64_t query[rows_per_block], bias[rows_per_block], mask[rows_per_block];
};

// What a warp knows of its rows.
template <class W, int rows, int per_lane>
struct AttentionRows {
  W maximum[rows], sum[rows];  // the sum: of this lane's keys, until the end
  W products[rows][per_lane];
};

// Some rows and columns of a row-major matrix to shared memory, N numbers in each access, and zeros around them. Gives
// whether all that this thread took is finite.
template <int N, int threads, class T, int rows, int pitch>
__device__ inline bool load_packs(const T* from, int64_t row_size, int64_t rows_there, int columns,
                                  int64_t columns_there, wide_t<T> (&to)[rows][pitch]) {
  using W = wide_t<T>;
  bool finite = true;
  const int packs = columns / N;
  for (int i = int(threadIdx.x); i < rows * packs; i += threads) {
    const int row = i / packs, column = i % packs * N;
    W v[N] = {};
    if (row < rows_there && column < columns_there) read_pack<N>(from + row * row_size + column, v);
#pragma unroll
    for (int k = 0; k < N; ++k) finite = finite && is_finite(v[k]);
    if constexpr (N > 1 && pitch % N == 0) {
      constexpr int together = int(16 / sizeof(W));
#pragma unroll
      for (int k = 0; k < N; k += together) {
        Pack<W, together> pack;
#pragma unroll
        for (int j = 0; j < together; ++j) pack.at[j] = v[k + j];
        *reinterpret_cast<Pack<W, together>*>(&to[row][column + k]) = pack;
      }
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) to[row][column + k] = v[k];
    }
  }
  return finite;
}
template <int columns, int threads, class T, int rows, int pitch>
__device__ inline bool load_tile(const T* from, int64_t row_size, int64_t rows_there, int64_t columns_there, bool packs,
                                 wide_t<T> (&to)[rows][pitch]) {
  return packs ? load_packs<full_pack<T>, threads>(from, row_size, rows_there, columns, columns_there, to)
               : load_packs<1, threads>(from, row_size, rows_there, columns, columns_there, to);
}

// The score of row r of the block, for one key.
template <class T, class Tiles>
__device__ inline wide_t<T> masked_score(const AttentionCall<T>& call, const Tiles& tile, int r, wide_t<T> product,
                                         int64_t key) {
  wide_t<T> score = product * call.scale;
  if (call.bias.data != nullptr) score += widen(call.bias.data[tile.bias[r] + key * call.bias.key]);
  const bool allowed = (!call.is_causal || key <= tile.query[r]) &&
                       (call.mask.data == nullptr || call.mask.data[tile.mask[r] + key * call.mask.key]);
  return allowed ? score : -infinity<wide_t<T>>();
}

// Writes what each lane of a warp has of a row, from column `at` on. The whole warp takes part: lanes exchange numbers.
template <class T, int count>
__device__ inline void store_row(const AttentionCall<T>& call, int64_t row, int64_t at, bool there,
                                 const wide_t<T> (&mine)[count]) {
  using W = wide_t<T>;
  if (!call.value_packs) {
#pragma unroll
    for (int c = 0; c < count; ++c) {
      if (there && at + c < call.value_width) call.y[row + at + c] = narrow<T>(mine[c]);
    }
  } else if constexpr (full_pack<T> == count) {
    if (there && at < call.value_width) write_pack<count>(call.y + row + at, mine);
  } else {  // two lanes have a pack
    static_assert(full_pack<T> == 2 * count);
    W pack[2 * count];
#pragma unroll
    for (int c = 0; c < count; ++c) {
      pack[c] = mine[c];
      pack[count + c] = __shfl_xor_sync(all_lanes, mine[c], 1);
    }
    if (threadIdx.x % 2 == 0 && there && at < call.value_width) write_pack<2 * count>(call.y + row + at, pack);
  }
}

template <class W>
__device__ inline W subtrahend(W maximum) {
  return maximum == -infinity<W>() ? W(0) : maximum;  // −∞ − −∞ is NaN
}

template <class T, int rows_per_warp, int warps>
__global__ void __launch_bounds__(32 * warps, AttentionTiles<T, rows_per_warp, warps>::blocks_at_once)
    attention_kernel(AttentionCall<T> call) {
  using Tiles = AttentionTiles<T, rows_per_warp, warps>;
  using W = wide_t<T>;
  __shared__ Tiles tile;
  const int thread = int(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int64_t rows = call.rows(), blocks_per_head = (rows + Tiles::rows_per_block - 1) / Tiles::rows_per_block;
  const int64_t column = int64_t(blockIdx.y) * Tiles::columns;

  for (int64_t job = blockIdx.x; job < call.jobs * blocks_per_head; job += gridDim.x) {
    const int64_t key_head = job / blocks_per_head, first = job % blocks_per_head * Tiles::rows_per_block;
    const int64_t my_first = first + warp * rows_per_warp;
    const T* q = call.q + (key_head * rows + first) * call.width;
    const T* k = call.k + key_head * call.keys * call.width;
    const T* v = call.v + key_head * call.keys * call.value_width + column;

    __syncthreads();  // those who still read the last rows'
    if (thread < Tiles::rows_per_block) {
      const int64_t row = first + thread < rows ? first + thread : rows - 1;
      tile.query[thread] = row % call.queries;
      tile.bias[thread] = call.place_in(call.bias, key_head, row);
      tile.mask[thread] = call.place_in(call.mask, key_head, row);
    }
    __syncthreads();

    // Keys from here on are in the future of all rows of the block.
    int64_t seen = call.keys;
    if (call.is_causal) {
      const int64_t last = first + Tiles::rows_per_block - 1 < rows ? first + Tiles::rows_per_block - 1 : rows - 1;
      const bool whole_head = first / call.queries != last / call.queries;
      const int64_t latest = whole_head ? call.queries : last % call.queries + 1;
      seen = latest < seen ? latest : seen;
    }

    AttentionRows<W, rows_per_warp, Tiles::per_lane> mine;
    W factor[rows_per_warp];
    bool by_formula = false;
    for (;;) {
#pragma unroll
      for (int r = 0; r < rows_per_warp; ++r) {
        if (!by_formula) {
          mine.maximum[r] = -infinity<W>();
          mine.sum[r] = 0;
        }
#pragma unroll
        for (int c = 0; c < Tiles::per_lane; ++c) mine.products[r][c] = 0;
      }
      for (int64_t begin = 0; begin < call.keys; begin += keys_per_tile) {
        const int count = int(call.keys - begin < keys_per_tile ? call.keys - begin : keys_per_tile);

        W score[rows_per_warp] = {};
        if (begin < seen) {
          for (int64_t from = 0; from < call.width; from += Tiles::depth) {
            const int depth = int(call.width - from < Tiles::depth ? call.width - from : Tiles::depth);
            __syncthreads();  // those who still read the last slices
            load_tile<Tiles::depth, Tiles::threads>(k + begin * call.width + from, call.width, count, depth,
                                                    call.score_packs, tile.keys);
            // One slice of q stays where it is.
            if (begin == 0 || call.width > Tiles::depth) {
              load_tile<Tiles::depth, Tiles::threads>(q + from, call.width, rows - first, depth, call.score_packs,
                                                      tile.queries);
            }
            __syncthreads();
#pragma unroll 2
            for (int d = 0; d < depth; ++d) {
              const W key = tile.keys[lane][d];
#pragma unroll
              for (int r = 0; r < rows_per_warp; ++r) {
                score[r] = fma_of(tile.queries[warp * rows_per_warp + r][d], key, score[r]);
              }
            }
          }
        }

        __syncwarp();  // those who still read the last weights: of keys in the future no barrier has kept them
#pragma unroll
        for (int r = 0; r < rows_per_warp; ++r) {
          const bool there = my_first + r < rows && lane < count;
          const W s = there ? masked_score(call, tile, warp * rows_per_warp + r, score[r], begin + lane)
                            : -infinity<W>();
          W weight;
          if (by_formula) {
            weight = there ? exp_of(s - subtrahend(mine.maximum[r])) * factor[r] : W(0);
          } else {
            const W m = Larger()(mine.maximum[r], warp_reduce(s, Larger()));
            const W rescale = exp_of(mine.maximum[r] - subtrahend(m));
            weight = there ? exp_of(s - subtrahend(m)) : W(0);
            mine.sum[r] = fma_of(mine.sum[r], rescale, weight);
            mine.maximum[r] = m;
#pragma unroll
            for (int c = 0; c < Tiles::per_lane; ++c) mine.products[r][c] *= rescale;
          }
          tile.weights[warp * rows_per_warp + r][lane] = weight;
        }

        __syncthreads();  // those who still read the last values
        const bool finite =
            load_tile<Tiles::columns, Tiles::threads>(v + begin * call.value_width, call.value_width, count,
                                                      call.value_width - column, call.value_packs, tile.values);
        // Nothing but zeros comes of finite values whose weights are 0.
        const bool counts = __syncthreads_or(begin < seen || !finite);
#pragma unroll 2
        for (int key = 0; key < (counts ? count : 0); ++key) {
#pragma unroll
          for (int c = 0; c < Tiles::per_lane; ++c) {
            const W value = tile.values[key][lane * Tiles::per_lane + c];
#pragma unroll
            for (int r = 0; r < rows_per_warp; ++r) {
              mine.products[r][c] = fma_of(tile.weights[warp * rows_per_warp + r][key], value, mine.products[r][c]);
            }
          }
        }
      }
      if (by_formula) break;

      bool again = false;
#pragma unroll
      for (int r = 0; r < rows_per_warp; ++r) {
        const W sum = warp_reduce(mine.sum[r], Plus());
        // With a bias or a mask, a row that may look at nothing gives zeros, else NaN.
        const bool may_be_empty = call.bias.data != nullptr || call.mask.data != nullptr;
        factor[r] = sum == 0 ? (may_be_empty ? W(1) : quiet_nan<W>()) : 1 / sum;
#pragma unroll
        for (int c = 0; c < Tiles::per_lane; ++c) {
          mine.products[r][c] *= factor[r];
          again = again || (my_first + r < rows && sum != 0 && is_finite(sum) && !is_finite(mine.products[r][c]));
        }
      }
      if (!__syncthreads_or(again)) break;
      by_formula = true;
    }

#pragma unroll
    for (int r = 0; r < rows_per_warp; ++r) {
      store_row(call, (key_head * rows + my_first + r) * call.value_width, column + lane * Tiles::per_lane,
                my_first + r < rows, mine.products[r]);
    }
  }
}

template <class T, int rows_per_warp, int warps>
cudaError_t launch_attention(Stream stream, const AttentionCall<T>& call) {
  using Tiles = AttentionTiles<T, rows_per_warp, warps>;
  const int64_t blocks = (call.rows() + Tiles::rows_per_block - 1) / Tiles::rows_per_block * call.jobs;
  const int64_t parts = (call.value_width + Tiles::columns - 1) / Tiles::columns;
  require(parts <= 65535, "v has width ", call.value_width, "; at most ", int64_t(65535) * Tiles::columns);
  return launch(attention_kernel<T, rows_per_warp, warps>, dim3(blocks_for(blocks, 1), unsigned(parts)),
                Tiles::threads, 0, stream, call);
}

}  // namespace detail

template <class T>
cudaError_t attention(Stream stream, In<T> q, In<T> k, In<T> v, In<T> bias, In<bool> mask, bool is_causal,
                      std::optional<double> scale, Out<T> y) {
  detail::check_attention(untyped(q), untyped(k), untyped(v));
  const int64_t scores[4] = {q.size(0), q.size(1), q.size(2), k.size(2)};
  detail::AttentionCall<T> call{};
  call.q = q.data;
  call.k = k.data;
  call.v = v.data;
  call.y = y.data;
  call.heads = q.size(1);
  call.key_heads = k.size(1);
  call.queries = q.size(2);
  call.keys = k.size(2);
  call.width = q.size(3);
  call.value_width = v.size(3);
  call.jobs = q.size(0) * k.size(1);
  call.bias = detail::score_term("bias", bias, scores);
  call.mask = detail::score_term("mask", mask, scores);
  call.is_causal = is_causal;
  call.score_packs = call.width % full_pack<T> == 0 && aligned_for_packs(q.data, k.data);
  call.value_packs = call.value_width % full_pack<T> == 0 && aligned_for_packs(v.data, y.data);
  call.scale = wide_t<T>(scale ? *scale : 1 / std::sqrt(double(q.size(3))));
  if (y.numel() == 0) return cudaSuccess;
  if (call.keys == 0) return cudaMemsetAsync(y.data, 0, size_t(y.numel()) * sizeof(T), stream);
  int tactic = stream.tactic;
  if (tactic == 0) tactic = call.rows() <= 8 ? 3 : call.rows() <= 32 ? 1 : 2;
  if (tactic == 1) return detail::launch_attention<T, 4, 4>(stream, call);
  if (tactic == 2) return detail::launch_attention<T, 4, 8>(stream, call);
  return detail::launch_attention<T, 1, 4>(stream, call);
}

}  // namespace deployops
