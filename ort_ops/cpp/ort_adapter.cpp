// Every operator of the table as a custom operator of ONNX Runtime: one per combination of dtypes. For the processor
// after cpu_target.h, for CUDA after cuda_target.h.

namespace deployops::ort {
namespace {

// --- one call ------------------------------------------------------------------------------------------------

// The outputs of one call: allocated by the shape rule, or when the kernel asks.
struct Outputs {
  const Binding& binding;
  OrtKernelContext* context;
  Target& target;
  Array<TensorRef>& inputs;
  size_t given;  // inputs
  size_t count;
  Array<TensorRef> tensors;
  Array<Dims> held;
  Array<void*> bound;  // where an output goes that the kernel writes elsewhere
  size_t wanted = 1;   // how many outputs the node has

  Outputs(const Kernel& kernel, OrtKernelContext* call, Target& on, Array<TensorRef>& of, size_t of_count)
      : binding(*kernel.op.binding), context(call), target(on), inputs(of), given(of_count),
        count(kernel.op.spec->outputs.count), tensors(count), held(count), bound(count) {
    for (size_t k = 0; k < count; ++k) {
      tensors[k].dtype = kernel.op.row->outputs[k];
      bound[k] = nullptr;
    }
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
      tensors[k].data = target.allocate(bytes_of(tensors[k]));
    } else {
      check(binding.api, binding.api.GetTensorMutableData(value, &tensors[k].data));
    }
  }

  static void* request(void* self, size_t k, const int64_t* sizes, int rank, const int64_t** kept) {
    auto& outputs = *static_cast<Outputs*>(self);
    int64_t* const held = outputs.held[k].sizes;
    std::copy(sizes, sizes + rank, held);
    outputs.allocate(k, held, rank);
    outputs.keep_apart(k);
    *kept = held;
    return outputs.tensors[k].data;
  }

  // The kernel is at work: what it reads stays where it is, and what it writes over that goes elsewhere first.
  void keep_apart(size_t k) {
    TensorRef& output = tensors[k];
    const size_t bytes = bytes_of(output);
    bool overlaps = false;
    for (size_t i = 0; i < given; ++i) overlaps |= overlap(output, bytes, inputs[i]);
    if (bytes == 0 || !overlaps) return;
    bound[k] = output.data;
    output.data = target.allocate(bytes);
  }

  void finish() {
    for (size_t k = 0; k < count; ++k) {
      if (bound[k] != nullptr) target.copy(bound[k], tensors[k].data, bytes_of(tensors[k]));
    }
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
  Target target(*op.binding, context);
  Outputs outputs(kernel, context, target, inputs, given);
  for (size_t k = 0; k < spec.outputs.count; ++k) {
    if (spec.outputs[k].by_kernel) continue;
    outputs.allocate(k, expected[k].sizes, expected[k].rank);
  }

  // Memory that a caller bound may be an input's and an output's at once; kernels take them to be apart. But an output
  // that overwrites an input may well be that input: a cache that is bound so is not copied.
  for (size_t k = 0; k < given; ++k) {
    const size_t bytes = bytes_of(inputs[k]);
    for (size_t j = 0; bytes != 0 && j < spec.outputs.count; ++j) {
      if (spec.outputs[j].by_kernel || !overlap(inputs[k], bytes, outputs.tensors[j])) continue;
      if (spec.outputs[j].overwrites == int(k) && outputs.tensors[j].data == inputs[k].data) continue;
      void* const copy = target.allocate(bytes);
      target.copy(copy, inputs[k].data, bytes);
      inputs[k].data = copy;
      break;
    }
  }

  for (size_t k = 0; k < spec.outputs.count; ++k) {
    const int overwritten = spec.outputs[k].overwrites;
    if (overwritten < 0) continue;
    const TensorRef& source = inputs[size_t(overwritten)];
    const size_t bytes = bytes_of(source);
    if (bytes != 0 && outputs.tensors[k].data != source.data) target.copy(outputs.tensors[k].data, source.data, bytes);
  }

  OperatorCall call;
  call.inputs = inputs.data();
  call.input_count = given;
  call.attributes = kernel.attributes.data();
  call.outputs = outputs.tensors.data();
  call.owner = &outputs;
  call.request = &Outputs::request;
  target.run(op.entry, call);
  outputs.finish();
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
  op->GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return Target::provider; };
  op->GetInputTypeCount = [](const OrtCustomOp* o) { return declared_inputs(*self(o).spec); };
  op->GetInputType = [](const OrtCustomOp* o, size_t k) { return int(self(o).row->inputs[k]); };
  op->GetInputCharacteristic = [](const OrtCustomOp* o, size_t k) { return characteristic(self(o).spec->inputs[k].form); };
  op->GetInputMemoryType = [](const OrtCustomOp*, size_t) { return 0; };  // the provider's own
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
  Target::prepare(*binding);
  const size_t level = Target::level();
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
