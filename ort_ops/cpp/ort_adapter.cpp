// Every operator of the table as a custom operator of ONNX Runtime: one per combination of dtypes.

// Its loops are over a few tensors and dims: vectors only make them longer.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-vectorize", "no-tree-loop-distribute-patterns")
#endif

#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>

#include "attributes.h"
#include "level.h"

namespace deployops::ort {
namespace {

constexpr size_t few = 8;  // tensors that need no allocation

// An array on the stack where it is small; only `count` elements are made.
template <class T>
class Array {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  explicit Array(size_t count) : many_(count > few ? new T[count] : nullptr), data_(many_) {
    if (many_ != nullptr) return;
    data_ = reinterpret_cast<T*>(own_);
    for (size_t k = 0; k < count; ++k) new (data_ + k) T;
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { delete[] many_; }
  T* data() { return data_; }
  T& operator[](size_t i) { return data_[i]; }

 private:
  alignas(T) unsigned char own_[few * sizeof(T)];
  T* many_;
  T* data_;
};

struct Dims {
  int64_t sizes[max_rank];
};

struct Binding;

struct CustomOp : OrtCustomOp {
  const Binding* binding;
  const OperatorSpec* spec;
  const RowSpec* row;
  KernelEntry entry;
};

// What belongs to one ONNX Runtime in the process.
struct Binding {
  Api api;
  OrtMemoryInfo* cpu;
  std::vector<std::unique_ptr<CustomOp>> operators;
  std::vector<OrtCustomOpDomain*> domains;
};

// A node of an opened model.
struct Kernel {
  const CustomOp& op;
  std::string node;
  Attributes attributes;
  // How many inputs and outputs the node has, both at least one: it tells in the first call.
  mutable std::atomic<size_t> given{0}, wanted{0};

  Kernel(const CustomOp& made_for, const OrtKernelInfo* info)
      : op(made_for), node(name_of(made_for, info)), attributes(op.binding->api, info, op.spec->attributes) {}

  static std::string name_of(const CustomOp& op, const OrtKernelInfo* info) {
    char name[256];
    size_t size = sizeof name;
    if (Status(op.binding->api, op.binding->api.KernelInfo_GetNodeName(info, name, &size))) return "";
    return std::string(name, size > 0 ? size - 1 : 0);
  }
};

// "acme::Swish (float16, node 'n3'): "
std::string title(const CustomOp& op, const std::string& node) {
  std::string text = std::string(op.spec->domain) + "::" + op.spec->op_type + " (" + op.row->label;
  if (!node.empty()) text += ", node '" + node + "'";
  return text + "): ";
}

// One of them, which `ask` finds out; the same for all calls, so that it does not matter which one sets it.
size_t counted(const Api& api, std::atomic<size_t>& count, OrtKernelContext* context,
               OrtStatus* (*ask)(const OrtKernelContext*, size_t*)) {
  size_t known = count.load(std::memory_order_relaxed);
  if (known == 0) {
    check(api, ask(context, &known));
    count.store(known, std::memory_order_relaxed);
  }
  return known;
}

template <class F>
OrtStatus* guarded(const CustomOp& op, const std::string& node, F&& f) noexcept {
  const Api& api = op.binding->api;
  try {
    f();
    return nullptr;
  } catch (const InputError& e) {
    return api.CreateStatus(invalid_argument, (title(op, node) + e.what()).c_str());
  } catch (const std::bad_alloc&) {
    return api.CreateStatus(fail, (title(op, node) + "there is not enough memory").c_str());
  } catch (const std::exception& e) {
    return api.CreateStatus(fail, (title(op, node) + e.what()).c_str());
  } catch (...) {
    return api.CreateStatus(fail, (title(op, node) + "the kernel threw something that is no std::exception").c_str());
  }
}

// --- one call ------------------------------------------------------------------------------------------------

// Reads type and shape of a tensor that may be absent; `held` is where its sizes may be kept.
void read_tensor(const Api& api, const OrtValue* value, Dims& held, TensorRef& tensor) {
  if (value == nullptr) return;
  size_t rank = 0;
  int dtype = 0;
  if (api.GetTensorElementTypeAndShapeDataReference != nullptr) {
    check(api, api.GetTensorElementTypeAndShapeDataReference(value, &dtype, &tensor.sizes, &rank));
    require(rank <= max_rank, "an input has ", rank, " dimensions; at most ", max_rank, " are supported");
  } else {
    OrtTensorTypeAndShapeInfo* info = nullptr;
    check(api, api.GetTensorTypeAndShape(value, &info));
    const std::unique_ptr<OrtTensorTypeAndShapeInfo, void (*)(OrtTensorTypeAndShapeInfo*)> owner(
        info, api.ReleaseTensorTypeAndShapeInfo);
    check(api, api.GetDimensionsCount(info, &rank));
    require(rank <= max_rank, "an input has ", rank, " dimensions; at most ", max_rank, " are supported");
    check(api, api.GetDimensions(info, held.sizes, rank));
    check(api, api.GetTensorElementType(info, &dtype));
    tensor.sizes = held.sizes;
  }
  tensor.rank = int32_t(rank);
  tensor.dtype = dtype;
  check(api, api.GetTensorMutableData(const_cast<OrtValue*>(value), &tensor.data));
}

size_t bytes_of(const TensorRef& t) {
  // TensorProto.DataType of the types that kernels know; 0 for the others
  static constexpr uint8_t widths[] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 8, 16, 2};
  size_t bytes = size_t(t.dtype) < sizeof widths ? widths[t.dtype] : 0;
  for (int d = 0; d < t.rank; ++d) bytes *= size_t(t.sizes[d]);
  return bytes;
}

bool overlap(const TensorRef& a, size_t bytes, const TensorRef& b) {
  const auto first = reinterpret_cast<uintptr_t>(a.data), second = reinterpret_cast<uintptr_t>(b.data);
  return first < second + bytes_of(b) && second < first + bytes;
}

// The runtime, its threads and memory, as kernels see them.
struct Lender {
  const Binding& binding;
  OrtKernelContext* context;

