// Drives the plugins of tests/trt_plugins/pack through their C++ interface: no TensorRT library, no GPU.
// Prints "name: what came out"; the tests compare.
#include "host.h"

namespace {

void shapes(const std::string& title, const Plugin& plugin, const std::vector<std::vector<std::string>>& inputs,
            const std::vector<std::vector<std::string>>& values = {}) {
  Builder builder;
  std::vector<DimsExprs> given, read, made(size_t(build(plugin).getNbOutputs()));
  for (const auto& texts : inputs) given.push_back(expressions(texts));
  for (const auto& texts : values) read.push_back(expressions(texts));
  the_log.last.clear();
  const int32_t code = build(plugin).getOutputShapes(given.data(), int32_t(given.size()), read.data(),
                                                     int32_t(read.size()), made.data(), int32_t(made.size()), builder);
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
  int32_t count = 0;
  IPluginCreatorInterface* const* const list = load(arguments[1], count);
  for (int32_t k = 0; k < count; ++k) {
    auto* const creator = static_cast<IPluginCreatorV3One*>(list[k]);
    const InterfaceInfo info = creator->getInterfaceInfo();
    std::string fields;
    for (int32_t i = 0; i < creator->getFieldNames()->nbFields; ++i) {
      const PluginField& field = creator->getFieldNames()->fields[i];
      fields += std::string(" ") + field.name + ":" + std::to_string(int(field.type));
    }
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

  // Sizes that the data decides, shape inputs, absent inputs, outputs in place.
  const Plugin positives = make("Positives"), above = make("Above");
  shapes("size tensor", positives, {{"N", "4"}});
  shapes("size tensor of numbers", positives, {{"3", "4"}});
  shapes("two size tensors", above, {{"N", "C"}, {"N"}});
  output_types("types with sizes", above, {DataType::kHALF, DataType::kHALF});
  formats("formats with sizes", positives, 1);

  const Plugin tile = make("TileTo");
  shapes("shape input", tile, {{"N"}}, {{"R", "C"}});
  shapes("shape input of numbers", tile, {{"N"}}, {{"5", "2"}});
  shapes("shape input in memory", tile, {{"N"}, {"2"}});
  shapes("no shape input", tile, {{"N"}});
  output_types("types with a shape input", tile, {DataType::kHALF});
  formats("formats with a shape input", tile, 1);

  Fields absent;
  absent.add<char>("deployops_absent_inputs", PluginFieldType::kCHAR, {'1', '\0'});
  const Plugin masked = make("Blend", absent);
  shapes("absent input", masked, {{"N"}, {"N"}, {"N"}});
  output_types("types with an absent input", masked, {DataType::kHALF, DataType::kHALF, DataType::kBOOL});
  formats("formats with an absent input", masked, 3);
  say("absent input serialised", fields_of(masked));
  const Plugin masked_again = make("Blend", *runtime(masked).getFieldsToSerialize(), TensorRTPhase::kRUNTIME);
  say("absent input deserialised", fields_of(masked_again));
  say("absent input in the timing id", build(masked).getTimingCacheID());
  Fields required;
  required.add<char>("deployops_absent_inputs", PluginFieldType::kCHAR, {'0', '\0'});
  say("absent input that is required", make("Blend", required) == nullptr ? the_log.last : "made");
  Fields strange_text;
  strange_text.add<char>("deployops_absent_inputs", PluginFieldType::kCHAR, {'1', ',', '-', '\0'});
  say("absent input in other words", make("Blend", strange_text) == nullptr ? the_log.last : "made");

  // Float32, float16; the largest of several profiles counts. What was answered is shared by clones, and serialised.
  const Plugin sums = make("RowSums"), sums_clone(sums->clone());
  const auto workspace = [](const Plugin& p, int64_t rows, int64_t columns, DataType type) {
    const auto at_most = [&](std::vector<int64_t> sizes) {
      DynamicPluginTensorDesc made{};
      made.desc = described(std::vector<int64_t>(sizes.size(), -1), type);
      made.max = described(sizes).dims;
      return made;
    };
    const DynamicPluginTensorDesc in = at_most({rows, columns}), out = at_most({rows});
    the_log.last.clear();
    const size_t bytes = build(p).getWorkspaceSize(&in, 1, &out, 1);
    return the_log.last.empty() ? std::to_string(bytes) + " " : the_log.last;
  };
  say("workspace before it is asked for", fields_of(sums));
  say("workspace", workspace(sums_clone, 3, 1000, DataType::kFLOAT) + workspace(sums_clone, 2, 10, DataType::kFLOAT) +
                       workspace(sums_clone, 0, 10, DataType::kHALF));
  say("workspace serialised", fields_of(sums));
  const Plugin sums_again = make("RowSums", *runtime(sums).getFieldsToSerialize(), TensorRTPhase::kRUNTIME);
  say("workspace deserialised", fields_of(sums_again));
  say("workspace of no size", workspace(sums, -1, 10, DataType::kFLOAT));
  say("workspace of a type without kernels", workspace(sums, 1, 10, DataType::kINT32));
  say("no workspace", std::to_string(build(parts).getWorkspaceSize(nullptr, 1, nullptr, 2)));
  Fields foreign;
  foreign.add<int64_t>("deployops_workspace", PluginFieldType::kINT64, {1});
  say("workspace of another library", make("RowSums", foreign) == nullptr ? the_log.last : "made");
  run("run without the workspace", sums_again, {described({2, 3})}, {described({2})});

  const auto in_place = [](const char* title, const char* operation) {
    const Plugin made = make(operation);
    const auto info_of = [&](PluginCapabilityType type) {
      const InterfaceInfo info = made->getCapabilityInterface(type)->getInterfaceInfo();
      return std::string(info.kind) + " " + std::to_string(info.major) + " ";
    };
    const Plugin copy(made->clone());
    const auto aliased = [](const Plugin& p) {
      return std::to_string(static_cast<IPluginV3OneBuildV2&>(build(p)).getAliasedInput(0));
    };
    say(title, info_of(PluginCapabilityType::kCORE) + info_of(PluginCapabilityType::kBUILD) +
                   info_of(PluginCapabilityType::kRUNTIME) + aliased(made) + " " + aliased(copy));
  };
  in_place("copied", "Shift");
  setenv("DEPLOYOPS_IN_PLACE", "1", 1);
  in_place("in place", "Shift");
  in_place("in place, nothing overwritten", "Parts");
}
