// Runs the plugins of tests/trt_plugins/pack through their C++ interface on the emulated device, as an engine does: created,
// serialised, made again, cloned, told the shapes, enqueued. Prints "name: numbers"; the tests compare.
#include "host.h"

namespace {

char there;
const cudaStream_t engine_stream = reinterpret_cast<cudaStream_t>(&there);

struct Tensor {
  PluginTensorDesc desc;
  std::vector<float> numbers;
  std::vector<int32_t> integers;
  std::vector<char> flags;
  void* data() {
    if (desc.type == DataType::kINT32) return integers.data();
    return desc.type == DataType::kBOOL ? static_cast<void*>(flags.data()) : numbers.data();
  }
};

Tensor of(std::vector<int64_t> sizes, std::vector<float> numbers) { return {described(sizes), numbers, {}, {}}; }
Tensor flags(std::vector<int64_t> sizes, std::vector<char> values) {
  return {described(sizes, DataType::kBOOL), {}, {}, values};
}
// Outputs begin as numbers that nobody computes. A size that the data decides is −1, as while an engine runs.
Tensor empty(std::vector<int64_t> sizes, size_t room, DataType type = DataType::kFLOAT) {
  return {described(sizes, type), std::vector<float>(room, -77), std::vector<int32_t>(room, -77), {}};
}

std::string texts(const Tensor& t) {
  std::string text;
  for (size_t k = 0; k < (t.desc.type == DataType::kINT32 ? t.integers.size() : t.numbers.size()); ++k) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%g", t.desc.type == DataType::kINT32 ? t.integers[k] : double(t.numbers[k]));
    text += (k ? " " : "") + std::string(buffer);
  }
  return text;
}

// As while an engine is built, of a clone; `largest`: what the inputs' shapes may be at most, where they may be larger.
size_t reserve(const Plugin& plugin, const std::vector<Tensor>& in, const std::vector<Tensor>& out,
               const std::vector<std::vector<int64_t>>& largest) {
  const auto dynamic = [](const Tensor& t) {
    return DynamicPluginTensorDesc{t.desc, t.desc.dims, t.desc.dims, t.desc.dims};
  };
  std::vector<DynamicPluginTensorDesc> inputs, outputs;
  for (const Tensor& t : in) inputs.push_back(dynamic(t));
  for (const Tensor& t : out) outputs.push_back(dynamic(t));
  for (size_t k = 0; k < largest.size(); ++k) inputs[k].max = described(largest[k]).dims;
  const Plugin clone(plugin->clone());
  return build(clone).getWorkspaceSize(inputs.data(), int32_t(in.size()), outputs.data(), int32_t(out.size()));
}

void run(const std::string& title, const std::string& name, const Fields& fields, std::vector<Tensor> in,
         std::vector<Tensor> out, int32_t alias = -1, std::vector<std::vector<int64_t>> largest = {}) {
  const Plugin built = make(name, fields);
  const size_t reserved = reserve(built, in, out, largest);
  std::vector<char> workspace(reserved + 1);  // one more: in no way aligned
  const Plugin read = make(name, *runtime(built).getFieldsToSerialize(), TensorRTPhase::kRUNTIME);
  const Plugin clone(read->clone());
  const Plugin context(runtime(clone).attachToContext(nullptr));
  std::vector<PluginTensorDesc> in_desc, out_desc;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (Tensor& t : in) in_desc.push_back(t.desc), inputs.push_back(t.data());
  for (Tensor& t : out) out_desc.push_back(t.desc), outputs.push_back(t.data());
  if (alias >= 0) outputs[0] = in[size_t(alias)].data();
  the_log.last.clear();
  int32_t code = runtime(context).onShapeChange(in_desc.data(), int32_t(in.size()), out_desc.data(), int32_t(out.size()));
  if (code == 0) {
    code = runtime(context).enqueue(in_desc.data(), out_desc.data(), inputs.data(), outputs.data(),
                                     reserved == 0 ? nullptr : workspace.data() + 1, engine_stream);
  }
  std::string text = std::to_string(code);
  if (code != 0) text += " " + the_log.last;
  for (const Tensor& t : out) text += " | " + texts(t);
  for (const Tensor& t : in) text += t.desc.type == DataType::kFLOAT ? " | " + texts(t) : "";
  say(title, text);
}

}  // namespace

