// Element types: TensorRT's numbers and ONNX's (TensorProto.DataType), which the table holds.
#pragma once

#include "tensorrt.h"

namespace deployops::trt {

// Of the sizes that the data decides: INT32, as TensorRT demands.
constexpr int32_t size_type = 6;

// 0 where kernels have no such type.
inline int32_t onnx_type(nvinfer1::DataType type) {
  switch (type) {
    case nvinfer1::DataType::kFLOAT: return 1;
    case nvinfer1::DataType::kUINT8: return 2;
    case nvinfer1::DataType::kINT8: return 3;
    case nvinfer1::DataType::kINT32: return 6;
    case nvinfer1::DataType::kINT64: return 7;
    case nvinfer1::DataType::kBOOL: return 9;
    case nvinfer1::DataType::kHALF: return 10;
    case nvinfer1::DataType::kBF16: return 16;
    default: return 0;
  }
}

// Of a type that a table holds (trt_plugins/carried.py lets no other in).
inline nvinfer1::DataType tensorrt_type(int32_t onnx) {
  switch (onnx) {
    case 2: return nvinfer1::DataType::kUINT8;
    case 3: return nvinfer1::DataType::kINT8;
    case 6: return nvinfer1::DataType::kINT32;
    case 7: return nvinfer1::DataType::kINT64;
    case 9: return nvinfer1::DataType::kBOOL;
    case 10: return nvinfer1::DataType::kHALF;
    case 16: return nvinfer1::DataType::kBF16;
    default: return nvinfer1::DataType::kFLOAT;
  }
}

inline size_t bytes_of(nvinfer1::DataType type) {
  switch (type) {
    case nvinfer1::DataType::kINT64: return 8;
    case nvinfer1::DataType::kFLOAT:
    case nvinfer1::DataType::kINT32: return 4;
    case nvinfer1::DataType::kHALF:
    case nvinfer1::DataType::kBF16: return 2;
    default: return 1;
  }
}

inline const char* name_of(nvinfer1::DataType type) {
  switch (type) {
    case nvinfer1::DataType::kFLOAT: return "float32";
    case nvinfer1::DataType::kUINT8: return "uint8";
    case nvinfer1::DataType::kINT8: return "int8";
    case nvinfer1::DataType::kINT32: return "int32";
    case nvinfer1::DataType::kINT64: return "int64";
    case nvinfer1::DataType::kBOOL: return "bool";
    case nvinfer1::DataType::kHALF: return "float16";
    case nvinfer1::DataType::kBF16: return "bfloat16";
    default: return "of a type that kernels do not have";
  }
}

}  // namespace deployops::trt
