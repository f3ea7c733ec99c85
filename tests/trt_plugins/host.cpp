// Drives the plugins of tests/trt_plugins/pack through their C++ interface: no TensorRT library, no GPU.
// Prints "name: what came out"; the tests compare.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "NvInferRuntime.h"

using namespace nvinfer1;

namespace {

// --- TensorRT's side: expressions as texts -------------------------------------------------------------------

struct DimValue : apiv::VDimensionExpr {
  bool constant = false;
  int64_t value = 0;
  std::string text;
  bool isConstant() const override { return constant; }
  int64_t getConstantValue() const override { return value; }
  bool isSizeTensor() const override { return false; }
};

struct Dim : IDimensionExpr {
  DimValue own;
  Dim() { mImpl = &own; }
  ~Dim() noexcept = default;
};

std::deque<Dim> dims;

const IDimensionExpr* number(int64_t value) {
  Dim& dim = dims.emplace_back();
  dim.own.constant = true;
  dim.own.value = value;
  dim.own.text = std::to_string(value);
  return &dim;
}

const IDimensionExpr* symbol(const std::string& text) {
  Dim& dim = dims.emplace_back();
  dim.own.text = text;
  return &dim;
}

const std::string& text_of(const IDimensionExpr& e) { return static_cast<const Dim&>(e).own.text; }

struct BuilderOfTexts : apiv::VExprBuilder {
  const IDimensionExpr* constant(int64_t value) override { return number(value); }
  const IDimensionExpr* operation(DimensionOperation operation, const IDimensionExpr& a,
                                  const IDimensionExpr& b) override {
    static const char* const names[] = {"+", "*", "max", "min", "-", "==", "<", "//", "ceil/"};
    return symbol("(" + text_of(a) + " " + names[int(operation)] + " " + text_of(b) + ")");
  }
  const IDimensionExpr* declareSizeTensor(int32_t, const IDimensionExpr&, const IDimensionExpr&) override {
    return nullptr;
  }
};

struct Builder : IExprBuilder {
  BuilderOfTexts own;
  Builder() { mImpl = &own; }
  ~Builder() noexcept = default;
};

struct Log : ILogger {
  std::string last;
  void log(Severity, const char* text) noexcept override { last = text; }
} the_log;

struct Finder : ILoggerFinder {
  ILogger* findLogger() override { return &the_log; }
} finder;

// --- what is asked -------------------------------------------------------------------------------------------

std::map<std::string, IPluginCreatorV3One*> creators;

struct Fields {
  std::vector<PluginField> list;
  std::deque<std::vector<char>> content;
  template <class T>
  Fields& add(const char* name, PluginFieldType type, std::vector<T> values) {
    std::vector<char>& bytes = content.emplace_back(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    list.emplace_back(name, bytes.data(), type, int32_t(values.size()));
    return *this;
  }
  PluginFieldCollection collection() const { return {int32_t(list.size()), list.data()}; }
};

using Plugin = std::unique_ptr<IPluginV3>;

Plugin make(const std::string& name, const PluginFieldCollection& fields, TensorRTPhase phase = TensorRTPhase::kBUILD) {
  the_log.last.clear();
  return Plugin(creators.at(name)->createPlugin("the_node", &fields, phase));
}
Plugin make(const std::string& name, const Fields& fields = {}) { return make(name, fields.collection()); }

IPluginV3OneBuild& build(const Plugin& p) {
  return *static_cast<IPluginV3OneBuild*>(p->getCapabilityInterface(PluginCapabilityType::kBUILD));
}
IPluginV3OneRuntime& runtime(const Plugin& p) {
  return *static_cast<IPluginV3OneRuntime*>(p->getCapabilityInterface(PluginCapabilityType::kRUNTIME));
}

void say(const std::string& name, const std::string& text) { std::cout << name << ": " << text << "\n"; }

void shapes(const std::string& title, const Plugin& plugin, const std::vector<std::vector<std::string>>& inputs) {
  Builder builder;
  std::vector<DimsExprs> given(inputs.size()), made(size_t(build(plugin).getNbOutputs()));
  for (size_t k = 0; k < inputs.size(); ++k) {
    given[k].nbDims = int32_t(inputs[k].size());
    for (size_t d = 0; d < inputs[k].size(); ++d) {
      const std::string& t = inputs[k][d];
      given[k].d[d] = std::isdigit(t[0]) ? number(std::stoll(t)) : symbol(t);
    }
  }
  the_log.last.clear();
  const int32_t code = build(plugin).getOutputShapes(given.data(), int32_t(given.size()), nullptr, 0, made.data(),
                                                     int32_t(made.size()), builder);
  std::string text = code == 0 ? "" : "refused: " + the_log.last;
  for (const DimsExprs& shape : made) {
    if (code != 0) break;
    text += text.empty() ? "[" : " [";
    for (int d = 0; d < shape.nbDims; ++d) text += (d ? ", " : "") + text_of(*shape.d[d]);
    text += "]";
  }
  say(title, text);
}

void output_types(const std::string& title, const Plugin& plugin, std::vector<DataType> inputs) {
  std::vector<DataType> made(size_t(build(plugin).getNbOutputs()));
  the_log.last.clear();
  const int32_t code =
      build(plugin).getOutputDataTypes(made.data(), int32_t(made.size()), inputs.data(), int32_t(inputs.size()));
  std::string text = code == 0 ? "" : "refused: " + the_log.last;
  for (DataType type : made) text += code == 0 ? std::to_string(int(type)) + " " : "";
  say(title, text);
}

// The combinations of types that the plugin takes, all linear, by number.
void formats(const std::string& title, const Plugin& plugin, int32_t inputs) {
  const int32_t outputs = build(plugin).getNbOutputs(), count = inputs + outputs;
  std::string text;
  std::vector<DynamicPluginTensorDesc> tensors(static_cast<size_t>(count));
  const auto extend = [&](auto&& self, int32_t position, const std::string& so_far) -> void {
    if (position == count) {
      text += so_far + " ";
      return;
    }
    for (int type = 0; type <= int(DataType::kINT64); ++type) {
      tensors[size_t(position)].desc.type = DataType(type);
      tensors[size_t(position)].desc.format = TensorFormat::kLINEAR;
      if (build(plugin).supportsFormatCombination(position, tensors.data(), inputs, outputs)) {
        self(self, position + 1, so_far + std::to_string(type));
      }
    }
  };
  extend(extend, 0, "");
  tensors[0].desc.type = DataType::kFLOAT;
  tensors[0].desc.format = TensorFormat::kCHW4;
  text += build(plugin).supportsFormatCombination(0, tensors.data(), inputs, outputs) ? "CHW4" : "linear only";
  say(title, text);
}

std::string fields_of(const Plugin& plugin) {
  const PluginFieldCollection* fields = runtime(plugin).getFieldsToSerialize();
  std::string text;
  for (int32_t k = 0; k < fields->nbFields; ++k) {
    const PluginField& f = fields->fields[k];
    if (std::strcmp(f.name, "deployops_fingerprint") == 0) continue;
    text += std::string(text.empty() ? "" : " ") + f.name + "=";
    if (f.type == PluginFieldType::kCHAR) {
      text += std::string(static_cast<const char*>(f.data)) + "/" + std::to_string(f.length);
    }
    for (int32_t i = 0; i < f.length && f.type != PluginFieldType::kCHAR; ++i) {
      char buffer[40];
      if (f.type == PluginFieldType::kINT64) {
        std::snprintf(buffer, sizeof buffer, "%lld", static_cast<long long>(static_cast<const int64_t*>(f.data)[i]));
      } else {
        std::snprintf(buffer, sizeof buffer, "%.17g", static_cast<const double*>(f.data)[i]);
      }
      text += (i ? "," : "") + std::string(buffer);
    }
  }
  return text;
}

PluginTensorDesc described(std::vector<int64_t> sizes, DataType type = DataType::kFLOAT) {
  PluginTensorDesc desc{};
  desc.type = type;
  desc.format = TensorFormat::kLINEAR;
  desc.dims.nbDims = int32_t(sizes.size());
  for (size_t d = 0; d < sizes.size(); ++d) desc.dims.d[d] = sizes[d];
  return desc;
}

void run(const std::string& title, const Plugin& plugin, std::vector<PluginTensorDesc> in,
         std::vector<PluginTensorDesc> out) {
  Plugin context(runtime(plugin).attachToContext(nullptr));
  std::vector<float> memory(1024);
  std::vector<const void*> inputs(in.size(), memory.data());
  std::vector<void*> outputs(out.size(), memory.data() + 512);
  the_log.last.clear();
  int32_t code = runtime(context).onShapeChange(in.data(), int32_t(in.size()), out.data(), int32_t(out.size()));
  if (code == 0) {
    code = runtime(context).enqueue(in.data(), out.data(), inputs.data(), outputs.data(), nullptr, nullptr);
  }
  say(title, std::to_string(code) + " " + the_log.last);
}

}  // namespace

int main(int, char** arguments) {
  void* const library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::cerr << dlerror() << "\n";
    return 1;
  }
  const auto get_creators =
      reinterpret_cast<IPluginCreatorInterface* const* (*)(int32_t&)>(dlsym(library, "getCreators"));
  const auto set_finder = reinterpret_cast<void (*)(ILoggerFinder*)>(dlsym(library, "setLoggerFinder"));
  set_finder(&finder);
  int32_t count = 0;
  IPluginCreatorInterface* const* const list = get_creators(count);
  for (int32_t k = 0; k < count; ++k) {
    auto* const creator = static_cast<IPluginCreatorV3One*>(list[k]);
    const InterfaceInfo info = creator->getInterfaceInfo();
    std::string fields;
    for (int32_t i = 0; i < creator->getFieldNames()->nbFields; ++i) {
      const PluginField& field = creator->getFieldNames()->fields[i];
      fields += std::string(" ") + field.name + ":" + std::to_string(int(field.type));
    }
    creators[creator->getPluginName()] = creator;
    say("creator " + std::string(creator->getPluginName()),
        std::string(info.kind) + " " + std::to_string(info.major) + "." + std::to_string(info.minor) + " " +
            creator->getPluginNamespace() + " " + creator->getPluginVersion() + fields);
  }

