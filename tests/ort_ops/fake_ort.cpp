// ONNX Runtime as a custom-operator library sees it, made of nothing but the indices of ort_abi.h: a table of functions,
// tensors in the emulated device's memory, and one stream. Linked into one library with the adapter for CUDA and with
// kernels compiled for the emulation; driven by run_fake_ort.py. What the adapter calls and is not here ends the process.
//
// Device memory can be touched by kernels alone: an adapter that reads a tensor itself is found.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device.h"
#include "memory.h"
#include "ort_abi.h"

using namespace deployops;

struct OrtStatus {
  int code;
  std::string text;
};
struct OrtCustomOpDomain {
  std::string name;
  std::vector<const OrtCustomOp*> operators;
};
struct OrtSessionOptions {
  std::vector<OrtCustomOpDomain*> domains;
};
struct OrtValue {
  void* data = nullptr;
  std::vector<int64_t> sizes;
  int dtype = 0;
};
struct OrtTensorTypeAndShapeInfo {
  int dtype;
  std::vector<int64_t> sizes;
};
struct OrtMemoryInfo {
  std::string name;
  int id;
};
struct OrtAllocator {
  int live = 0, made = 0;
};

// As run_fake_ort.py lays them out.
struct FakeTensor {
  void* data;
  const int64_t* sizes;
  int32_t rank;  // −1: absent
  int32_t dtype;
};
struct FakeAttribute {
  const char* name;
  int32_t kind;  // 0 INT, 1 FLOAT, 2 STRING, 3 INTS, 4 FLOATS
  int64_t i;
  float f;
  const char* s;
  size_t count;
  const int64_t* ints;
  const float* floats;
};
struct FakeOutput {
  int32_t wanted;
  int32_t dtype;
  int32_t item_size;
  int32_t rank;
  void* data;  // where the caller bound it; else where it was made
  int64_t sizes[16];
};

struct OrtKernelInfo {
  std::string node;
  const FakeAttribute* attributes;
  size_t count;
};
struct OrtKernelContext {
  std::vector<std::unique_ptr<OrtValue>> inputs, outputs;
  FakeOutput* wanted;
  size_t wanted_count;
  void* stream;
};

