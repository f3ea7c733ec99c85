#include "plugin.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "data_types.h"
#include "messages.h"

namespace deployops::trt {
namespace {

using nvinfer1::DataType;
using nvinfer1::DynamicPluginTensorDesc;
using nvinfer1::IPluginV3;
using nvinfer1::PluginField;
using nvinfer1::PluginFieldCollection;
using nvinfer1::PluginTensorDesc;

constexpr int32_t failed = -1;
// A field of serialised plugins only: which declaration the attributes are of.
constexpr const char* fingerprint_field = "deployops_fingerprint";

std::string title_of(const PluginSpec& spec, const std::string& node) {
  std::string text = std::string(spec.domain) + "::" + spec.op_type;
  if (!node.empty()) text += " (node '" + node + "')";
  return text + ": ";
}

std::string labels(const PluginSpec& spec) {
  std::string text;
  for (const RowSpec& row : spec.rows) text += (text.empty() ? "" : "; ") + std::string(row.label);
  return text;
}

}  // namespace

Plugin::Plugin(const PluginSpec& spec, const char* node, const PluginFieldCollection& fields)
    : spec_(spec),
      node_(node == nullptr ? "" : node),
      attributes_(std::make_shared<const Attributes>(spec.attributes, fields)),
      timing_id_(std::string(spec.domain) + "::" + spec.op_type + " " + spec.version + " " + spec.fingerprint + " " +
                 attributes_->text()) {}

// Not the fields: they are made anew, as they point into their plugin.
Plugin::Plugin(const Plugin& other)
    : IPluginV3(),
      IPluginV3OneCore(),
      IPluginV3OneBuild(),
      IPluginV3OneRuntime(),
      spec_(other.spec_),
      node_(other.node_),
      attributes_(other.attributes_),
      timing_id_(other.timing_id_),
      tactic_(other.tactic_),
      input_count_(other.input_count_) {}

std::string Plugin::title() const { return title_of(spec_, node_); }

nvinfer1::IPluginCapability* Plugin::getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept {
  switch (type) {
    case nvinfer1::PluginCapabilityType::kCORE: return static_cast<IPluginV3OneCore*>(this);
    case nvinfer1::PluginCapabilityType::kBUILD: return static_cast<IPluginV3OneBuild*>(this);
    case nvinfer1::PluginCapabilityType::kRUNTIME: return static_cast<IPluginV3OneRuntime*>(this);
  }
  return nullptr;
}

IPluginV3* Plugin::clone() noexcept {
  return guarded([this] { return title(); }, static_cast<IPluginV3*>(nullptr),
                 [this]() -> IPluginV3* { return new Plugin(*this); });
}

IPluginV3* Plugin::attachToContext(nvinfer1::IPluginResourceContext*) noexcept { return clone(); }

// --- what the node has ---------------------------------------------------------------------------------------

void Plugin::check_counts(int32_t inputs, int32_t outputs) const {
  int32_t least = 0, most = 0;
  for (const InputSpec& input : spec_.inputs) {
    least += input.form == Form::single;
    most = input.form == Form::variadic || most < 0 ? -1 : most + 1;
    if (input.form == Form::single && most >= 0) least = most;  // an optional one before it cannot be left out
  }
  require(inputs >= least && (most < 0 || inputs <= most), "the node has ", inputs, " inputs; expected ", least,
          most < 0 ? " or more" : most > least ? " to " + std::to_string(most) : std::string());
  require(outputs == int32_t(spec_.outputs.count), "the node has ", outputs, " outputs; expected ",
          spec_.outputs.count);
}

size_t Plugin::declared(int32_t input) const {
  size_t first_list = 0;
  while (first_list < spec_.inputs.count && spec_.inputs[first_list].form != Form::variadic) ++first_list;
  return std::min(size_t(input), first_list);
}

bool Plugin::row_takes(const RowSpec& row, int32_t position, DataType type, int32_t inputs) const {
  const int32_t onnx = onnx_type(type);
  return onnx != 0 &&
         onnx == (position < inputs ? row.inputs[declared(position)] : row.outputs[position - inputs]);
}

// --- build ---------------------------------------------------------------------------------------------------

int32_t Plugin::configurePlugin(const DynamicPluginTensorDesc*, int32_t inputs, const DynamicPluginTensorDesc*,
                                int32_t outputs) noexcept {
  return guarded([this] { return title(); }, failed, [&] {
    check_counts(inputs, outputs);
    return 0;
  });
}

int32_t Plugin::getOutputDataTypes(DataType* types, int32_t outputs, const DataType* input_types,
                                   int32_t inputs) const noexcept {
  return guarded([this] { return title(); }, failed, [&] {
    check_counts(inputs, outputs);
    for (const RowSpec& row : spec_.rows) {
      bool fits = true;
      for (int32_t k = 0; fits && k < inputs; ++k) fits = row_takes(row, k, input_types[k], inputs);
      if (!fits) continue;
      for (int32_t k = 0; k < outputs; ++k) types[k] = tensorrt_type(row.outputs[k]);
      return 0;
    }
    std::string given;
    for (int32_t k = 0; k < inputs; ++k) given += (k ? ", " : "") + std::string(name_of(input_types[k]));
    throw InputError("the inputs are " + given + "; there are kernels for: " + labels(spec_));
  });
}

int32_t Plugin::getOutputShapes(const DimsExprs* inputs, int32_t input_count, const DimsExprs*, int32_t,
                                DimsExprs* outputs, int32_t output_count, IExprBuilder& builder) noexcept {
  return guarded([this] { return title(); }, failed, [&] {
    check_counts(input_count, output_count);
    std::vector<SymbolicTensor> tensors(std::max(size_t(input_count), spec_.inputs.count));
    for (int32_t k = 0; k < input_count; ++k) tensors[size_t(k)] = {inputs[k].nbDims, &inputs[k], &builder};
    std::vector<SymbolicShape> shapes(spec_.outputs.count);
    spec_.shapes(tensors.data(), shapes.data());
    for (int32_t k = 0; k < output_count; ++k) {
      outputs[k].nbDims = shapes[size_t(k)].rank;
      for (int d = 0; d < outputs[k].nbDims; ++d) outputs[k].d[d] = shapes[size_t(k)].sizes[d].in(builder);
    }
    return 0;
  });
}

bool Plugin::supportsFormatCombination(int32_t position, const DynamicPluginTensorDesc* tensors, int32_t inputs,
                                       int32_t) noexcept {
  return guarded([this] { return title(); }, false, [&] {
    if (tensors[position].desc.format != nvinfer1::TensorFormat::kLINEAR) return false;
    for (const RowSpec& row : spec_.rows) {
      bool fits = true;
      for (int32_t k = 0; fits && k <= position; ++k) fits = row_takes(row, k, tensors[k].desc.type, inputs);
      if (fits) return true;
    }
    return false;
  });
}

int32_t Plugin::getNbTactics() noexcept {
  const int tactics = spec_.launcher()->tactics;
  return tactics > 1 ? tactics : 0;
}

int32_t Plugin::getValidTactics(int32_t* tactics, int32_t count) noexcept {
  if (count != getNbTactics()) {
    return guarded([this] { return title(); }, failed, [&]() -> int32_t {
      throw InputError("TensorRT asks for " + std::to_string(count) + " tactics; there are " +
                       std::to_string(spec_.launcher()->tactics));
    });
  }
  for (int32_t k = 0; k < count; ++k) tactics[k] = k + 1;  // 0 is TensorRT's own word for no tactic
  return 0;
}

// --- runtime -------------------------------------------------------------------------------------------------

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
    std::vector<TensorRef> given(std::max(size_t(input_count_), spec_.inputs.count)), made(spec_.outputs.count);
    for (int32_t k = 0; k < input_count_; ++k) given[size_t(k)] = tensor(in[k], inputs[k]);
    for (size_t k = 0; k < made.size(); ++k) made[k] = tensor(out[k], outputs[k]);

