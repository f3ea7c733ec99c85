// One number per channel: the channels of a tensor are its dimension `axis`.
#pragma once

#include "deployops/cuda/elementwise.h"

namespace deployops {

// The dimension that `axis` means; negative ones count from the last.
template <class T>
int check_axis(In<T> x, int64_t axis) {
  require(-x.rank <= axis && axis < x.rank, "axis = ", axis, ", but x has ", x.rank, " dimensions");
  return int(axis < 0 ? axis + x.rank : axis);
}

// The dims of x as (outer, channels, inner), with the operands that are there in each.
template <class T, int K>
void add_channel_dimensions(OperandDims<K>& dims, In<T> x, int channel, const bool (&elsewhere)[K],
                            const bool (&along_channels)[K]) {
  dims.dimension(x.numel(0, channel), elsewhere);
  dims.dimension(x.size(channel), along_channels);
  dims.dimension(x.numel(channel + 1, x.rank), elsewhere);
}

}  // namespace deployops