namespace {

OrtAllocator device_allocator;
int statuses = 0;  // made and not released

OrtStatus* failed(const std::string& text) {
  ++statuses;
  return new OrtStatus{1, text};
}

const FakeAttribute* find(const OrtKernelInfo* info, const char* name, int kind) {
  for (size_t k = 0; k < info->count; ++k) {
    const FakeAttribute& a = info->attributes[k];
    if (std::strcmp(a.name, name) == 0 && a.kind == kind) return &a;
  }
  return nullptr;
}

template <class T>
OrtStatus* list(const OrtKernelInfo* info, const char* name, int kind, const T* FakeAttribute::*items, T* out,
                size_t* size) {
  const FakeAttribute* a = find(info, name, kind);
  if (a == nullptr) return failed("no such attribute");
  if (out != nullptr) std::copy(a->*items, a->*items + a->count, out);
  *size = a->count;
  return nullptr;
}

void* device_memory(size_t bytes, const char* name) {
  void* made = emulation::guarded_memory(bytes, 16, true, true, name);
  emulation::close_memory();
  return made;
}

// Filled with the functions by their names; the indices are the adapter's.
ort::Api functions() {
  ort::Api api = {};
  api.CreateStatus = [](int code, const char* text) {
    ++statuses;
    return new OrtStatus{code, text};
  };
  api.GetErrorMessage = [](const OrtStatus* s) { return s->text.c_str(); };
  api.ReleaseStatus = [](OrtStatus* s) {
    --statuses;
    delete s;
  };
  api.CreateCustomOpDomain = [](const char* name, OrtCustomOpDomain** out) -> OrtStatus* {
    *out = new OrtCustomOpDomain{name, {}};
    return nullptr;
  };
  api.CustomOpDomain_Add = [](OrtCustomOpDomain* domain, const OrtCustomOp* op) -> OrtStatus* {
    domain->operators.push_back(op);
    return nullptr;
  };
  api.AddCustomOpDomain = [](OrtSessionOptions* options, OrtCustomOpDomain* domain) -> OrtStatus* {
    options->domains.push_back(domain);
    return nullptr;
  };
  api.GetTensorMutableData = [](OrtValue* value, void** data) -> OrtStatus* {
    *data = value->data;
    return nullptr;
  };
  api.GetTensorTypeAndShape = [](const OrtValue* v, OrtTensorTypeAndShapeInfo** out) -> OrtStatus* {
    *out = new OrtTensorTypeAndShapeInfo{v->dtype, v->sizes};
    return nullptr;
  };
  api.GetTensorElementType = [](const OrtTensorTypeAndShapeInfo* info, int* out) -> OrtStatus* {
    *out = info->dtype;
    return nullptr;
  };
  api.GetDimensionsCount = [](const OrtTensorTypeAndShapeInfo* info, size_t* out) -> OrtStatus* {
    *out = info->sizes.size();
    return nullptr;
  };
  api.GetDimensions = [](const OrtTensorTypeAndShapeInfo* info, int64_t* out, size_t count) -> OrtStatus* {
    std::copy(info->sizes.begin(), info->sizes.begin() + long(count), out);
    return nullptr;
  };
  api.ReleaseTensorTypeAndShapeInfo = [](OrtTensorTypeAndShapeInfo* info) { delete info; };
  api.CreateMemoryInfo = [](const char* name, int, int id, int, OrtMemoryInfo** out) -> OrtStatus* {
    *out = new OrtMemoryInfo{name, id};
    return nullptr;
  };
  api.ReleaseMemoryInfo = [](OrtMemoryInfo* info) { delete info; };
  api.KernelContext_GetAllocator = [](const OrtKernelContext*, const OrtMemoryInfo* info, OrtAllocator** out) {
    *out = &device_allocator;
    return info->name == "Cuda" && info->id == 0 ? nullptr : failed("No requested allocator available");
  };
  api.AllocatorAlloc = [](OrtAllocator* allocator, size_t bytes, void** out) -> OrtStatus* {
    ++allocator->live;
    ++allocator->made;
    *out = device_memory(bytes, "memory of the provider");
    return nullptr;
  };
  api.AllocatorFree = [](OrtAllocator* allocator, void*) -> OrtStatus* {
    --allocator->live;
    return nullptr;
  };
  api.ReleaseAllocator = [](OrtAllocator*) {};
  api.KernelInfoGetAttribute_int64 = [](const OrtKernelInfo* info, const char* name, int64_t* out) -> OrtStatus* {
    const FakeAttribute* a = find(info, name, 0);
    if (a == nullptr) return failed("no such attribute");
    *out = a->i;
    return nullptr;
  };
  api.KernelInfoGetAttribute_float = [](const OrtKernelInfo* info, const char* name, float* out) -> OrtStatus* {
    const FakeAttribute* a = find(info, name, 1);
    if (a == nullptr) return failed("no such attribute");
    *out = a->f;
    return nullptr;
  };
  api.KernelInfoGetAttribute_string = [](const OrtKernelInfo* info, const char* name, char* out,
                                         size_t* size) -> OrtStatus* {
    const FakeAttribute* a = find(info, name, 2);
    if (a == nullptr) return failed("no such attribute");
    *size = std::strlen(a->s) + 1;
    if (out != nullptr) std::memcpy(out, a->s, *size);
    return nullptr;
  };
  api.KernelInfoGetAttributeArray_int64 = [](const OrtKernelInfo* info, const char* name, int64_t* out, size_t* size) {
    return list(info, name, 3, &FakeAttribute::ints, out, size);
  };
  api.KernelInfoGetAttributeArray_float = [](const OrtKernelInfo* info, const char* name, float* out, size_t* size) {
    return list(info, name, 4, &FakeAttribute::floats, out, size);
  };
  api.KernelInfo_GetNodeName = [](const OrtKernelInfo* info, char* out, size_t* size) -> OrtStatus* {
    *size = info->node.size() + 1;
    std::memcpy(out, info->node.c_str(), *size);
    return nullptr;
  };
  api.KernelContext_GetInputCount = [](const OrtKernelContext* context, size_t* out) -> OrtStatus* {
    *out = context->inputs.size();
    return nullptr;
  };
  api.KernelContext_GetOutputCount = [](const OrtKernelContext* context, size_t* out) -> OrtStatus* {
    *out = context->wanted_count;
    return nullptr;
  };
  api.KernelContext_GetInput = [](const OrtKernelContext* context, size_t k, const OrtValue** out) -> OrtStatus* {
    *out = context->inputs[k].get();
    return nullptr;
  };
  api.KernelContext_GetOutput = [](OrtKernelContext* context, size_t k, const int64_t* sizes, size_t rank,
                                   OrtValue** out) -> OrtStatus* {
    *out = nullptr;
    FakeOutput& output = context->wanted[k];
    if (!output.wanted) return nullptr;
    size_t bytes = size_t(output.item_size);
    output.rank = int32_t(rank);
    for (size_t d = 0; d < rank; ++d) {
      output.sizes[d] = sizes[d];
      bytes *= size_t(sizes[d]);
    }
    if (output.data == nullptr) output.data = device_memory(bytes, "an output");
    auto& value = context->outputs.emplace_back(new OrtValue{output.data, {sizes, sizes + rank}, output.dtype});
    *out = value.get();
    return nullptr;
  };
  api.KernelContext_GetGPUComputeStream = [](const OrtKernelContext* context, void** out) -> OrtStatus* {
    *out = context->stream;
    return nullptr;
  };
  return api;
}

[[noreturn]] void not_here() {
  std::fputs("the adapter calls a function that the fake ONNX Runtime lacks\n", stderr);
  std::_Exit(3);
}

const OrtApi* table() {
  static void* slots[512];
  static const bool filled = [] {
    const ort::Api api = functions();
    for (void*& slot : slots) slot = reinterpret_cast<void*>(&not_here);
#define FILL(name, index) \
  if (api.name != nullptr) slots[index] = reinterpret_cast<void*>(api.name);
    DEPLOYOPS_ORT_SLOTS(FILL)
#undef FILL
    return true;
  }();
  static_cast<void>(filled);
  return reinterpret_cast<const OrtApi*>(slots);
}

OrtSessionOptions options;

const OrtCustomOp* at(size_t k, std::string* domain = nullptr) {
  for (const OrtCustomOpDomain* d : options.domains) {
    if (domain != nullptr) *domain = d->name;
    if (k < d->operators.size()) return d->operators[k];
    k -= d->operators.size();
  }
  return nullptr;
}

// Takes a status; its text into `text`. Whether there was one.
bool told(OrtStatus* status, char* text, size_t size) {
  if (status == nullptr) return false;
  std::snprintf(text, size, "%d %s", status->code, status->text.c_str());
  --statuses;
  delete status;
  return true;
}

}  // namespace

