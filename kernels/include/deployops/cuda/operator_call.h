// One call of an operator on the device, as adapters (TensorRT, ONNX Runtime, the emulation) hand it to the generated
// entry of a kernel: see native/templates/cuda_entries.cpp.j2. `OperatorCall::parallel` is for lists of tensors only.
#pragma once

#include <type_traits>

#include "deployops/cuda/launch.h"
#include "deployops/operator_call.h"
#include "deployops/workspace.h"

namespace deployops {

// Launches the kernel for one combination of dtypes. Throws what the launcher throws, InputError for inputs it refuses.
using CudaEntry = cudaError_t (*)(const OperatorCall&, Stream);

// Bytes of workspace that the kernel needs for tensors of these sizes. Throws as the launcher.
using WorkspaceEntry = size_t (*)(const OperatorCall&);

struct CudaKernels {
  const CudaEntry* entries;  // by combination of dtypes, in the order of `kernel_rows`
  int tactics;               // ways to compute the same: Stream::tactic is 0 … tactics − 1
  const WorkspaceEntry* workspaces;  // as `entries`; null: it needs none

  size_t workspace(const OperatorCall& call, size_t row) const {
    return workspaces == nullptr ? 0 : workspaces[row](call);
  }
};

// What stands for the function NAME_workspace where the kernel's file has none; known by what it makes of itself.
struct NoWorkspace {
  NoWorkspace operator()(NoWorkspace) const { return {}; }
  template <class... A>
  size_t operator()(const A&...) const {
    return 0;
  }
};

namespace detail {

// A call without the addresses of its tensors: how much workspace they need, their sizes alone decide.
class SizesOnly {
 public:
  SizesOnly(const OperatorCall& call, size_t outputs)
      : tensors_(call.parallel->scratch<TensorRef>(int64_t(call.input_count + outputs))), call_(call) {
    call_.inputs = copied(call.inputs, call.input_count, tensors_.data());
    call_.outputs = copied(call.outputs, outputs, tensors_.data() + call.input_count);
  }
  SizesOnly(const SizesOnly&) = delete;
  SizesOnly& operator=(const SizesOnly&) = delete;
  const OperatorCall& call() const { return call_; }

 private:
  static const TensorRef* copied(const TensorRef* from, size_t count, TensorRef* to) {
    for (size_t k = 0; k < count; ++k) {
      to[k] = from[k];
      to[k].data = nullptr;
    }
    return to;
  }
  Scratch<TensorRef> tensors_;
  OperatorCall call_;
};

// Becomes a Stream and nothing else: a launcher that takes a plain cudaStream_t cannot be called with it.
struct StreamAlone {
  Stream stream;
  operator Stream() const { return stream; }
};

// What a launcher is called with: where it wants the number of a tactic, or workspace, one that would lose them does not
// compile.
template <class Takes, bool wants_stream>
using FirstArgument = std::conditional_t<wants_stream && std::is_invocable_v<Takes, cudaStream_t&> &&
                                             !std::is_invocable_v<Takes, StreamAlone&>,
                                         StreamAlone, Stream>;

// An int would overflow for large tensors without a word.
template <class N>
size_t workspace_bytes(N bytes) {
  static_assert(std::is_same_v<N, size_t>, "the function NAME_workspace returns a number of bytes, a size_t");
  return bytes;
}

}  // namespace detail

}  // namespace deployops