  // As an ONNX parser gives them: FLOAT as 32 bits, INT as 32 bits, text with its NUL.
  Fields given;
  given.add<int32_t>("count", PluginFieldType::kINT32, {-7})
      .add<float>("scale", PluginFieldType::kFLOAT32, {0.3f})
      .add<int32_t>("flag", PluginFieldType::kINT32, {0})
      .add<char>("mode", PluginFieldType::kCHAR, {'m', 'a', 'x', '\0'})
      .add<int32_t>("steps", PluginFieldType::kINT32, {4, 5, 6})
      .add<float>("weights", PluginFieldType::kFLOAT32, {0.5f, -2.0f})
      .add<float>("limit", PluginFieldType::kFLOAT32, {8.0f})
      .add<float>("undeclared", PluginFieldType::kFLOAT32, {1.0f});
  const Plugin plugin = make("Attributes", given);
  say("attributes", fields_of(plugin));
  say("timing id", build(plugin).getTimingCacheID());
  const Plugin clone(plugin->clone());
  say("clone", fields_of(clone));
  const Plugin again = make("Attributes", *runtime(plugin).getFieldsToSerialize(), TensorRTPhase::kRUNTIME);
  say("deserialised", fields_of(again));

  Fields least;
  least.add<int32_t>("count", PluginFieldType::kINT32, {1});
  const Plugin defaults = make("Attributes", least);
  say("defaults", fields_of(defaults));
  const Plugin defaults_again = make("Attributes", *runtime(defaults).getFieldsToSerialize(), TensorRTPhase::kRUNTIME);
  say("defaults deserialised", fields_of(defaults_again));

