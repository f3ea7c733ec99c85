// The part of ONNX Runtime's C interface that a custom-operator library needs.
//
// ONNX Runtime's function table only ever grows at its end, so an index names the same function in every version:
// no header of theirs is needed, and one library runs on every version from 1.17 on. The indices and the layout of
// `OrtCustomOp` are those of onnxruntime_c_api.h (tests/ort_ops/test_abi.py compares, where that file is at hand).
#pragma once

#include <cstddef>
#include <cstdint>

struct OrtStatus;
struct OrtSessionOptions;
struct OrtCustomOpDomain;
struct OrtValue;
struct OrtTensorTypeAndShapeInfo;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtShapeInferContext;
struct OrtMemoryInfo;
struct OrtAllocator;
struct OrtApi;  // the table: an array of function pointers

struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version) noexcept;
  const char* (*GetVersionString)() noexcept;
};

// Version 17 of the structure: later fields are read by ONNX Runtime only where `version` says that they are there.
struct OrtCustomOp {
  uint32_t version;
  void* (*CreateKernel)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*);
  const char* (*GetName)(const OrtCustomOp*);
  const char* (*GetExecutionProviderType)(const OrtCustomOp*);
  int (*GetInputType)(const OrtCustomOp*, size_t);
  size_t (*GetInputTypeCount)(const OrtCustomOp*);
  int (*GetOutputType)(const OrtCustomOp*, size_t);
  size_t (*GetOutputTypeCount)(const OrtCustomOp*);
  void (*KernelCompute)(void*, OrtKernelContext*);
  void (*KernelDestroy)(void*);
  int (*GetInputCharacteristic)(const OrtCustomOp*, size_t);
  int (*GetOutputCharacteristic)(const OrtCustomOp*, size_t);
  int (*GetInputMemoryType)(const OrtCustomOp*, size_t);
  int (*GetVariadicInputMinArity)(const OrtCustomOp*);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp*);
  int (*GetVariadicOutputMinArity)(const OrtCustomOp*);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp*);
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void**);
  OrtStatus* (*KernelComputeV2)(void*, OrtKernelContext*);
  OrtStatus* (*InferOutputShapeFn)(const OrtCustomOp*, OrtShapeInferContext*);
  int (*GetStartVersion)(const OrtCustomOp*);
  int (*GetEndVersion)(const OrtCustomOp*);
};

namespace deployops::ort {

constexpr uint32_t api_version = 17;  // of ONNX Runtime 1.17: the oldest that has ParallelFor and shape inference
enum Characteristic { required = 0, optional = 1, variadic = 2 };
enum Error { fail = 1, invalid_argument = 2 };

// The functions in use, by their names there.
struct Api {
  OrtStatus* (*CreateStatus)(int code, const char* message);
  const char* (*GetErrorMessage)(const OrtStatus*);
  OrtStatus* (*CreateCustomOpDomain)(const char* domain, OrtCustomOpDomain**);
  OrtStatus* (*CustomOpDomain_Add)(OrtCustomOpDomain*, const OrtCustomOp*);
  OrtStatus* (*AddCustomOpDomain)(OrtSessionOptions*, OrtCustomOpDomain*);
  OrtStatus* (*GetTensorMutableData)(OrtValue*, void**);
  OrtStatus* (*CreateTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo**);
  OrtStatus* (*SetTensorElementType)(OrtTensorTypeAndShapeInfo*, int);
  OrtStatus* (*SetDimensions)(OrtTensorTypeAndShapeInfo*, const int64_t*, size_t);
  OrtStatus* (*GetTensorElementType)(const OrtTensorTypeAndShapeInfo*, int*);
  OrtStatus* (*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo*, size_t*);
  OrtStatus* (*GetDimensions)(const OrtTensorTypeAndShapeInfo*, int64_t*, size_t);
  OrtStatus* (*GetSymbolicDimensions)(const OrtTensorTypeAndShapeInfo*, const char**, size_t);
  OrtStatus* (*GetTensorTypeAndShape)(const OrtValue*, OrtTensorTypeAndShapeInfo**);
  OrtStatus* (*CreateMemoryInfo)(const char* name, int allocator, int id, int memory, OrtMemoryInfo**);
  OrtStatus* (*CreateCpuMemoryInfo)(int allocator, int memory, OrtMemoryInfo**);
  OrtStatus* (*AllocatorAlloc)(OrtAllocator*, size_t, void**);
  OrtStatus* (*AllocatorFree)(OrtAllocator*, void*);
  OrtStatus* (*KernelInfoGetAttribute_float)(const OrtKernelInfo*, const char*, float*);
  OrtStatus* (*KernelInfoGetAttribute_int64)(const OrtKernelInfo*, const char*, int64_t*);
  OrtStatus* (*KernelInfoGetAttribute_string)(const OrtKernelInfo*, const char*, char*, size_t*);
  OrtStatus* (*KernelContext_GetInputCount)(const OrtKernelContext*, size_t*);
  OrtStatus* (*KernelContext_GetOutputCount)(const OrtKernelContext*, size_t*);
  OrtStatus* (*KernelContext_GetInput)(const OrtKernelContext*, size_t, const OrtValue**);
  OrtStatus* (*KernelContext_GetOutput)(OrtKernelContext*, size_t, const int64_t*, size_t, OrtValue**);
  void (*ReleaseStatus)(OrtStatus*);
  void (*ReleaseMemoryInfo)(OrtMemoryInfo*);
  void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo*);
  void (*ReleaseAllocator)(OrtAllocator*);
  OrtStatus* (*KernelInfoGetAttributeArray_float)(const OrtKernelInfo*, const char*, float*, size_t*);
  OrtStatus* (*KernelInfoGetAttributeArray_int64)(const OrtKernelInfo*, const char*, int64_t*, size_t*);
  OrtStatus* (*KernelContext_GetGPUComputeStream)(const OrtKernelContext*, void**);
  OrtStatus* (*KernelInfo_GetNodeName)(const OrtKernelInfo*, char*, size_t*);
  OrtStatus* (*KernelContext_GetAllocator)(const OrtKernelContext*, const OrtMemoryInfo*, OrtAllocator**);
  OrtStatus* (*ShapeInferContext_GetInputCount)(const OrtShapeInferContext*, size_t*);
  OrtStatus* (*ShapeInferContext_GetInputTypeShape)(const OrtShapeInferContext*, size_t, OrtTensorTypeAndShapeInfo**);
  OrtStatus* (*ShapeInferContext_SetOutputTypeShape)(const OrtShapeInferContext*, size_t,
                                                     const OrtTensorTypeAndShapeInfo*);
  OrtStatus* (*SetSymbolicDimensions)(OrtTensorTypeAndShapeInfo*, const char**, size_t);
  OrtStatus* (*KernelContext_ParallelFor)(const OrtKernelContext*, void (*)(void*, size_t), size_t, size_t, void*);
  // From 1.24 on, else null: the type and shape of a tensor without an allocation.
  OrtStatus* (*GetTensorElementTypeAndShapeDataReference)(const OrtValue*, int*, const int64_t**, size_t*);
};

