// The stream that launchers are given, and whether what they do is done on it: of the emulated device, and of the runtime that
// interprets PTX.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace deployops::emulation {

// Nobody looks behind the address.
inline cudaStream_t stream_of_calls() {
  static char there;
  return reinterpret_cast<cudaStream_t>(&there);
}

// What is wrong where something is done on another stream than the `given` one; empty where nothing is. `given`: null where a
// host has said none: any but the default one then. A device does as it is told, and the results are wrong now and then: here
// it is an error, so that no host can miss it.
inline std::string wrong_stream(cudaStream_t given, cudaStream_t stream, const std::string& what) {
  const bool by_default = stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
  if (given == nullptr ? !by_default : stream == given) return "";
  return what + " on " + (by_default ? "the default stream" : "another stream") +
         ", not on the stream given: in TensorRT it would race with what runs before and after";
}

}  // namespace deployops::emulation