    size_t row = 0;
    for (; row < spec_.rows.count; ++row) {
      bool fits = true;
      for (int32_t k = 0; fits && k < input_count_; ++k) fits = row_takes(spec_.rows[row], k, in[k].type, input_count_);
      if (fits) break;
    }
    require(row < spec_.rows.count, "no kernel for these dtypes; there are kernels for: ", labels(spec_));

    // An argument that the operator writes into: its content goes where the output is.
    for (size_t k = 0; k < made.size(); ++k) {
      const int from = spec_.outputs[k].overwrites;
      if (from < 0 || given[size_t(from)].data == made[k].data) continue;
      size_t bytes = bytes_of(out[k].type);
      for (int d = 0; d < made[k].rank; ++d) bytes *= size_t(made[k].sizes[d]);
      if (bytes == 0) continue;
      const cudaError_t copied =
          cudaMemcpyAsync(made[k].data, given[size_t(from)].data, bytes, cudaMemcpyDeviceToDevice, stream);
      if (copied != cudaSuccess) throw std::runtime_error(cudaGetErrorString(copied));
    }

    const Parallel one_thread;
    OperatorCall call{};
    call.parallel = &one_thread;
    call.inputs = given.data();
    call.input_count = size_t(input_count_);
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

const PluginFieldCollection* Plugin::getFieldsToSerialize() noexcept {
  return guarded([this] { return title(); }, static_cast<const PluginFieldCollection*>(nullptr), [this] {
    fields_ = attributes_->fields();
    fields_.emplace_back(fingerprint_field, spec_.fingerprint, nvinfer1::PluginFieldType::kCHAR,
                         int32_t(std::strlen(spec_.fingerprint) + 1));
    collection_ = {int32_t(fields_.size()), fields_.data()};
    return static_cast<const PluginFieldCollection*>(&collection_);
  });
}

// --- creator -------------------------------------------------------------------------------------------------

Creator::Creator(const PluginSpec& spec) : spec_(spec) {
  for (const AttributeSpec& a : spec.attributes) fields_.emplace_back(a.name, nullptr, parsed_type(a.kind), 1);
  collection_ = {int32_t(fields_.size()), fields_.data()};
}

IPluginV3* Creator::createPlugin(const char* name, const PluginFieldCollection* fields,
                                 nvinfer1::TensorRTPhase) noexcept {
  const std::string node = name == nullptr ? "" : name;
  return guarded([&] { return title_of(spec_, node); }, static_cast<IPluginV3*>(nullptr), [&]() -> IPluginV3* {
    const PluginFieldCollection none{0, nullptr};
    const PluginFieldCollection& given = fields == nullptr ? none : *fields;
    for (int32_t k = 0; k < given.nbFields; ++k) {
      const PluginField& field = given.fields[k];
      if (field.name == nullptr || std::strcmp(field.name, fingerprint_field) != 0) continue;
      const std::string made_with(static_cast<const char*>(field.data), size_t(field.length));
      require(made_with == std::string(spec_.fingerprint, std::strlen(spec_.fingerprint) + 1),
              "the engine was built with another declaration of this operator: build it again with this library, or "
              "load the library that it was built with");
    }
    return new Plugin(spec_, name, given);
  });
}

}  // namespace deployops::trt
