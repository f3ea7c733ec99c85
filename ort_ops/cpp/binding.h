// An operator of the table as ONNX Runtime knows it, a node of an opened model, and the tensors of a call: the same for
// every target.
#pragma once

// Loops here are over a few tensors and dims: vectors only make them longer.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-vectorize", "no-tree-loop-distribute-patterns")
#endif

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "attributes.h"

namespace deployops::ort {
namespace {

constexpr size_t few = 8;  // tensors that need no allocation

// An array on the stack where it is small; only `count` elements are made.
template <class T>
class Array {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  explicit Array(size_t count) : many_(count > few ? new T[count] : nullptr), data_(many_) {
    if (many_ != nullptr) return;
    data_ = reinterpret_cast<T*>(own_);
    for (size_t k = 0; k < count; ++k) new (data_ + k) T;
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { delete[] many_; }
  T* data() { return data_; }
  T& operator[](size_t i) { return data_[i]; }

 private:
  alignas(T) unsigned char own_[few * sizeof(T)];
  T* many_;
  T* data_;
};

struct Dims {
  int64_t sizes[max_rank];
};

struct Binding;

struct CustomOp : OrtCustomOp {
  const Binding* binding;
  const OperatorSpec* spec;
  const RowSpec* row;
  KernelEntry entry;
};

// What belongs to one ONNX Runtime in the process.
struct Binding {
  Api api;
  OrtMemoryInfo* memory = nullptr;  // for scratch memory, where a target knows it beforehand
  std::vector<std::unique_ptr<CustomOp>> operators;
  std::vector<OrtCustomOpDomain*> domains;
};

// A node of an opened model.
struct Kernel {
  const CustomOp& op;
  std::string node;
  Attributes attributes;
  // How many inputs and outputs the node has, both at least one: it tells in the first call.
  mutable std::atomic<size_t> given{0}, wanted{0};

  Kernel(const CustomOp& made_for, const OrtKernelInfo* info)
      : op(made_for), node(name_of(made_for, info)), attributes(op.binding->api, info, op.spec->attributes) {}

  static std::string name_of(const CustomOp& op, const OrtKernelInfo* info) {
    char name[256];
    size_t size = sizeof name;
    if (Status(op.binding->api, op.binding->api.KernelInfo_GetNodeName(info, name, &size))) return "";
    return std::string(name, size > 0 ? size - 1 : 0);
  }
};

// "acme::Swish (float16, node 'n3'): "
std::string title(const CustomOp& op, const std::string& node) {
  std::string text = std::string(op.spec->domain) + "::" + op.spec->op_type + " (" + op.row->label;
  if (!node.empty()) text += ", node '" + node + "'";
  return text + "): ";
}

// One of them, which `ask` finds out; the same for all calls, so that it does not matter which one sets it.
size_t counted(const Api& api, std::atomic<size_t>& count, OrtKernelContext* context,
               OrtStatus* (*ask)(const OrtKernelContext*, size_t*)) {
  size_t known = count.load(std::memory_order_relaxed);
  if (known == 0) {
    check(api, ask(context, &known));
    count.store(known, std::memory_order_relaxed);
  }
  return known;
}

template <class F>
OrtStatus* guarded(const CustomOp& op, const std::string& node, F&& f) noexcept {
  const Api& api = op.binding->api;
  try {
    f();
    return nullptr;
  } catch (const InputError& e) {
    return api.CreateStatus(invalid_argument, (title(op, node) + e.what()).c_str());
  } catch (const std::bad_alloc&) {
    return api.CreateStatus(fail, (title(op, node) + "there is not enough memory").c_str());
  } catch (const std::exception& e) {
    return api.CreateStatus(fail, (title(op, node) + e.what()).c_str());
  } catch (...) {
    return api.CreateStatus(fail, (title(op, node) + "the kernel threw something that is no std::exception").c_str());
  }
}

// --- one call ------------------------------------------------------------------------------------------------

// Reads type and shape of a tensor that may be absent; `held` is where its sizes may be kept.
void read_tensor(const Api& api, const OrtValue* value, Dims& held, TensorRef& tensor) {
  if (value == nullptr) return;
  size_t rank = 0;
  int dtype = 0;
  if (api.GetTensorElementTypeAndShapeDataReference != nullptr) {
    check(api, api.GetTensorElementTypeAndShapeDataReference(value, &dtype, &tensor.sizes, &rank));
    require(rank <= max_rank, "an input has ", rank, " dimensions; at most ", max_rank, " are supported");
  } else {
    OrtTensorTypeAndShapeInfo* info = nullptr;
    check(api, api.GetTensorTypeAndShape(value, &info));
    const std::unique_ptr<OrtTensorTypeAndShapeInfo, void (*)(OrtTensorTypeAndShapeInfo*)> owner(
        info, api.ReleaseTensorTypeAndShapeInfo);
    check(api, api.GetDimensionsCount(info, &rank));
    require(rank <= max_rank, "an input has ", rank, " dimensions; at most ", max_rank, " are supported");
    check(api, api.GetDimensions(info, held.sizes, rank));
    check(api, api.GetTensorElementType(info, &dtype));
    tensor.sizes = held.sizes;
  }
  tensor.rank = int32_t(rank);
  tensor.dtype = dtype;
  check(api, api.GetTensorMutableData(const_cast<OrtValue*>(value), &tensor.data));
}

size_t bytes_of(const TensorRef& t) {
  // TensorProto.DataType of the types that kernels know; 0 for the others
  static constexpr uint8_t widths[] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 8, 16, 2};
  size_t bytes = size_t(t.dtype) < sizeof widths ? widths[t.dtype] : 0;
  for (int d = 0; d < t.rank; ++d) bytes *= size_t(t.sizes[d]);
  return bytes;
}

bool overlap(const TensorRef& a, size_t bytes, const TensorRef& b) {
  const auto first = reinterpret_cast<uintptr_t>(a.data), second = reinterpret_cast<uintptr_t>(b.data);
  return first < second + bytes_of(b) && second < first + bytes;
}

}  // namespace
}  // namespace deployops::ort
