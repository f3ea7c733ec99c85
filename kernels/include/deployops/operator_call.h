// One call of an operator, as the adapters (ONNX Runtime, torch) hand it to the generated entry of a kernel.
// Plain data. The generated entry makes typed views of it; see native/templates/kernel_entries.cpp.j2.
#pragma once

#include <optional>
#include <string_view>
#include <type_traits>

#include "deployops/parallel.h"
#include "deployops/tensor.h"

namespace deployops {

struct TensorRef {
  void* data = nullptr;
  const int64_t* sizes = nullptr;
  int32_t rank = -1;  // −1: absent
  int32_t dtype = 0;  // TensorProto.DataType
};

// The value of an attribute; which field counts is known from the declaration.
struct AttributeRef {
  bool present = false;
  int64_t i = 0;
  double f = 0;
  const char* s = nullptr;
  size_t count = 0;                // of the list, or the length of the string
  const int64_t* ints = nullptr;
  const double* floats = nullptr;
  const std::string_view* strings = nullptr;
};

struct OperatorCall {
  const Parallel* parallel;
  const TensorRef* inputs;  // in ONNX order; absent optional ones have rank −1
  size_t input_count;
  const AttributeRef* attributes;  // in the order of the declaration
  const TensorRef* outputs;        // allocated, except those that the kernel allocates
  void* owner;                     // for `NewOut`
  void* (*request)(void* owner, size_t output, const int64_t* sizes, int rank, const int64_t** kept);
};

// Runs the kernel for one combination of dtypes. Throws what the kernel throws.
using KernelEntry = void (*)(const OperatorCall&);

namespace detail {

template <class T>
In<T> input(const OperatorCall& call, size_t index) {
  In<T> view;
  if (index >= call.input_count) return view;
  const TensorRef& t = call.inputs[index];
  view.data = static_cast<const T*>(t.data);
  view.sizes = t.sizes;
  view.rank = t.rank;
  return view;
}

template <class T>
Out<T> output(const OperatorCall& call, size_t index) {
  Out<T> view;
  view.data = static_cast<T*>(call.outputs[index].data);
  view.sizes = call.outputs[index].sizes;
  view.rank = call.outputs[index].rank;
  return view;
}

template <class T>
NewOut<T> new_output(const OperatorCall& call, size_t index) {
  NewOut<T> made;
  made.owner = call.owner;
  made.request = call.request;
  made.output = index;
  return made;
}

// The value of an attribute as the kernel's parameter has it.
template <class T> struct AttributeAs;
template <> struct AttributeAs<int64_t> {
  static int64_t of(const AttributeRef& a) { return a.i; }
};
template <> struct AttributeAs<bool> {
  static bool of(const AttributeRef& a) { return a.i != 0; }
};
template <> struct AttributeAs<double> {
  static double of(const AttributeRef& a) { return a.f; }
};
template <> struct AttributeAs<std::string_view> {
  static std::string_view of(const AttributeRef& a) { return {a.s, a.count}; }
};
template <> struct AttributeAs<Span<int64_t>> {
  static Span<int64_t> of(const AttributeRef& a) { return {a.ints, a.count}; }
};
template <> struct AttributeAs<Span<double>> {
  static Span<double> of(const AttributeRef& a) { return {a.floats, a.count}; }
};
template <> struct AttributeAs<Span<std::string_view>> {
  static Span<std::string_view> of(const AttributeRef& a) { return {a.strings, a.count}; }
};
template <class T> struct AttributeAs<std::optional<T>> {
  static std::optional<T> of(const AttributeRef& a) {
    return a.present ? std::optional<T>(AttributeAs<T>::of(a)) : std::nullopt;
  }
};

// An attribute as the argument of a kernel, for a parameter of type T, const T, or const T&, and for no other: C++ would turn
// an int64_t into a double or a bool without a word, and so take two attributes in the wrong order.
template <class T>
class Attribute {
 public:
  Attribute(const OperatorCall& call, size_t index) : value_(AttributeAs<T>::of(call.attributes[index])) {}
  // Not to be copied: a parameter of any type (`auto`) would be a copy of this, not a T.
  Attribute(const Attribute&) = delete;
  Attribute& operator=(const Attribute&) = delete;
  const Attribute& exact() const { return *this; }

  template <class U, std::enable_if_t<std::is_same_v<std::remove_cv_t<U>, T>, int> = 0>
  operator U() const {
    return value_;
  }
  // An std::optional<T> would else make itself of this.
  template <class U, std::enable_if_t<std::is_same_v<U, T>, int> = 0>
  operator std::optional<U>() const = delete;

 private:
  T value_;
};

// How many tensors the list after `singles` other inputs holds.
inline size_t list_size(const OperatorCall& call, size_t singles) {
  return call.input_count > singles ? call.input_count - singles : 0;
}

// The length of one of several lists, which an attribute of the node says; `first` is where it begins.
inline size_t list_length(const OperatorCall& call, size_t attribute, size_t first) {
  const int64_t count = call.attributes[attribute].i;
  require(count >= 0 && first + size_t(count) <= call.input_count, "the node says that a list has ", count,
          " tensors; it has ", call.input_count, " inputs in all, of which ", first, " come before it");
  return size_t(count);
}

// The tensors of a list, held while the kernel runs.
template <class T>
class InputList {
 public:
  InputList(const OperatorCall& call, size_t first, size_t count)
      : held_(call.parallel->scratch<In<T>>(int64_t(count))), count_(count) {
    for (size_t k = 0; k < count; ++k) held_[int64_t(k)] = input<T>(call, first + k);
  }
  InList<T> view() const {
    InList<T> list;
    list.first = held_.data();
    list.count = count_;
    return list;
  }

 private:
  Scratch<In<T>> held_;
  size_t count_;
};

}  // namespace detail
}  // namespace deployops
