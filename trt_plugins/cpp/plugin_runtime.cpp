// What a plugin does in a running engine, and the memory that it needs for it; what else it says while an engine is built is
// in plugin.cpp.
#include <sstream>
#include <stdexcept>

#include "data_types.h"
#include "deployops/workspace.h"
#include "messages.h"
#include "plugin.h"

namespace deployops::trt {

using nvinfer1::DynamicPluginTensorDesc;
using nvinfer1::PluginTensorDesc;

namespace {

TensorRef tensor(const PluginTensorDesc& desc, const nvinfer1::Dims& dims, const void* data) {
  TensorRef t;
  t.data = const_cast<void*>(data);
  t.sizes = dims.d;
  t.rank = dims.nbDims;
  t.dtype = onnx_type(desc.type);
  return t;
}

const Parallel one_thread;

}  // namespace

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

template <class TypeOf>
size_t Plugin::row_of(int32_t input_count, const TypeOf& type_of) const {
  size_t row = 0;
  while (row < spec_.rows.count && !inputs_.takes(spec_.rows[row], input_count - 1, input_count, type_of)) ++row;
  require(row < spec_.rows.count, "no kernel for these dtypes; there are kernels for: ", kernels_there(spec_));
  return row;
}

OperatorCall Plugin::called(const std::vector<TensorRef>& given, const std::vector<TensorRef>& made,
                            int32_t input_count) const {
  OperatorCall call{};
  call.parallel = &one_thread;
  call.inputs = given.data();
  call.input_count = inputs_.given(input_count);  // a list ends there
  call.attributes = attributes_->refs();
  call.outputs = made.data();
  return call;
}

size_t Plugin::getWorkspaceSize(const DynamicPluginTensorDesc* inputs, int32_t input_count,
                                const DynamicPluginTensorDesc* outputs, int32_t output_count) const noexcept {
  if (spec_.launcher()->workspace == nullptr) return 0;
  return guarded([this] { return title(); }, size_t(0), [&]() -> size_t {
    check_counts(input_count, output_count);
    const size_t row = row_of(input_count, [&](int32_t k) { return inputs[k].desc.type; });
    reserved_->add(row, 0);  // where what follows fails, nothing is reserved, and a run is told so
    std::vector<TensorRef> given(inputs_.slots(input_count)), made(static_cast<size_t>(output_count));
    for (int32_t k = 0; k < input_count; ++k) {
      if (!inputs_.stands_in(k)) given[inputs_.slot(k)] = tensor(inputs[k].desc, inputs[k].max, nullptr);
    }
    for (size_t k = 0; k < made.size(); ++k) made[k] = tensor(outputs[k].desc, outputs[k].max, nullptr);
    std::vector<SymbolicShape> bounds;
    bound_sizes(given, made, bounds);
    for (const std::vector<TensorRef>* tensors : {&given, &made}) {
      for (const TensorRef& t : *tensors) {
        for (int d = 0; d < t.rank; ++d) {
          require(t.sizes[d] >= 0, "TensorRT asks how much workspace is needed, and gives no upper bound of a size");
        }
      }
    }
    const size_t bytes = spec_.launcher()->workspace(called(given, made, input_count), row);
    const size_t reserved = reserved_for(bytes);
    reserved_->add(row, bytes);
    return reserved;
  });
}

int32_t Plugin::enqueue(const PluginTensorDesc* in, const PluginTensorDesc* out, const void* const* inputs,
                        void* const* outputs, void* workspace, cudaStream_t stream) noexcept {
  return guarded([this] { return title(); }, failed, [&]() -> int32_t {
    require(input_count_ > 0, "it is run before its shapes are known");
    std::vector<TensorRef> given(inputs_.slots(input_count_)), made(static_cast<size_t>(getNbOutputs()));
    for (int32_t k = 0; k < input_count_; ++k) {
      if (!inputs_.stands_in(k)) given[inputs_.slot(k)] = tensor(in[k], in[k].dims, inputs[k]);
    }
    for (size_t k = 0; k < made.size(); ++k) made[k] = tensor(out[k], out[k].dims, outputs[k]);
    std::vector<SymbolicShape> bounds;
    bound_sizes(given, made, bounds);

    const size_t row = row_of(input_count_, [&](int32_t k) { return in[k].type; });
    const OperatorCall call = called(given, made, input_count_);
    const Launcher& launcher = *spec_.launcher();
    const size_t scratch = launcher.workspace == nullptr ? 0 : launcher.workspace(call, row);
    if (scratch != 0) reserved_->expect(row, scratch, workspace);
    copy_overwritten(given, made, out, stream);
    const cudaError_t error =
        launcher.launch(call, row, stream, tactic_, scratch == 0 ? nullptr : workspace_in(workspace));
    if (error == cudaSuccess) return 0;
    std::ostringstream text;
    text << spec_.rows[row].label << ", tactic " << tactic_ << ": " << cudaGetErrorName(error) << ": "
         << cudaGetErrorString(error);
    report_error(title() + text.str());
    return int32_t(error);
  });
}

}  // namespace deployops::trt
