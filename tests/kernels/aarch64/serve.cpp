// Runs the kernels of a library for another process: calls come in on standard input, results go to standard output.
//
//     serve LIBRARY
//
// Numbers are little-endian, as on both sides here. library.py writes what this reads, in the same order.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "deployops/operator_table.h"

using namespace deployops;

namespace {

template <class T>
T take() {
  T value;
  if (std::fread(&value, sizeof value, 1, stdin) != 1) std::exit(0);
  return value;
}
std::string take_bytes() {
  std::string bytes(size_t(take<int64_t>()), '\0');
  if (!bytes.empty() && std::fread(bytes.data(), bytes.size(), 1, stdin) != 1) std::exit(1);
  return bytes;
}
template <class T>
void give(T value) {
  std::fwrite(&value, sizeof value, 1, stdout);
}
void give_bytes(const void* data, size_t count) {
  give(int64_t(count));
  std::fwrite(data, 1, count, stdout);
}

// A tensor of a call.
struct Tensor {
  std::vector<int64_t> sizes;
  std::unique_ptr<char[]> data;
  size_t bytes = 0;

  TensorRef take_from_caller() {
    TensorRef ref;
    ref.rank = take<int32_t>();
    if (ref.rank < 0) return ref;
    ref.dtype = take<int32_t>();
    for (int d = 0; d < ref.rank; ++d) sizes.push_back(take<int64_t>());
    const std::string content = take_bytes();
    bytes = content.size();
    data.reset(new char[bytes]);
    std::memcpy(data.get(), content.data(), bytes);
    ref.data = data.get();
    ref.sizes = sizes.data();
    return ref;
  }
};

struct Attribute {
  std::string text;
  std::vector<int64_t> ints;
  std::vector<double> floats;
  std::vector<std::string> held;
  std::vector<std::string_view> strings;

  AttributeRef take_from_caller() {
    AttributeRef ref;
    ref.present = take<int8_t>() != 0;
    ref.i = take<int64_t>();
    ref.f = take<double>();
    text = take_bytes();
    for (int64_t n = take<int64_t>(); n > 0; --n) ints.push_back(take<int64_t>());
    for (int64_t n = take<int64_t>(); n > 0; --n) floats.push_back(take<double>());
    for (int64_t n = take<int64_t>(); n > 0; --n) held.push_back(take_bytes());
    strings.assign(held.begin(), held.end());
    ref.s = text.c_str();
    ref.ints = ints.data();
    ref.floats = floats.data();
    ref.strings = strings.data();
    ref.count = size_t(take<int64_t>());
    return ref;
  }
};

template <class F>
F function(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
  return reinterpret_cast<F>(found);
}

}  // namespace

int main(int, char** argv) {
  void* const library = dlopen(argv[1], RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  const auto name_of = function<const char* (*)(size_t, const char**)>(library, "deployops_operator");
  const auto shapes_of = function<int (*)(size_t, const TensorRef*, Shape*, char*, size_t)>(library, "deployops_shapes");
  const auto run = function<int (*)(size_t, size_t, const char*, int, const OperatorCall*, char*, size_t)>(
      library, "deployops_run");
  const char* fingerprint = nullptr;
  size_t count = 0;
  while (name_of(count, &fingerprint) != nullptr) ++count;
  give(int64_t(count));
  for (size_t k = 0; k < count; ++k) {
    const char* name = name_of(k, &fingerprint);
    give_bytes(name, std::strlen(name));
    give_bytes(fingerprint, std::strlen(fingerprint));
  }
  std::fflush(stdout);

  for (;;) {
    const bool runs = take<int8_t>() != 0;  // or: the shapes of the outputs
    const auto index = size_t(take<int64_t>()), row = size_t(take<int64_t>());
    const int threads = take<int32_t>();
    const int32_t slots = take<int32_t>(), given = take<int32_t>(), attribute_count = take<int32_t>(),
                  output_count = take<int32_t>();
    std::vector<Tensor> inputs(size_t(slots) + 1), outputs(size_t(output_count) + 1);
    std::vector<TensorRef> input_refs, output_refs;
    std::vector<Attribute> attributes(size_t(attribute_count) + 1);
    std::vector<AttributeRef> attribute_refs;
    for (int k = 0; k < slots; ++k) input_refs.push_back(inputs[size_t(k)].take_from_caller());
    for (int k = 0; k < attribute_count; ++k) attribute_refs.push_back(attributes[size_t(k)].take_from_caller());
    char error[1024] = "";
    if (!runs) {
      std::vector<Shape> shapes(size_t(output_count) + 1);
      give(int8_t(shapes_of(index, input_refs.data(), shapes.data(), error, sizeof error)));
      give_bytes(error, std::strlen(error));
      for (int k = 0; k < output_count; ++k) {
        give(int32_t(shapes[size_t(k)].rank));
        for (int d = 0; d < shapes[size_t(k)].rank; ++d) give(shapes[size_t(k)].sizes[d]);
      }
    } else {
      for (int k = 0; k < output_count; ++k) output_refs.push_back(outputs[size_t(k)].take_from_caller());
      OperatorCall call{};
      call.inputs = input_refs.data();
      call.input_count = size_t(given);
      call.attributes = attribute_refs.data();
      call.outputs = output_refs.data();
      give(int8_t(run(index, row, nullptr, threads, &call, error, sizeof error)));
      give_bytes(error, std::strlen(error));
      for (int k = 0; k < output_count; ++k) give_bytes(outputs[size_t(k)].data.get(), outputs[size_t(k)].bytes);
    }
    std::fflush(stdout);
  }
}