  static void run(void* self, void (*task)(void*, size_t), void* work, size_t count) {
    const auto& lender = *static_cast<const Lender*>(self);
    const Api& api = lender.binding.api;
    check(api, api.KernelContext_ParallelFor(lender.context, task, count, 0, work));
  }

  // ONNX Runtime promises no alignment: the address that it gave stands before the aligned one.
  static constexpr size_t alignment = 64;
  static void* allocate(void* self, size_t bytes) {
    const auto& lender = *static_cast<const Lender*>(self);
    void* given = nullptr;
    if (bytes > SIZE_MAX - 2 * alignment) throw std::bad_alloc();
    with_allocator(lender, [&](const Api& api, OrtAllocator* allocator) {
      check(api, api.AllocatorAlloc(allocator, bytes + 2 * alignment, &given));
    });
    if (given == nullptr) throw std::bad_alloc();
    const auto address = (reinterpret_cast<uintptr_t>(given) + 2 * alignment - 1) & ~uintptr_t(alignment - 1);
    reinterpret_cast<void**>(address)[-1] = given;
    return reinterpret_cast<void*>(address);
  }
  static void release(void* self, void* memory) {
    const auto& lender = *static_cast<const Lender*>(self);
    with_allocator(lender, [&](const Api& api, OrtAllocator* allocator) {
      const Status ignored(api, api.AllocatorFree(allocator, static_cast<void**>(memory)[-1]));
    });
  }

 private:
  template <class F>
  static void with_allocator(const Lender& lender, F&& f) {
    const Api& api = lender.binding.api;
    OrtAllocator* allocator = nullptr;
    check(api, api.KernelContext_GetAllocator(lender.context, lender.binding.cpu, &allocator));
    const std::unique_ptr<OrtAllocator, void (*)(OrtAllocator*)> owner(allocator, api.ReleaseAllocator);
    f(api, allocator);
  }
};

// The outputs of one call: allocated by the shape rule, or when the kernel asks.
struct Outputs {
  const Binding& binding;
  OrtKernelContext* context;
  Array<TensorRef> tensors;
  Array<Dims> held;
  std::vector<std::unique_ptr<char[]>> unused;
  size_t wanted = 1;  // how many outputs the node has

  Outputs(const Kernel& kernel, OrtKernelContext* call)
      : binding(*kernel.op.binding), context(call), tensors(kernel.op.spec->outputs.count),
        held(kernel.op.spec->outputs.count) {
    const size_t count = kernel.op.spec->outputs.count;
    for (size_t k = 0; k < count; ++k) tensors[k].dtype = kernel.op.row->outputs[k];
    const Api& api = binding.api;
    if (count > 1) wanted = counted(api, kernel.wanted, context, api.KernelContext_GetOutputCount);
  }

