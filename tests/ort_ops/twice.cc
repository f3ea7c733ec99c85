// A custom-operator library: acme::Twice, y = 2 x in float32, for tests. It needs no header of the runtime: the tables
// of ONNX Runtime's C API only grow at their end. Slots and OrtCustomOp (version 17) as in onnxruntime_c_api.h.
// CRASH, HANG and PRINT make its kernel misbehave.
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <unistd.h>
struct Base { const void* const* (*GetApi)(uint32_t); const char* (*GetVersionString)(); };
struct Op {
  uint32_t version;
  void* (*CreateKernel)(const Op*, const void*, const void*);
  const char* (*GetName)(const Op*);
  const char* (*GetExecutionProviderType)(const Op*);
  int (*GetInputType)(const Op*, size_t);
  size_t (*GetInputTypeCount)(const Op*);
  int (*GetOutputType)(const Op*, size_t);
  size_t (*GetOutputTypeCount)(const Op*);
  void (*KernelCompute)(void*, void*);
  void (*KernelDestroy)(void*);
  int (*GetInputCharacteristic)(const Op*, size_t);
  int (*GetOutputCharacteristic)(const Op*, size_t);
  int (*GetInputMemoryType)(const Op*, size_t);
  int (*GetVariadicInputMinArity)(const Op*);
  int (*GetVariadicInputHomogeneity)(const Op*);
  int (*GetVariadicOutputMinArity)(const Op*);
  int (*GetVariadicOutputHomogeneity)(const Op*);
  void* (*CreateKernelV2)(const Op*, const void*, const void*, void**);
  void* (*KernelComputeV2)(void*, void*);
  void* (*InferOutputShapeFn)(const Op*, void*);
  int (*GetStartVersion)(const Op*);
  int (*GetEndVersion)(const Op*);
};
static const void* const* api;
template <class F> static F slot(int i) { return reinterpret_cast<F>(const_cast<void*>(api[i])); }
static void* compute(void*, void* context) {
#if defined(CRASH)
  std::fprintf(stderr, "twice: about to crash\n");
  std::raise(SIGKILL);
#elif defined(HANG)
  for (;;) pause();
#elif defined(PRINT)
  std::puts("a line on standard output");
  std::fflush(stdout);
#endif
  const void* in = nullptr; void* out = nullptr; void* info = nullptr; size_t rank = 0, count = 0; int64_t
  dims[8]; slot<void* (*)(const void*, size_t, const void**)>(90)(context, 0, &in);
  slot<void* (*)(const void*, void**)>(65)(in, &info);
  slot<void* (*)(const void*, size_t*)>(61)(info, &rank);
  slot<void* (*)(const void*, int64_t*, size_t)>(62)(info, dims, rank);
  slot<void* (*)(const void*, size_t*)>(64)(info, &count);
  slot<void (*)(void*)>(99)(info);
  slot<void* (*)(void*, size_t, const int64_t*, size_t, void**)>(91)(context, 0, dims, rank, &out);
  void *x = nullptr, *y = nullptr;
  slot<void* (*)(void*, void**)>(51)(const_cast<void*>(in), &x);
  slot<void* (*)(void*, void**)>(51)(out, &y);
  for (size_t i = 0; i < count; ++i) static_cast<float*>(y)[i] = 2 * static_cast<float*>(x)[i];
  return nullptr;
}
static Op twice;
extern "C" __attribute__((visibility("default"))) void* RegisterCustomOps(void* options, const Base* base) {
  api = base->GetApi(17);
  twice = Op{};
  twice.version = 17;
  twice.GetName = [](const Op*) -> const char* { return "Twice"; };
  twice.GetExecutionProviderType = [](const Op*) -> const char* { return nullptr; };
  twice.GetInputType = twice.GetOutputType = [](const Op*, size_t) { return 1; };
  twice.GetInputTypeCount = twice.GetOutputTypeCount = [](const Op*) -> size_t { return 1; };
  twice.GetInputCharacteristic = twice.GetOutputCharacteristic = [](const Op*, size_t) { return 0; };
  twice.GetInputMemoryType = [](const Op*, size_t) { return 0; };
  twice.GetVariadicInputMinArity = twice.GetVariadicInputHomogeneity = [](const Op*) { return 1; };
  twice.GetVariadicOutputMinArity = twice.GetVariadicOutputHomogeneity = [](const Op*) { return 1; };
  twice.GetStartVersion = [](const Op*) { return 3; };
  twice.GetEndVersion = [](const Op*) { return 0x7fffffff; };
  twice.CreateKernelV2 = [](const Op*, const void*, const void*, void** k) -> void* { *k = &twice; return
  nullptr; }; twice.KernelDestroy = [](void*) {};
  twice.KernelComputeV2 = compute;
  void* domain = nullptr;
  slot<void* (*)(const char*, void**)>(26)("acme", &domain);
  slot<void* (*)(void*, const Op*)>(27)(domain, &twice);
  return slot<void* (*)(void*, void*)>(28)(options, domain);
}
