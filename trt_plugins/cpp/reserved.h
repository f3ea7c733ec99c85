// How much workspace TensorRT reserves for a node, by combination of dtypes. It asks one clone of a plugin, serialises
// another, and runs a third, so that they share what was answered; an engine carries it along.
#pragma once

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "tensorrt.h"
#include "deployops/error.h"

namespace deployops::trt {

class Reserved {
 public:
  // The field of serialised plugins that holds it.
  static constexpr const char* field = "deployops_workspace";

  // Throws InputError for a field that was not written by `numbers`.
  Reserved(size_t rows, const nvinfer1::PluginFieldCollection& fields) : bytes_(rows, unknown) {
    for (int32_t k = 0; k < fields.nbFields; ++k) {
      const nvinfer1::PluginField& f = fields.fields[k];
      if (f.name == nullptr || std::string(f.name) != field) continue;
      require(f.type == nvinfer1::PluginFieldType::kINT64 && f.data != nullptr && size_t(f.length) == rows, "attribute `",
              field, "` is not what this library writes into engines: build the engine again");
      std::copy_n(static_cast<const int64_t*>(f.data), rows, bytes_.begin());
    }
  }

  void add(size_t row, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes_[row] = std::max(bytes_[row], int64_t(bytes));
  }

  // Throws InputError where a run needs more than there is.
  void expect(size_t row, size_t bytes, const void* memory) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int64_t there = bytes_[row];
    require(there == unknown || bytes <= size_t(there), "the kernel needs ", bytes, " bytes of workspace for these shapes; ",
            there, " were reserved when the engine was built, for the largest shapes of its profiles: NAME_workspace may "
            "not give less for larger tensors");
    require(memory != nullptr, "the kernel needs ", bytes, " bytes of workspace, and TensorRT gives none");
  }

  // By combination, −1 where TensorRT never asked; empty where no byte is reserved.
  std::vector<int64_t> numbers() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool some = std::any_of(bytes_.begin(), bytes_.end(), [](int64_t n) { return n > 0; });
    return some ? bytes_ : std::vector<int64_t>();
  }

 private:
  static constexpr int64_t unknown = -1;
  mutable std::mutex mutex_;
  std::vector<int64_t> bytes_;
};

}  // namespace deployops::trt
