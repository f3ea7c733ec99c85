// One number per channel: the channels of a tensor are its dimension `axis`.
#pragma once

#include "deployops/repeated.h"

namespace deployops {

// The dimension that `axis` means; negative ones count from the last.
template <class T>
int check_axis(In<T> x, int64_t axis) {
  require(-x.rank <= axis && axis < x.rank, "axis = ", axis, ", but x has ", x.rank, " dimensions");
  return int(axis < 0 ? axis + x.rank : axis);
}

// The dims of x as (outer, channels, inner), with the operands that are there in each.
template <class T, int N>
void add_channel_dimensions(RepeatedLayout<N>& layout, In<T> x, int channel, const std::array<bool, N>& elsewhere,
                            const std::array<bool, N>& along_channels) {
  layout.dimension(x.numel(0, channel), elsewhere);
  layout.dimension(x.size(channel), along_channels);
  layout.dimension(x.numel(channel + 1, x.rank), elsewhere);
}

}  // namespace deployops
