// Errors of kernels: what was got and what was expected. The adapter adds the operator and the node.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace deployops {

// An input that the operator does not take.
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws InputError with the pieces put together: require(w.size(0) == c, "weight holds ", w.size(0), "; expected ", c).
template <class... Pieces>
inline void require(bool holds, const Pieces&... pieces) {
  if (__builtin_expect(holds, 1)) return;
  std::ostringstream text;
  (text << ... << pieces);
  throw InputError(text.str());
}

}  // namespace deployops
