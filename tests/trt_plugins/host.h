// TensorRT's side of the plugin interface, for programs that drive plugins without a TensorRT library and without a GPU.
#pragma once

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
  bool size_tensor = false;
  int64_t value = 0;
  std::string text;
  bool isConstant() const override { return constant; }
  int64_t getConstantValue() const override { return value; }
  bool isSizeTensor() const override { return size_tensor; }
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
  const IDimensionExpr* declareSizeTensor(int32_t output, const IDimensionExpr& optimum,
                                          const IDimensionExpr& upper) override {
    const IDimensionExpr* made =
        symbol("size " + std::to_string(output) + " of " + text_of(optimum) + " to " + text_of(upper));
    dims.back().own.size_tensor = true;
    return made;
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

[[maybe_unused]] IPluginV3OneBuild& build(const Plugin& p) {
  return *static_cast<IPluginV3OneBuild*>(p->getCapabilityInterface(PluginCapabilityType::kBUILD));
}
IPluginV3OneRuntime& runtime(const Plugin& p) {
  return *static_cast<IPluginV3OneRuntime*>(p->getCapabilityInterface(PluginCapabilityType::kRUNTIME));
}

void say(const std::string& name, const std::string& text) { std::cout << name << ": " << text << "\n"; }

const IDimensionExpr* expression(const std::string& text) {
  return std::isdigit(text[0]) ? number(std::stoll(text)) : symbol(text);
}

[[maybe_unused]] DimsExprs expressions(const std::vector<std::string>& texts) {
  DimsExprs made{};
  made.nbDims = int32_t(texts.size());
  for (size_t d = 0; d < texts.size(); ++d) made.d[d] = expression(texts[d]);
  return made;
}

PluginTensorDesc described(std::vector<int64_t> sizes, DataType type = DataType::kFLOAT) {
  PluginTensorDesc desc{};
  desc.type = type;
  desc.format = TensorFormat::kLINEAR;
  desc.dims.nbDims = int32_t(sizes.size());
  for (size_t d = 0; d < sizes.size(); ++d) desc.dims.d[d] = sizes[d];
  return desc;
}

// The creators of a library, by name; the library's errors go to `the_log`.
IPluginCreatorInterface* const* load(const char* path, int32_t& count) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::cerr << dlerror() << "\n";
    std::exit(1);
  }
  const auto get_creators =
      reinterpret_cast<IPluginCreatorInterface* const* (*)(int32_t&)>(dlsym(library, "getCreators"));
  const auto set_finder = reinterpret_cast<void (*)(ILoggerFinder*)>(dlsym(library, "setLoggerFinder"));
  set_finder(&finder);
  IPluginCreatorInterface* const* const list = get_creators(count);
  for (int32_t k = 0; k < count; ++k) {
    auto* const creator = static_cast<IPluginCreatorV3One*>(list[k]);
    creators[creator->getPluginName()] = creator;
  }
  return list;
}

}  // namespace
