// The attributes of a node, read once when its kernel is made.
#pragma once

#include <algorithm>
#include <charconv>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "deployops/operator_table.h"
#include "ort_abi.h"

namespace deployops::ort {

// Owns a status; true where the call failed.
class Status {
 public:
  Status(const Api& api, OrtStatus* status) : api_(api), status_(status) {}
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;
  ~Status() {
    if (status_ != nullptr) api_.ReleaseStatus(status_);
  }
  explicit operator bool() const { return status_ != nullptr; }
  std::string message() const { return status_ == nullptr ? "" : api_.GetErrorMessage(status_); }

 private:
  const Api& api_;
  OrtStatus* status_;
};

inline void check(const Api& api, OrtStatus* status) {
  if (__builtin_expect(status == nullptr, 1)) return;
  throw std::runtime_error(Status(api, status).message());
}

// ONNX keeps numbers as float32: 1e-5 comes back as 0.00000999999974738. The number that was meant is the shortest
// decimal one that rounds to it, and what the original computes with in float64.
inline double decimal(float number) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, number).ptr;
  double meant = number;
  std::from_chars(text, end, meant);
  return meant;
}

// Values of attributes by the declaration's order, and the memory that they point to.
class Attributes {
 public:
  Attributes(const Api& api, const OrtKernelInfo* info, Table<AttributeSpec> specs) : api_(api), info_(info) {
    for (const AttributeSpec& spec : specs) {
      AttributeRef value;
      if (read(spec, spec.kind, value)) {
        value.present = true;
        // ONNX Runtime gives an empty list for an attribute that is none, or a list of another type.
        if (is_list(spec.kind) && value.count == 0) refuse_other_type(spec);
      } else {
        refuse_other_type(spec);
        require(!spec.required, "the attribute `", spec.name, "` (", name_of(spec.kind), ") is missing");
        value = spec.fallback;
      }
      values_.push_back(value);
    }
  }

  const AttributeRef* data() const { return values_.data(); }

 private:
  static const char* name_of(AttributeKind kind) {
    constexpr const char* names[] = {"INT", "FLOAT", "STRING", "INTS", "FLOATS", "STRINGS"};
    return names[int(kind)];
  }

  static bool is_list(AttributeKind kind) { return kind >= AttributeKind::integers; }

  // ONNX Runtime says the same of an attribute that is not there and of one of another type: ask for the others.
  void refuse_other_type(const AttributeSpec& spec) {
    for (AttributeKind other : {AttributeKind::integer, AttributeKind::real, AttributeKind::text,
                                AttributeKind::integers, AttributeKind::reals}) {
      AttributeRef value;
      const bool there = other != spec.kind && read(spec, other, value) && (!is_list(other) || value.count > 0);
      require(!there, "the attribute `", spec.name, "` is of type ",
              name_of(other), "; expected ", name_of(spec.kind));
    }
  }

  bool read(const AttributeSpec& spec, AttributeKind kind, AttributeRef& value) {
    switch (kind) {
      case AttributeKind::integer:
        return !Status(api_, api_.KernelInfoGetAttribute_int64(info_, spec.name, &value.i));
      case AttributeKind::real: {
        float number = 0;
        const bool found = !Status(api_, api_.KernelInfoGetAttribute_float(info_, spec.name, &number));
        value.f = decimal(number);
        return found;
      }
      case AttributeKind::text: {
        size_t size = 0;
        if (Status(api_, api_.KernelInfoGetAttribute_string(info_, spec.name, nullptr, &size)) || size == 0) {
          return false;
        }
        std::string& text = texts_.emplace_back(size, '\0');
        if (Status(api_, api_.KernelInfoGetAttribute_string(info_, spec.name, text.data(), &size))) return false;
        text.resize(size - 1);  // the size counts the NUL
        value.s = text.c_str();
        value.count = text.size();
        return true;
      }
      case AttributeKind::integers: {
        size_t size = 0;
        if (Status(api_, api_.KernelInfoGetAttributeArray_int64(info_, spec.name, nullptr, &size))) return false;
        std::vector<int64_t>& list = integers_.emplace_back(size);
        if (size != 0 && Status(api_, api_.KernelInfoGetAttributeArray_int64(info_, spec.name, list.data(), &size))) {
          return false;
        }
        value.ints = list.data();
        value.count = size;
        return true;
      }
      case AttributeKind::reals: {
        size_t size = 0;
        if (Status(api_, api_.KernelInfoGetAttributeArray_float(info_, spec.name, nullptr, &size))) return false;
        std::vector<float> narrow(size);
        if (size != 0 && Status(api_, api_.KernelInfoGetAttributeArray_float(info_, spec.name, narrow.data(), &size))) {
          return false;
        }
        std::vector<double>& list = reals_.emplace_back(size);
        std::transform(narrow.begin(), narrow.end(), list.begin(), decimal);
        value.floats = list.data();
        value.count = size;
        return true;
      }
      case AttributeKind::texts:
        return false;  // ONNX Runtime's interface for kernels has no list of strings: refused when compiling
    }
    return false;
  }

  const Api& api_;
  const OrtKernelInfo* info_;
  std::vector<AttributeRef> values_;
  std::deque<std::string> texts_;
  std::deque<std::vector<int64_t>> integers_;
  std::deque<std::vector<double>> reals_;
};

}  // namespace deployops::ort