// Indices into the table.
#define DEPLOYOPS_ORT_SLOTS(SLOT) \
  SLOT(CreateStatus, 0) \
  SLOT(GetErrorMessage, 2) \
  SLOT(CreateCustomOpDomain, 26) \
  SLOT(CustomOpDomain_Add, 27) \
  SLOT(AddCustomOpDomain, 28) \
  SLOT(GetTensorMutableData, 51) \
  SLOT(CreateTensorTypeAndShapeInfo, 57) \
  SLOT(SetTensorElementType, 58) \
  SLOT(SetDimensions, 59) \
  SLOT(GetTensorElementType, 60) \
  SLOT(GetDimensionsCount, 61) \
  SLOT(GetDimensions, 62) \
  SLOT(GetSymbolicDimensions, 63) \
  SLOT(GetTensorTypeAndShape, 65) \
  SLOT(CreateMemoryInfo, 68) \
  SLOT(CreateCpuMemoryInfo, 69) \
  SLOT(AllocatorAlloc, 75) \
  SLOT(AllocatorFree, 76) \
  SLOT(KernelInfoGetAttribute_float, 85) \
  SLOT(KernelInfoGetAttribute_int64, 86) \
  SLOT(KernelInfoGetAttribute_string, 87) \
  SLOT(KernelContext_GetInputCount, 88) \
  SLOT(KernelContext_GetOutputCount, 89) \
  SLOT(KernelContext_GetInput, 90) \
  SLOT(KernelContext_GetOutput, 91) \
  SLOT(ReleaseStatus, 93) \
  SLOT(ReleaseMemoryInfo, 94) \
  SLOT(ReleaseTensorTypeAndShapeInfo, 99) \
  SLOT(ReleaseAllocator, 132) \
  SLOT(KernelInfoGetAttributeArray_float, 162) \
  SLOT(KernelInfoGetAttributeArray_int64, 163) \
  SLOT(KernelContext_GetGPUComputeStream, 193) \
  SLOT(KernelInfo_GetNodeName, 244) \
  SLOT(KernelContext_GetAllocator, 253) \
  SLOT(ShapeInferContext_GetInputCount, 267) \
  SLOT(ShapeInferContext_GetInputTypeShape, 268) \
  SLOT(ShapeInferContext_SetOutputTypeShape, 270) \
  SLOT(SetSymbolicDimensions, 271) \
  SLOT(KernelContext_ParallelFor, 274)
#define DEPLOYOPS_ORT_SLOTS_1_24(SLOT) SLOT(GetTensorElementTypeAndShapeDataReference, 414)

template <class Function>
void read_slot(const OrtApi* table, size_t index, Function& function) {
  function = reinterpret_cast<Function>(reinterpret_cast<void* const*>(table)[index]);
}

// The functions of a runtime; `recent` is its table for 1.24, or null.
inline Api read_api(const OrtApi* table, const OrtApi* recent) {
  Api api = {};
#define DEPLOYOPS_READ(name, index) read_slot(table, index, api.name);
  DEPLOYOPS_ORT_SLOTS(DEPLOYOPS_READ)
#undef DEPLOYOPS_READ
  if (recent != nullptr) {
#define DEPLOYOPS_READ(name, index) read_slot(recent, index, api.name);
    DEPLOYOPS_ORT_SLOTS_1_24(DEPLOYOPS_READ)
#undef DEPLOYOPS_READ
  }
  return api;
}

}  // namespace deployops::ort
