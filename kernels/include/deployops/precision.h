// How exact a mathematical function has to be.
#pragma once

#include "deployops/dtypes.h"

namespace deployops::detail {

// From the type that its result is rounded to: float, double, or float16 for both halves, which need fewer digits.
template <class T>
using precision = std::conditional_t<std::is_same_v<T, wide_t<T>>, T, float16>;

}  // namespace deployops::detail
