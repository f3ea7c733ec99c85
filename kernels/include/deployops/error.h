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

namespace detail {
// Apart from the check, so that a kernel carries the call alone.
template <class... Pieces>
[[noreturn, gnu::cold, gnu::noinline]] void refuse(const Pieces&... pieces) {
  std::ostringstream text;
  (text << ... << pieces);
  throw InputError(text.str());
}
}  // namespace detail

// Throws InputError with the pieces put together: require(w.size(0) == c, "weight holds ", w.size(0), "; expected ", c).
template <class... Pieces>
inline void require(bool holds, const Pieces&... pieces) {
  if (__builtin_expect(!holds, 0)) detail::refuse(pieces...);
}

}  // namespace deployops
