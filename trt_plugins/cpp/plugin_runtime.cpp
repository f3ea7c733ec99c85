// What a plugin does in a running engine; what it says while one is built is in plugin.cpp.
#include <sstream>
#include <stdexcept>

#include "data_types.h"
#include "messages.h"
#include "plugin.h"

namespace deployops::trt {

using nvinfer1::PluginTensorDesc;

int32_t Plugin::setTactic(int32_t tactic) noexcept {
  return guarded([this] { return title(); }, failed, [&] {
    const int tactics = spec_.launcher()->tactics;
    require(tactic >= 0 && tactic <= tactics, "tactic ", tactic, " is asked for; there are ", tactics);
    tactic_ = tactic == 0 ? 0 : tactic - 1;
    return 0;
  });
}

int32_t Plugin::onShapeChange(const PluginTensorDesc*, int32_t inputs, const PluginTensorDesc*,
                              int32_t outputs) noexcept {
  return guarded([this] { return title(); }, failed, [&] {
    check_counts(inputs, outputs);
    input_count_ = inputs;
    return 0;
  });
}

void Plugin::bound_sizes(const std::vector<TensorRef>& given, std::vector<TensorRef>& made,
                         std::vector<SymbolicShape>& shapes) const {
  if (spec_.data_sizes.count == 0) return;
  std::vector<SymbolicTensor> tensors(given.size());
  for (size_t k = 0; k < given.size(); ++k) tensors[k] = {given[k].rank, nullptr, nullptr, given[k].sizes};
  shapes.resize(spec_.outputs.count);
  spec_.shapes(tensors.data(), shapes.data());
  for (size_t k = 0; k < shapes.size(); ++k) {
    for (int d = 0; d < shapes[k].rank; ++d) {
      shapes[k].numbers[d] = shapes[k].sizes[d].value();
      require(spec_.data_sizes.numbers[k][d] < 0 || shapes[k].numbers[d] <= INT32_MAX, "dimension ", d, " of `",
              spec_.outputs[k].name, "` may be ", shapes[k].numbers[d], "; TensorRT's sizes have 32 bits");
    }
    made[k].sizes = shapes[k].numbers;
    made[k].rank = shapes[k].rank;
  }
}

void Plugin::copy_overwritten(const std::vector<TensorRef>& given, const std::vector<TensorRef>& made,
                              const PluginTensorDesc* out, cudaStream_t stream) const {
  for (size_t k = 0; k < spec_.outputs.count; ++k) {
    const int from = spec_.outputs[k].overwrites;
    if (from < 0 || given[size_t(from)].data == made[k].data) continue;
    size_t bytes = bytes_of(out[k].type);
    for (int d = 0; d < made[k].rank; ++d) bytes *= size_t(made[k].sizes[d]);
    if (bytes == 0) continue;
    const cudaError_t copied =
        cudaMemcpyAsync(made[k].data, given[size_t(from)].data, bytes, cudaMemcpyDeviceToDevice, stream);
    if (copied != cudaSuccess) throw std::runtime_error(cudaGetErrorString(copied));
  }
}

int32_t Plugin::enqueue(const PluginTensorDesc* in, const PluginTensorDesc* out, const void* const* inputs,
                        void* const* outputs, void*, cudaStream_t stream) noexcept {
  return guarded([this] { return title(); }, failed, [&]() -> int32_t {
    require(input_count_ > 0, "it is run before its shapes are known");
    const auto tensor = [](const PluginTensorDesc& desc, const void* data) {
      TensorRef t;
      t.data = const_cast<void*>(data);
      t.sizes = desc.dims.d;
      t.rank = desc.dims.nbDims;
      t.dtype = onnx_type(desc.type);
      return t;
    };
    std::vector<TensorRef> given(inputs_.slots(input_count_)), made(static_cast<size_t>(getNbOutputs()));
    for (int32_t k = 0; k < input_count_; ++k) {
      if (!inputs_.stands_in(k)) given[inputs_.slot(k)] = tensor(in[k], inputs[k]);
    }
    for (size_t k = 0; k < made.size(); ++k) made[k] = tensor(out[k], outputs[k]);
    std::vector<SymbolicShape> bounds;
    bound_sizes(given, made, bounds);

    size_t row = 0;
    const auto type_of = [&](int32_t k) { return in[k].type; };
    while (row < spec_.rows.count && !inputs_.takes(spec_.rows[row], input_count_ - 1, input_count_, type_of)) ++row;
    require(row < spec_.rows.count, "no kernel for these dtypes; there are kernels for: ", kernels_there(spec_));
    copy_overwritten(given, made, out, stream);

    const Parallel one_thread;
    OperatorCall call{};
    call.parallel = &one_thread;
    call.inputs = given.data();
    call.input_count = inputs_.given(input_count_);  // a list ends there
    call.attributes = attributes_->refs();
    call.outputs = made.data();
    const cudaError_t error = spec_.launcher()->launch(call, row, stream, tactic_);
    if (error == cudaSuccess) return 0;
    std::ostringstream text;
    text << spec_.rows[row].label << ", tactic " << tactic_ << ": " << cudaGetErrorName(error) << ": "
         << cudaGetErrorString(error);
    report_error(title() + text.str());
    return int32_t(error);
  });
}

}  // namespace deployops::trt
