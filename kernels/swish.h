// x·sigmoid(β·x) with one β, or one per channel: at most 3 ULP off, 0.55 in halves.
#pragma once

#include "deployops/channels.h"
#include "deployops/elementwise.h"
#include "deployops/tensor.h"
#include "deployops/vector_math.h"

namespace deployops {

template <class T>
void swish(const Parallel& par, In<T> x, In<T> beta, int64_t axis, Out<T> y) {
  using W = wide_t<T>;
  require(beta.rank <= 1 && beta.rank <= x.rank, "beta has ", beta.rank, " dimensions and x has ", x.rank,
          "; expected one number (shape () or (1,)) or one for each channel (shape (C,))");
  const bool shared = beta.rank == 0 || beta.size(0) == 1;
  RepeatedLayout<2> layout;
  if (beta.rank == 0) {
    layout.dimension(x.numel(), {true, false});
  } else {
    const int channel = x.rank == 1 ? 0 : check_axis(x, axis);
    require(shared || beta.size(0) == x.size(channel), "beta holds ", beta.size(0), " numbers; x has ",
            x.size(channel), " channels (dimension ", axis, ")");
    add_channel_dimensions(layout, x, channel, {true, false}, {true, !shared});
  }
  // A rounding error of β·x would come back β·x times as large.
  auto product = [](vec<W> v, vec<W> b) {
    const vec<W> z = b * v;
    if constexpr (std::is_same_v<T, W>) {
      return times_logistic<T>(v, z, rounding_of_product(b, v, z));
    } else {
      return times_logistic<T>(v, z);
    }
  };
  elementwise<Cost::arithmetic>(par, layout, y.data, product, x.data, beta.data);
}

}  // namespace deployops