  // The sizes stay where they are.
  void allocate(size_t k, const int64_t* sizes, int rank) {
    for (int d = 0; d < rank; ++d) require(sizes[d] >= 0, "dimension ", d, " of output ", k, " would be ", sizes[d]);
    OrtValue* value = nullptr;
    if (k < wanted) check(binding.api, binding.api.KernelContext_GetOutput(context, k, sizes, size_t(rank), &value));
    tensors[k].sizes = sizes;
    tensors[k].rank = rank;
    if (value == nullptr) {  // the model leaves it out; the kernel writes it all the same
      tensors[k].data = unused.emplace_back(new char[bytes_of(tensors[k])]).get();
    } else {
      check(binding.api, binding.api.GetTensorMutableData(value, &tensors[k].data));
    }
  }

  static void* request(void* self, size_t k, const int64_t* sizes, int rank, const int64_t** kept) {
    auto& outputs = *static_cast<Outputs*>(self);
    int64_t* const held = outputs.held[k].sizes;
    std::copy(sizes, sizes + rank, held);
    outputs.allocate(k, held, rank);
    *kept = held;
    return outputs.tensors[k].data;
  }
};

void compute(const Kernel& kernel, OrtKernelContext* context) {
  const CustomOp& op = kernel.op;
  const OperatorSpec& spec = *op.spec;
  const Api& api = op.binding->api;
  const size_t given = counted(api, kernel.given, context, api.KernelContext_GetInputCount);
  const size_t count = std::max(given, spec.inputs.count);
  Array<TensorRef> inputs(count);
  Array<Dims> held(count);
  for (size_t k = 0; k < given; ++k) {
    const OrtValue* value = nullptr;
    check(api, api.KernelContext_GetInput(context, k, &value));
    read_tensor(api, value, held[k], inputs[k]);
  }

  for (size_t k = 0; k < spec.inputs.count; ++k) {
    require(spec.inputs[k].form != Form::single || inputs[k].rank >= 0, "the input `", spec.inputs[k].name,
            "` is missing");
  }

  Array<Shape> expected(spec.outputs.count);
  spec.shapes(inputs.data(), expected.data());
  Outputs outputs(kernel, context);
  for (size_t k = 0; k < spec.outputs.count; ++k) {
    if (spec.outputs[k].by_kernel) continue;
    outputs.allocate(k, expected[k].sizes, expected[k].rank);
  }

  // Memory that a caller bound may be an input's and an output's at once; kernels take them to be apart.
  std::vector<std::unique_ptr<char[]>> copies;
  for (size_t k = 0; k < given; ++k) {
    const size_t bytes = bytes_of(inputs[k]);
    for (size_t j = 0; bytes != 0 && j < spec.outputs.count; ++j) {
      if (spec.outputs[j].by_kernel || !overlap(inputs[k], bytes, outputs.tensors[j])) continue;
      char* const copy = copies.emplace_back(new char[bytes]).get();
      inputs[k].data = std::memcpy(copy, inputs[k].data, bytes);
      break;
    }
  }

  for (size_t k = 0; k < spec.outputs.count; ++k) {
    const int overwritten = spec.outputs[k].overwrites;
    if (overwritten < 0) continue;
    const TensorRef& source = inputs[size_t(overwritten)];
    const size_t bytes = bytes_of(source);
    if (bytes != 0) std::memcpy(outputs.tensors[k].data, source.data, bytes);
  }

  Lender lender{*op.binding, context};
  Runtime runtime;
  runtime.context = &lender;
  runtime.run = &Lender::run;
  runtime.allocate = &Lender::allocate;
  runtime.release = &Lender::release;
  const Parallel parallel(runtime);
  OperatorCall call;
  call.parallel = &parallel;
  call.inputs = inputs.data();
  call.input_count = given;
  call.attributes = kernel.attributes.data();
  call.outputs = outputs.tensors.data();
  call.owner = &outputs;
  call.request = &Outputs::request;
  op.entry(call);
}

// --- while a model is loaded ---------------------------------------------------------------------------------

// The kernel for the dtypes of the inputs; null where none fits. ONNX Runtime asks one of an operator's kernels for
// the shapes of all of them.
const RowSpec* row_for(const OperatorSpec& spec, const TensorRef* inputs) {
  for (const RowSpec& row : spec.rows) {
    bool fits = true;
    for (size_t k = 0; k < spec.inputs.count; ++k) fits &= inputs[k].rank < 0 || inputs[k].dtype == row.inputs[k];
    if (fits) return &row;
  }
  return nullptr;
}

// The unknown size that a name stands for; the same name, the same size.
int64_t name(std::vector<const char*>& names, const char* symbol) {
  size_t index = 0;
  while (index < names.size() && std::strcmp(names[index], symbol) != 0) ++index;
  if (index == names.size()) names.push_back(symbol);
  return named_size(int64_t(index));
}

void infer_shapes(const CustomOp& op, OrtShapeInferContext* context) {
  const OperatorSpec& spec = *op.spec;
  const Api& api = op.binding->api;
  size_t given = 0;
  check(api, api.ShapeInferContext_GetInputCount(context, &given));
  const size_t count = std::max(given, spec.inputs.count);
  Array<TensorRef> inputs(count);
  Array<Dims> held(count);
  std::vector<OrtTensorTypeAndShapeInfo*> infos(count, nullptr);
  std::vector<const char*> names;  // of unknown sizes
  for (size_t k = 0; k < given; ++k) {
    if (Status(api, api.ShapeInferContext_GetInputTypeShape(context, k, &infos[k])) || infos[k] == nullptr) continue;
    size_t rank = 0;
    check(api, api.GetDimensionsCount(infos[k], &rank));
    // An unknown rank arrives as rank 0, which a scalar has too: say nothing rather than something wrong.
    if (rank == 0 || rank > max_rank) return;
    check(api, api.GetDimensions(infos[k], held[k].sizes, rank));
    const char* symbols[max_rank] = {};
    check(api, api.GetSymbolicDimensions(infos[k], symbols, rank));
    for (size_t d = 0; d < rank; ++d) {
      if (held[k].sizes[d] >= 0) continue;
      held[k].sizes[d] = symbols[d] == nullptr || *symbols[d] == '\0' ? nameless_size : name(names, symbols[d]);
    }
    int dtype = 0;
    check(api, api.GetTensorElementType(infos[k], &dtype));
    inputs[k].sizes = held[k].sizes;
    inputs[k].rank = int32_t(rank);
    inputs[k].dtype = dtype;
  }
  for (size_t k = 0; k < spec.inputs.count; ++k) {
    if (spec.inputs[k].form == Form::single && inputs[k].rank < 0) return;
  }
  const RowSpec* row = row_for(spec, inputs.data());
  if (row == nullptr) return;  // ONNX Runtime says so itself, when it looks for the kernel
  std::vector<Shape> shapes(spec.outputs.count);
  spec.shapes(inputs.data(), shapes.data());
  for (size_t k = 0; k < spec.outputs.count; ++k) {
    if (spec.outputs[k].by_kernel || shapes[k].rank == 0) continue;
    OrtTensorTypeAndShapeInfo* info = nullptr;
    check(api, api.CreateTensorTypeAndShapeInfo(&info));
    const std::unique_ptr<OrtTensorTypeAndShapeInfo, void (*)(OrtTensorTypeAndShapeInfo*)> owner(
        info, api.ReleaseTensorTypeAndShapeInfo);
    check(api, api.SetTensorElementType(info, row->outputs[k]));
    const char* symbols[max_rank];
    bool told = true;
    for (int d = 0; d < shapes[k].rank; ++d) {
      int64_t& size = shapes[k].sizes[d];
      symbols[d] = size > nameless_size && is_unknown(size) ? names[size_t(size - named_size(0))] : "";
      // ONNX Runtime takes −1 without a name for a size of −1: then what the file says is better.
      told &= size >= 0 || *symbols[d] != '\0';
      if (size < 0) size = -1;
    }
    if (!told) continue;
    check(api, api.SetDimensions(info, shapes[k].sizes, size_t(shapes[k].rank)));
    check(api, api.SetSymbolicDimensions(info, symbols, size_t(shapes[k].rank)));
    check(api, api.ShapeInferContext_SetOutputTypeShape(context, k, info));
  }
}

const CustomOp& self(const OrtCustomOp* op) { return *static_cast<const CustomOp*>(op); }

int characteristic(Form form) {
  return form == Form::single ? required : form == Form::optional ? optional : variadic;
}

// ONNX knows one list, at the end: several of ours arrive as one.
size_t declared_inputs(const OperatorSpec& spec) {
  size_t count = 0;
  while (count < spec.inputs.count && spec.inputs[count].form != Form::variadic) ++count;
  return std::min(count + 1, spec.inputs.count);
}

std::unique_ptr<CustomOp> custom_op(const Binding& binding, const OperatorSpec& spec, size_t row, size_t level,
                                    bool infers_shapes) {
  auto op = std::make_unique<CustomOp>();
  op->version = api_version;
  op->binding = &binding;
  op->spec = &spec;
  op->row = &spec.rows[row];
  op->entry = spec.kernels[level][row];
  op->GetName = [](const OrtCustomOp* o) { return self(o).spec->op_type; };
  op->GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
  op->GetInputTypeCount = [](const OrtCustomOp* o) { return declared_inputs(*self(o).spec); };
  op->GetInputType = [](const OrtCustomOp* o, size_t k) { return int(self(o).row->inputs[k]); };
  op->GetInputCharacteristic = [](const OrtCustomOp* o, size_t k) { return characteristic(self(o).spec->inputs[k].form); };
  op->GetInputMemoryType = [](const OrtCustomOp*, size_t) { return 0; };
  op->GetOutputTypeCount = [](const OrtCustomOp* o) { return self(o).spec->outputs.count; };
  op->GetOutputType = [](const OrtCustomOp* o, size_t k) { return int(self(o).row->outputs[k]); };
  // What a model does not use it may leave out.
  op->GetOutputCharacteristic = [](const OrtCustomOp*, size_t k) { return int(k == 0 ? required : optional); };
  op->GetVariadicInputMinArity = [](const OrtCustomOp*) { return 0; };
  op->GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 1; };
  op->GetVariadicInputHomogeneity = op->GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
  op->GetStartVersion = [](const OrtCustomOp* o) { return self(o).spec->version; };
  op->GetEndVersion = [](const OrtCustomOp* o) { return self(o).spec->last_version; };
  op->CreateKernelV2 = [](const OrtCustomOp* o, const OrtApi*, const OrtKernelInfo* info, void** kernel) {
    return guarded(self(o), Kernel::name_of(self(o), info), [&] { *kernel = new Kernel(self(o), info); });
  };
  op->KernelComputeV2 = [](void* kernel, OrtKernelContext* context) {
    const auto& k = *static_cast<const Kernel*>(kernel);
    return guarded(k.op, k.node, [&] { compute(k, context); });
  };
  op->KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  if (infers_shapes) {
    op->InferOutputShapeFn = [](const OrtCustomOp* o, OrtShapeInferContext* context) {
      return guarded(self(o), "", [&] { infer_shapes(self(o), context); });
    };
  }
  return op;
}

bool is_1_24_or_newer(const char* version) {
  int major = 0, minor = 0;
  return std::sscanf(version, "%d.%d", &major, &minor) == 2 && (major > 1 || minor >= 24);
}

std::unique_ptr<Binding> bind(const OrtApi* table, const OrtApiBase* base) {
  auto binding = std::make_unique<Binding>();
  // Before it, ONNX Runtime crashes where a node leaves out an input with '' and shapes are inferred.
  const bool recent = is_1_24_or_newer(base->GetVersionString());
  binding->api = read_api(table, recent ? base->GetApi(24) : nullptr);
  const Api& api = binding->api;
  check(api, api.CreateCpuMemoryInfo(1 /* arena */, 0 /* default */, &binding->cpu));
  const size_t level = chosen_level();
  std::map<std::string, OrtCustomOpDomain*> domains;
  for (const OperatorSpec& spec : operator_table()) {
    OrtCustomOpDomain*& domain = domains[spec.domain];
    if (domain == nullptr) check(api, api.CreateCustomOpDomain(spec.domain, &domain));
    for (size_t row = 0; row < spec.rows.count; ++row) {
      binding->operators.push_back(custom_op(*binding, spec, row, level, recent));
      check(api, api.CustomOpDomain_Add(domain, binding->operators.back().get()));
    }
  }
  for (const auto& named : domains) binding->domains.push_back(named.second);
  return binding;
}

}  // namespace
}  // namespace deployops::ort

// ONNX Runtime calls this when the library is registered with a session's options.
extern "C" __attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                                               const OrtApiBase* base) {
  using namespace deployops::ort;
  static std::mutex mutex;
  // One binding for each ONNX Runtime in the process, kept for good: sessions refer to it as long as they live.
  static auto& bindings = *new std::map<const OrtApiBase*, std::unique_ptr<Binding>>;
  const OrtApi* table = base->GetApi(api_version);
  if (table == nullptr) {
    const OrtApi* oldest = base->GetApi(1);
    OrtStatus* (*create)(int, const char*) = nullptr;
    read_slot(oldest, 0, create);
    return create(fail, (std::string("this library needs ONNX Runtime 1.17 or newer; it was loaded by ") +
                         base->GetVersionString()).c_str());
  }
  const Api api = read_api(table, nullptr);
  try {
    const std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<Binding>& binding = bindings[base];
    if (binding == nullptr) binding = bind(table, base);
    for (OrtCustomOpDomain* domain : binding->domains) check(api, api.AddCustomOpDomain(options, domain));
    return nullptr;
  } catch (const std::exception& e) {
    return api.CreateStatus(fail, e.what());
  } catch (...) {
    return api.CreateStatus(fail, "the library could not be registered");
  }
}
