#include "plugin.h"

#include <cstdlib>
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

// A field of serialised plugins only: which declaration the attributes are of.
constexpr const char* fingerprint_field = "deployops_fingerprint";

std::string title_of(const PluginSpec& spec, const std::string& node) {
  std::string text = std::string(spec.domain) + "::" + spec.op_type;
  if (!node.empty()) text += " (node '" + node + "')";
  return text + ": ";
}

// "1,3" -> {1, 3}
std::vector<int64_t> absent_inputs(const PluginFieldCollection& fields) {
  std::vector<int64_t> absent;
  std::istringstream text(read_text(fields, absent_inputs_field));
  for (std::string number; std::getline(text, number, ',');) {
    require(!number.empty() && number.size() < 4 && number.find_first_not_of("0123456789") == std::string::npos,
            "attribute `", absent_inputs_field, "` is \"", text.str(), "\"; expected numbers of inputs, \"1,3\"");
    absent.push_back(std::stoi(number));
  }
  return absent;
}

// Whether outputs shall lie where the arguments are that the operator writes into. TensorRT refuses such plugins where
// its preview feature kALIASED_PLUGIN_IO_10_03 is off, so it is asked for.
bool in_place_wanted(const PluginSpec& spec) {
  const char* const asked = std::getenv("DEPLOYOPS_IN_PLACE");
  if (asked == nullptr || std::strcmp(asked, "1") != 0) return false;
  for (const OutputSpec& output : spec.outputs) {
    if (output.overwrites >= 0) return true;
  }
  return false;
}

}  // namespace

std::string kernels_there(const PluginSpec& spec) {
  std::string text;
  for (const RowSpec& row : spec.rows) text += (text.empty() ? "" : "; ") + std::string(row.label);
  return text;
}

Plugin::Plugin(const PluginSpec& spec, const char* node, const PluginFieldCollection& fields, bool in_place)
    : PluginBuild(in_place),
      spec_(spec),
      node_(node == nullptr ? "" : node),
      attributes_(std::make_shared<const Attributes>(spec.attributes, fields)),
      reserved_(std::make_shared<Reserved>(spec.rows.count, fields)),
      inputs_(spec, absent_inputs(fields)),
      timing_id_(std::string(spec.domain) + "::" + spec.op_type + " " + spec.version + " " + spec.fingerprint + " " +
                 spec.kernel + " " + attributes_->text()) {
  for (int64_t k : inputs_.absent()) absent_ += (absent_.empty() ? "" : ",") + std::to_string(k);
  if (!absent_.empty()) timing_id_ += " without " + absent_;
}

// Not the fields: they are made anew, as they point into their plugin.
Plugin::Plugin(const Plugin& other)
    : IPluginV3(),
      IPluginV3OneCore(),
      PluginBuild(other),
      IPluginV3OneRuntime(),
      spec_(other.spec_),
      node_(other.node_),
      attributes_(other.attributes_),
      reserved_(other.reserved_),
      inputs_(other.inputs_),
      timing_id_(other.timing_id_),
      absent_(other.absent_),
      tactic_(other.tactic_),
      input_count_(other.input_count_) {}

std::string Plugin::title() const { return title_of(spec_, node_); }

nvinfer1::IPluginCapability* Plugin::getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept {
  switch (type) {
    case nvinfer1::PluginCapabilityType::kCORE: return static_cast<IPluginV3OneCore*>(this);
    case nvinfer1::PluginCapabilityType::kBUILD: return static_cast<nvinfer1::IPluginV3OneBuild*>(this);
    case nvinfer1::PluginCapabilityType::kRUNTIME: return static_cast<IPluginV3OneRuntime*>(this);
  }
  return nullptr;
}

IPluginV3* Plugin::clone() noexcept {
  return guarded([this] { return title(); }, static_cast<IPluginV3*>(nullptr),
                 [this]() -> IPluginV3* { return new Plugin(*this); });
}

IPluginV3* Plugin::attachToContext(nvinfer1::IPluginResourceContext*) noexcept { return clone(); }

const PluginFieldCollection* Plugin::getFieldsToSerialize() noexcept {
  return guarded([this] { return title(); }, static_cast<const PluginFieldCollection*>(nullptr), [this] {
    fields_ = attributes_->fields();
    fields_.emplace_back(fingerprint_field, spec_.fingerprint, nvinfer1::PluginFieldType::kCHAR,
                         int32_t(std::strlen(spec_.fingerprint) + 1));
    if (!absent_.empty()) {
      fields_.emplace_back(absent_inputs_field, absent_.c_str(), nvinfer1::PluginFieldType::kCHAR,
                           int32_t(absent_.size() + 1));
    }
    reserved_bytes_ = reserved_->numbers();
    if (!reserved_bytes_.empty()) {
      fields_.emplace_back(Reserved::field, reserved_bytes_.data(), nvinfer1::PluginFieldType::kINT64,
                           int32_t(reserved_bytes_.size()));
    }
    collection_ = {int32_t(fields_.size()), fields_.data()};
    return static_cast<const PluginFieldCollection*>(&collection_);
  });
}