int main(int, char** arguments) {
  int32_t count = 0;
  load(arguments[1], count);
  // a launch elsewhere is an error of the emulated device then
  const auto expect_stream = reinterpret_cast<void (*)(void*)>(
      dlsym(dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD), "deployops_emulated_stream"));
  expect_stream(engine_stream);
  const Tensor x = of({2, 3}, {1, -2, 3, -4, 5, 6});

  run("positives", "Positives", {}, {x}, {empty({-1}, 6), empty({}, 1, DataType::kINT32)});
  run("positives of none", "Positives", {}, {of({2}, {-1, -2})}, {empty({-1}, 2), empty({}, 1, DataType::kINT32)});
  run("above", "Above", {}, {x, of({2}, {2, 9})},
      {empty({2, -1}, 12, DataType::kINT32), empty({-1}, 6), empty({-1}, 2, DataType::kINT32),
       empty({}, 1, DataType::kINT32), empty({}, 1, DataType::kINT32)});
  run("tile to", "TileTo", {}, {of({3}, {1, 2, 3})}, {empty({2, 4}, 8)});
  run("parts", "Parts", {}, {x}, {empty({2, 1}, 2), empty({2, 2}, 4)});

  Fields cuts, cuts_reversed;
  cuts.add<float>("low", PluginFieldType::kFLOAT32, {-1}).add<float>("high", PluginFieldType::kFLOAT32, {2.5f});
  cuts_reversed.add<float>("high", PluginFieldType::kFLOAT32, {2.5f}).add<float>("low", PluginFieldType::kFLOAT32, {-1});
  run("cuts", "Cuts", cuts, {x}, {empty({2, 3}, 6), empty({2, 3}, 6)});
  run("cuts given in reverse", "Cuts", cuts_reversed, {x}, {empty({2, 3}, 6), empty({2, 3}, 6)});

  Fields absent;
  absent.add<char>("deployops_absent_inputs", PluginFieldType::kCHAR, {'1', '\0'});
  run("blend without bias", "Blend", absent, {x, x, flags({2, 3}, {1, 0, 1, 0, 1, 0})}, {empty({2, 3}, 6)});
  run("blend without mask", "Blend", {}, {x, of({2, 3}, {1, 1, 1, 1, 1, 1})}, {empty({2, 3}, 6)});
  run("blend", "Blend", {}, {x}, {empty({2, 3}, 6)});

  run("empty list", "AddAll", {}, {x, x}, {empty({2, 3}, 6)});
  run("list", "AddAll", {}, {x, x, x, x}, {empty({2, 3}, 6)});

  const Tensor by = of({2, 3}, {10, 10, 10, 10, 10, 10});
  run("shift copied", "Shift", {}, {x, by}, {empty({2, 3}, 6)});
  run("shift in place", "Shift", {}, {x, by}, {empty({2, 3}, 6)}, 0);

  const std::vector<float> ones(600, 1);
  run("workspace", "RowSums", {}, {x}, {empty({2}, 2)});
  run("workspace reserved for more", "RowSums", {}, {x}, {empty({2}, 2)}, -1, {{4, 3000}});
  run("workspace of several parts", "RowSums", {}, {of({2, 300}, ones)}, {empty({2}, 2)});
  run("workspace reserved for less", "RowSums", {}, {of({2, 300}, ones)}, {empty({2}, 2)}, -1, {{2, 255}});
  run("refused", "Parts", {}, {of({3}, {1, 2, 3})}, {empty({3}, 3), empty({3}, 3)});
}
