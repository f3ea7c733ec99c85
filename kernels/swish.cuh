// x·sigmoid(β·x) with one β, or one per channel.
#pragma once

#include "deployops/cuda/channels.h"
#include "deployops/cuda/math.h"

namespace deployops {

constexpr int swish_tactics = elementwise_tactics;

namespace detail {
struct Swish {
  template <class W>
  __device__ W operator()(W v, W b) const {
    const W z = b * v;
    // A rounding error of β·x would come back β·x times as large. It is NaN where z is infinite, and then none matters.
    const W low = fma_of(b, v, -z);
    return v * logistic(z, is_finite(z) ? low : W(0));
  }
};
}  // namespace detail

template <class T>
cudaError_t swish(Stream stream, In<T> x, In<T> beta, int64_t axis, Out<T> y) {
  require(beta.rank <= 1 && beta.rank <= x.rank, "beta has ", beta.rank, " dimensions and x has ", x.rank,
          "; expected one number (shape () or (1,)) or one for each channel (shape (C,))");
  const bool shared = beta.rank == 0 || beta.size(0) == 1;
  OperandDims<2> dims;
  if (beta.rank == 0) {
    dims.dimension(x.numel(), {true, false});
  } else {
    const int channel = x.rank == 1 ? 0 : check_axis(x, axis);
    require(shared || beta.size(0) == x.size(channel), "beta holds ", beta.size(0), " numbers; x has ",
            x.size(channel), " channels (dimension ", axis, ")");
    add_channel_dimensions(dims, x, channel, {true, false}, {true, !shared});
  }
  return elementwise(stream, dims, y.data, detail::Swish(), x.data, beta.data);
}

}  // namespace deployops
