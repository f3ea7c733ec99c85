// Tensor views: where the numbers are and what shape they have. Dense, the last dimension is contiguous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <ostream>

#include "deployops/dtypes.h"
#include "deployops/error.h"

namespace deployops {

constexpr int max_rank = 16;

namespace detail {

template <class T>
struct View {
  T* data = nullptr;
  const int64_t* sizes = nullptr;
  int rank = -1;  // −1: an optional input that is absent

  // Size of a dimension; negative ones count from the last.
  int64_t size(int dim) const {
    require(dim >= -rank && dim < rank, "a tensor of shape ", *this, " has no dimension ", dim);
    return sizes[dim < 0 ? dim + rank : dim];
  }

  // Number of elements; of the dimensions from `first` to before `last`.
  int64_t numel() const { return numel(0, rank); }
  int64_t numel(int first, int last) const {
    int64_t n = 1;
    for (int d = first; d < last; ++d) n *= sizes[d];
    return n;
  }

  T& operator[](int64_t i) const { return data[i]; }

  // Whether an optional input is there.
  explicit operator bool() const { return rank >= 0; }

  // (2, 3, 4), for messages.
  friend std::ostream& operator<<(std::ostream& out, const View& v) {
    out << '(';
    for (int d = 0; d < v.rank; ++d) out << (d ? ", " : "") << v.sizes[d];
    return out << (v.rank == 1 ? ",)" : ")");
  }
};

}  // namespace detail

// An input. A tensor without elements may have no address.
template <class T> struct In : detail::View<const T> {};

// An output, allocated, with undefined content; for an argument that the operator writes into: with its content.
template <class T> struct Out : detail::View<T> {};

// The tensors of a `Tensor[]` argument.
template <class T>
struct InList {
  const In<T>* first = nullptr;
  size_t count = 0;
  size_t size() const { return count; }
  const In<T>& operator[](size_t i) const { return first[i]; }
  const In<T>* begin() const { return first; }
  const In<T>* end() const { return first + count; }
};

// A list attribute (`int[]`, `float[]`).
template <class T>
struct Span {
  const T* first = nullptr;
  size_t count = 0;
  size_t size() const { return count; }
  const T& operator[](size_t i) const { return first[i]; }
  const T* begin() const { return first; }
  const T* end() const { return first + count; }
};

// An output whose shape only the kernel knows: it calls `allocate` exactly once, on the calling thread.
template <class T>
struct NewOut {
  void* owner = nullptr;
  void* (*request)(void* owner, size_t output, const int64_t* sizes, int rank, const int64_t** kept) = nullptr;
  size_t output = 0;

  Out<T> allocate(const int64_t* sizes, int rank) const {
    require(rank <= max_rank, "an output of rank ", rank, " was asked for; at most ", max_rank);
    for (int d = 0; d < rank; ++d) require(sizes[d] >= 0, "dimension ", d, " of an output would be ", sizes[d]);
    Out<T> made;
    made.data = static_cast<T*>(request(owner, output, sizes, rank, &made.sizes));
    made.rank = rank;
    if (made.sizes == nullptr) throw std::bad_alloc();
    return made;
  }
  Out<T> allocate(std::initializer_list<int64_t> sizes) const { return allocate(sizes.begin(), int(sizes.size())); }
};

}  // namespace deployops