extern "C" OrtStatus* RegisterCustomOps(OrtSessionOptions*, const OrtApiBase*);

#define EXPORT extern "C" __attribute__((visibility("default")))

// `library`: registers the operators of that one, as nvcc compiled it, instead of the emulated ones; null: these.
EXPORT int fake_register(const char* library, char* text, size_t size) {
  static const OrtApiBase base = {[](uint32_t version) noexcept { return version <= 17 ? table() : nullptr; },
                                  []() noexcept { return "1.17.0"; }};
  emulation::catch_faults();
  auto* entry = &RegisterCustomOps;
  if (library != nullptr) {
    void* loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    entry = loaded == nullptr ? nullptr : reinterpret_cast<decltype(entry)>(dlsym(loaded, "RegisterCustomOps"));
    if (entry == nullptr) {
      std::snprintf(text, size, "%s", dlerror());
      return 1;
    }
  }
  return told(entry(&options, &base), text, size);
}

// "domain|name|provider|version|input types|memory types|output types", 0 after the last one.
EXPORT int fake_operator(size_t k, char* text, size_t size) {
  std::string line;
  const OrtCustomOp* op = at(k, &line);
  if (op == nullptr) return 0;
  const char* provider = op->GetExecutionProviderType(op);
  line += std::string("|") + op->GetName(op) + "|" + (provider ? provider : "") + "|" +
          std::to_string(op->GetStartVersion(op)) + "|";
  for (size_t i = 0; i < op->GetInputTypeCount(op); ++i) line += std::to_string(op->GetInputType(op, i)) + ",";
  line += "|";
  for (size_t i = 0; i < op->GetInputTypeCount(op); ++i) line += std::to_string(op->GetInputMemoryType(op, i)) + ",";
  line += "|";
  for (size_t i = 0; i < op->GetOutputTypeCount(op); ++i) line += std::to_string(op->GetOutputType(op, i)) + ",";
  std::snprintf(text, size, "%s", line.c_str());
  return 1;
}

EXPORT void* fake_memory(size_t bytes, size_t alignment, int writable, const char* name) {
  return emulation::guarded_memory(bytes, alignment, true, writable != 0, name);
}
EXPORT void fake_release() { emulation::release_guarded_memory(); }
EXPORT int fake_live() { return device_allocator.live; }
EXPORT int fake_made() { return device_allocator.made; }
EXPORT int fake_statuses() { return statuses; }

// Makes the kernel of a node and runs it once. 0: done; else `text` is the status.
EXPORT int fake_run(size_t k, const char* node, const FakeTensor* inputs, size_t input_count,
                    const FakeAttribute* attributes, size_t attribute_count, FakeOutput* outputs, size_t output_count,
                    void* stream, char* text, size_t size) {
  const OrtCustomOp* op = at(k);
  const OrtKernelInfo info{node, attributes, attribute_count};
  void* kernel = nullptr;
  if (told(op->CreateKernelV2(op, table(), &info, &kernel), text, size)) return 1;
  OrtKernelContext context;
  for (size_t i = 0; i < input_count; ++i) {
    const FakeTensor& t = inputs[i];
    context.inputs.emplace_back(t.rank < 0 ? nullptr : new OrtValue{t.data, {t.sizes, t.sizes + t.rank}, t.dtype});
  }
  context.wanted = outputs;
  context.wanted_count = output_count;
  context.stream = stream;
  emulation::set_run_settings({0, 0, static_cast<cudaStream_t>(stream)});
  emulation::close_memory();
  const bool failed = told(op->KernelComputeV2(kernel, &context), text, size);
  emulation::read_memory();
  op->KernelDestroy(kernel);
  return failed;
}
