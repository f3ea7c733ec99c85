// A custom-operator library that calls, in the ONNX Runtime that loads it, the functions that only the adapter for CUDA
// uses, by the indices of ort_abi.h. What is wrong is the status that comes back.
#include <cstring>
#include <string>

#include "ort_abi.h"

using namespace deployops::ort;

namespace {

Api api;

// Its output is 1 where the stream of the CPU provider, which has none, is null.
struct Probe : OrtCustomOp {
  Probe() : OrtCustomOp{} {
    version = api_version;
    GetName = [](const OrtCustomOp*) { return "Probe"; };
    GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
    GetInputTypeCount = GetOutputTypeCount = [](const OrtCustomOp*) { return size_t(1); };
    GetInputType = GetOutputType = [](const OrtCustomOp*, size_t) { return 1; };
    GetInputCharacteristic = GetOutputCharacteristic = [](const OrtCustomOp*, size_t) { return 0; };
    GetInputMemoryType = [](const OrtCustomOp*, size_t) { return 0; };
    GetVariadicInputMinArity = GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 1; };
    GetVariadicInputHomogeneity = GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
    GetStartVersion = [](const OrtCustomOp*) { return 1; };
    GetEndVersion = [](const OrtCustomOp*) { return 1000; };
    CreateKernelV2 = [](const OrtCustomOp* op, const OrtApi*, const OrtKernelInfo*, void** kernel) -> OrtStatus* {
      *kernel = const_cast<OrtCustomOp*>(op);
      return nullptr;
    };
    KernelDestroy = [](void*) {};
    KernelComputeV2 = [](void*, OrtKernelContext* context) -> OrtStatus* {
      void* stream = &api;
      if (OrtStatus* failed = api.KernelContext_GetGPUComputeStream(context, &stream)) return failed;
      const int64_t size = 1;
      OrtValue* value = nullptr;
      void* data = nullptr;
      if (OrtStatus* failed = api.KernelContext_GetOutput(context, 0, &size, 1, &value)) return failed;
      if (OrtStatus* failed = api.GetTensorMutableData(value, &data)) return failed;
      *static_cast<float*>(data) = stream == nullptr ? 1.0f : 0.0f;
      return nullptr;
    };
  }
};

}  // namespace

extern "C" OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  static const Probe probe;
  const OrtApi* table = base->GetApi(api_version);
  api = read_api(table, nullptr);
  OrtMemoryInfo* info = nullptr;
  if (OrtStatus* failed = api.CreateMemoryInfo("Cuda", 0, 3, 0, &info)) return failed;
  OrtStatus* (*get_name)(const OrtMemoryInfo*, const char**) = nullptr;
  OrtStatus* (*get_id)(const OrtMemoryInfo*, int*) = nullptr;
  read_slot(table, 71, get_name);  // MemoryInfoGetName
  read_slot(table, 72, get_id);    // MemoryInfoGetId
  const char* name = "";
  int id = 0;
  if (OrtStatus* failed = get_name(info, &name)) return failed;
  if (OrtStatus* failed = get_id(info, &id)) return failed;
  const std::string found = std::string(name) + " " + std::to_string(id);
  api.ReleaseMemoryInfo(info);
  if (found != "Cuda 3") return api.CreateStatus(fail, ("CreateMemoryInfo made " + found).c_str());
  OrtCustomOpDomain* domain = nullptr;
  if (OrtStatus* failed = api.CreateCustomOpDomain("probe", &domain)) return failed;
  if (OrtStatus* failed = api.CustomOpDomain_Add(domain, &probe)) return failed;
  return api.AddCustomOpDomain(options, domain);
}
