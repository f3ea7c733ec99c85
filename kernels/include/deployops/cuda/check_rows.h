// Shapes that operators on rows take.
#pragma once

#include "deployops/untyped.h"

namespace deployops {

// `v`, which may be absent, has a number for each place in a row of x.
inline void check_row_vector(const char* name, In<char> v, In<char> x) {
  require(x.rank > 0, "x has no dimension to normalise over");
  if (!v) return;
  require(v.rank == 1, name, " has ", v.rank, " dimensions; expected 1");
  require(v.size(0) == x.size(-1), name, " holds ", v.size(0), " numbers; the last dimension of x has ", x.size(-1));
}

}  // namespace deployops