  say("missing", make("Attributes") == nullptr ? the_log.last : "made");
  Fields wrong;
  wrong.add<float>("count", PluginFieldType::kFLOAT32, {1.0f});
  say("wrong type", make("Attributes", wrong) == nullptr ? the_log.last : "made");
  Fields many;
  many.add<int32_t>("count", PluginFieldType::kINT32, {1, 2});
  say("several values", make("Attributes", many) == nullptr ? the_log.last : "made");
  Fields other;
  other.add<int32_t>("count", PluginFieldType::kINT32, {1});
  other.add<char>("deployops_fingerprint", PluginFieldType::kCHAR, {'0', '\0'});
  say("another declaration", make("Attributes", other) == nullptr ? the_log.last : "made");

  formats("formats", plugin, 1);
  output_types("types", plugin, {DataType::kINT32});
  output_types("types refused", plugin, {DataType::kHALF});
  output_types("too many inputs", plugin, {DataType::kFLOAT, DataType::kFLOAT});
  std::vector<int32_t> tactics(size_t(build(plugin).getNbTactics()));
  build(plugin).getValidTactics(tactics.data(), int32_t(tactics.size()));
  std::string numbers;
  for (int32_t t : tactics) numbers += std::to_string(t) + "=" + std::to_string(runtime(plugin).setTactic(t)) + " ";
  say("tactics", numbers + "9=" + std::to_string(runtime(plugin).setTactic(9)));

  const Plugin parts = make("Parts");
  shapes("shapes", parts, {{"N", "C"}});
  shapes("shapes of numbers", parts, {{"4", "7"}});
  shapes("shapes refused", parts, {{"N", "C", "H"}});
  formats("formats of two outputs", parts, 1);
  say("no tactics", std::to_string(build(parts).getNbTactics()));

  const Plugin plus = make("Plus");
  shapes("broadcast", plus, {{"N", "4", "1"}, {"M", "5"}});
  shapes("broadcast of unknown sizes", plus, {{"N"}, {"M"}});
  shapes("broadcast refused", plus, {{"4"}, {"5"}});

  const Plugin sum = make("AddAll");
  shapes("list", sum, {{"N"}, {"N"}, {"N"}, {"N"}});
  shapes("empty list", sum, {{"N"}, {"N"}});
  formats("formats of a list", sum, 4);

  run("run", plugin, {described({2, 3})}, {described({2, 3})});
  Fields strange;
  strange.add<int32_t>("count", PluginFieldType::kINT32, {1}).add<char>("mode", PluginFieldType::kCHAR, {'z', '\0'});
  run("run refused", make("Attributes", strange), {described({2, 3})}, {described({2, 3})});
  run("run in place", make("Shift"), {described({2, 3}), described({2, 3})}, {described({2, 3})});
  run("run a list", sum, {described({2}), described({2}), described({2})}, {described({2})});
}
