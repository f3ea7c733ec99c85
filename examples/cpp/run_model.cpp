// Run an exported model with its custom-operator library from C++: no Python at run time.
//
//   deployops compile -o lib                     (or --ops my_ops.py for operators of your own)
//   g++ -std=c++17 run_model.cpp -I$ORT/include -L$ORT/lib -lonnxruntime -o run_model
//   ./run_model model.onnx lib/libdeployops_ort_cpu.so
//
// $ORT is an unpacked release of ONNX Runtime, 1.17 or newer. Every input is fed with ones, unknown sizes as 2.

#include <onnxruntime_cxx_api.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL.onnx LIBRARY.so\n", argv[0]);
    return 2;
  }
  Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "run_model");
  Ort::SessionOptions options;
  options.RegisterCustomOpsLibrary(argv[2]);  // once per options object: a second time is an error
  Ort::Session session(env, argv[1], options);

  Ort::AllocatorWithDefaultOptions allocator;
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  std::vector<std::string> names;
  std::vector<std::vector<float>> data;
  std::vector<Ort::Value> inputs;
  for (size_t k = 0; k < session.GetInputCount(); ++k) {
    names.push_back(session.GetInputNameAllocated(k, allocator).get());
    const auto type = session.GetInputTypeInfo(k);
    const auto info = type.GetTensorTypeAndShapeInfo();
    if (info.GetElementType() != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) {
      std::fprintf(stderr, "input %s is not float32, which is all that this example feeds\n", names.back().c_str());
      return 2;
    }
    std::vector<int64_t> shape = info.GetShape();
    size_t count = 1;
    for (int64_t& size : shape) {
      if (size < 0) size = 2;
      count *= size_t(size);
    }
    data.emplace_back(count, 1.0f);
    inputs.push_back(
        Ort::Value::CreateTensor<float>(memory, data.back().data(), count, shape.data(), shape.size()));
  }

  std::vector<std::string> output_names;
  for (size_t k = 0; k < session.GetOutputCount(); ++k) {
    output_names.push_back(session.GetOutputNameAllocated(k, allocator).get());
  }
  std::vector<const char*> in, out;
  for (const std::string& name : names) in.push_back(name.c_str());
  for (const std::string& name : output_names) out.push_back(name.c_str());
  const auto outputs =
      session.Run(Ort::RunOptions{nullptr}, in.data(), inputs.data(), inputs.size(), out.data(), out.size());

  for (size_t k = 0; k < outputs.size(); ++k) {
    const auto info = outputs[k].GetTensorTypeAndShapeInfo();
    std::printf("%s (", output_names[k].c_str());
    for (const int64_t size : info.GetShape()) std::printf(" %lld", static_cast<long long>(size));
    std::printf(" ):");
    if (info.GetElementType() == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) {
      const float* values = outputs[k].GetTensorData<float>();
      for (size_t i = 0; i < info.GetElementCount() && i < 8; ++i) std::printf(" %g", double(values[i]));
    }
    std::printf("\n");
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