// --- what the node has ---------------------------------------------------------------------------------------

void Plugin::check_counts(int32_t inputs, int32_t outputs) const {
  inputs_.check_count(inputs);
  require(outputs == getNbOutputs(), "the node has ", outputs, " outputs; expected ", getNbOutputs());
}

// --- build ---------------------------------------------------------------------------------------------------

#if DEPLOYOPS_ALIASES
int32_t Plugin::getAliasedInput(int32_t output) noexcept {
  if (!in_place_ || output < 0 || size_t(output) >= spec_.outputs.count) return -1;
  const int from = spec_.outputs[size_t(output)].overwrites;
  return from < 0 ? -1 : inputs_.memory_place(size_t(from));
}
#endif

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
      if (!inputs_.takes(row, inputs - 1, inputs, [&](int32_t k) { return input_types[k]; })) continue;
      for (int32_t k = 0; k < outputs; ++k) {
        types[k] = tensorrt_type(size_t(k) < spec_.outputs.count ? row.outputs[k] : size_type);
      }
      return 0;
    }
    std::string given;
    for (int32_t k = 0; k < inputs; ++k) given += (k ? ", " : "") + std::string(name_of(input_types[k]));
    throw InputError("the inputs are " + given + "; there are kernels for: " + kernels_there(spec_));
  });
}

int32_t Plugin::getOutputShapes(const DimsExprs* inputs, int32_t input_count, const DimsExprs* values,
                                int32_t value_count, DimsExprs* outputs, int32_t output_count,
                                IExprBuilder& builder) noexcept {
  return guarded([this] { return title(); }, failed, [&] {
    check_counts(input_count, output_count);
    inputs_.check_value_count(value_count);
    std::vector<SymbolicTensor> tensors(inputs_.slots(input_count));
    for (int32_t k = 0; k < input_count; ++k) {
      if (!inputs_.stands_in(k)) tensors[inputs_.slot(k)] = {inputs[k].nbDims, &inputs[k], &builder, nullptr};
    }
    for (int32_t k = 0; k < value_count; ++k) {
      tensors[inputs_.value_slot(k)] = {values[k].nbDims, &values[k], &builder, nullptr};
    }
    const DataSizes& data = spec_.data_sizes;
    std::vector<SymbolicShape> shapes(spec_.outputs.count), usual(spec_.outputs.count);
    spec_.shapes(tensors.data(), shapes.data());
    if (data.usual != nullptr) data.usual(tensors.data(), usual.data());
    std::vector<const nvinfer1::IDimensionExpr*> sizes(size_t(data.count), nullptr);
    for (size_t k = 0; k < shapes.size(); ++k) {
      outputs[k].nbDims = shapes[k].rank;
      for (int d = 0; d < shapes[k].rank; ++d) {
        const Size& size = shapes[k].sizes[d];
        const int32_t number = data.count == 0 ? -1 : data.numbers[k][d];
        if (number < 0) {
          outputs[k].d[d] = size.in(builder);
          continue;
        }
        const nvinfer1::IDimensionExpr*& declared = sizes[size_t(number)];
        if (declared == nullptr) {
          const Size optimum = data.usual != nullptr ? usual[k].sizes[d] : floor_divide(size + Size(1), Size(2));
          declared = builder.declareSizeTensor(int32_t(shapes.size()) + number, *optimum.in(builder), *size.in(builder));
          require(declared != nullptr, "TensorRT does not take a size that the data decides");
        }
        outputs[k].d[d] = declared;
      }
    }
    for (size_t k = shapes.size(); k < size_t(output_count); ++k) outputs[k].nbDims = 0;
    return 0;
  });
}

bool Plugin::supportsFormatCombination(int32_t position, const DynamicPluginTensorDesc* tensors, int32_t inputs,
                                       int32_t) noexcept {
  return guarded([this] { return title(); }, false, [&] {
    if (tensors[position].desc.format != nvinfer1::TensorFormat::kLINEAR) return false;
    for (const RowSpec& row : spec_.rows) {
      if (inputs_.takes(row, position, inputs, [&](int32_t k) { return tensors[k].desc.type; })) return true;
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

// --- creator -------------------------------------------------------------------------------------------------

Creator::Creator(const PluginSpec& spec) : spec_(spec) {
  for (const AttributeSpec& a : spec.attributes) fields_.emplace_back(a.name, nullptr, parsed_type(a.kind), 1);
  for (size_t k = 0; k + 1 < spec.inputs.count; ++k) {  // the last one is left out without a word
    if (spec.inputs[k].form != Form::optional) continue;
    fields_.emplace_back(absent_inputs_field, nullptr, parsed_type(AttributeKind::text), 1);
    break;
  }
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
    return new Plugin(spec_, name, given, in_place_wanted(spec_));
  });
}

}  // namespace deployops::trt
