// An operator as a TensorRT plugin: everything that differs between operators comes from its `PluginSpec`.
//
// The classes of TensorRT used here (IPluginV3 and its capabilities, IPluginCreatorV3One) are the same in TensorRT 10,
// 11 and TensorRT-RTX. No function of a TensorRT library is called.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensorrt.h"
#include "attributes.h"
#include "node_inputs.h"
#include "plugin_table.h"
#include "reserved.h"

namespace deployops::trt {

constexpr int32_t failed = -1;  // what functions of a plugin return

// For messages: the dtypes that there are kernels for.
std::string kernels_there(const PluginSpec& spec);

// Since 10.3 a plugin can say that an output lies where an input does. (TensorRT-RTX has a numbering of its own.)
#if NV_TENSORRT_MAJOR == 10 && NV_TENSORRT_MINOR < 3
#define DEPLOYOPS_ALIASES 0
using NewestBuild = nvinfer1::IPluginV3OneBuild;
#else
#define DEPLOYOPS_ALIASES 1
using NewestBuild = nvinfer1::IPluginV3OneBuildV2;
#endif

// Its second version only where it is wanted: TensorRT before 10.3 knows the first, of which the second is an extension.
class PluginBuild : public NewestBuild {
 public:
  nvinfer1::InterfaceInfo getInterfaceInfo() const noexcept final { return {"PLUGIN_V3ONE_BUILD", in_place_ ? 2 : 1, 0}; }

 protected:
  explicit PluginBuild(bool in_place) : in_place_(in_place && DEPLOYOPS_ALIASES) {}
  const bool in_place_;  // outputs lie where the arguments are that the operator writes into
};

class Plugin final : public nvinfer1::IPluginV3,
                     public nvinfer1::IPluginV3OneCore,
                     public PluginBuild,
                     public nvinfer1::IPluginV3OneRuntime {
 public:
  Plugin(const PluginSpec& spec, const char* node, const nvinfer1::PluginFieldCollection& fields, bool in_place);
  Plugin(const Plugin& other);
  Plugin& operator=(const Plugin&) = delete;

  nvinfer1::IPluginCapability* getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept override;
  nvinfer1::IPluginV3* clone() noexcept override;

  // core
  const char* getPluginName() const noexcept override { return spec_.op_type; }
  const char* getPluginVersion() const noexcept override { return spec_.version; }
  const char* getPluginNamespace() const noexcept override { return spec_.domain; }

  // build
  int32_t configurePlugin(const nvinfer1::DynamicPluginTensorDesc* in, int32_t inputs,
                          const nvinfer1::DynamicPluginTensorDesc* out, int32_t outputs) noexcept override;
  int32_t getOutputDataTypes(nvinfer1::DataType* types, int32_t outputs, const nvinfer1::DataType* input_types,
                             int32_t inputs) const noexcept override;
  int32_t getOutputShapes(const DimsExprs* inputs, int32_t input_count, const DimsExprs* shape_inputs,
                          int32_t shape_input_count, DimsExprs* outputs, int32_t output_count,
                          IExprBuilder& builder) noexcept override;
  bool supportsFormatCombination(int32_t position, const nvinfer1::DynamicPluginTensorDesc* tensors, int32_t inputs,
                                 int32_t outputs) noexcept override;
  int32_t getNbOutputs() const noexcept override { return int32_t(spec_.outputs.count) + spec_.data_sizes.count; }
  size_t getWorkspaceSize(const nvinfer1::DynamicPluginTensorDesc* inputs, int32_t input_count,
                          const nvinfer1::DynamicPluginTensorDesc* outputs, int32_t output_count) const noexcept override;
  int32_t getNbTactics() noexcept override;
  int32_t getValidTactics(int32_t* tactics, int32_t count) noexcept override;
  const char* getTimingCacheID() noexcept override { return timing_id_.c_str(); }
  int32_t getFormatCombinationLimit() noexcept override { return int32_t(spec_.rows.count); }
#if DEPLOYOPS_ALIASES
  int32_t getAliasedInput(int32_t output) noexcept override;
#endif

  // runtime
  int32_t setTactic(int32_t tactic) noexcept override;
  int32_t onShapeChange(const nvinfer1::PluginTensorDesc* in, int32_t inputs, const nvinfer1::PluginTensorDesc* out,
                        int32_t outputs) noexcept override;
  int32_t enqueue(const nvinfer1::PluginTensorDesc* in, const nvinfer1::PluginTensorDesc* out,
                  const void* const* inputs, void* const* outputs, void* workspace,
                  cudaStream_t stream) noexcept override;
  nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext* context) noexcept override;
  const nvinfer1::PluginFieldCollection* getFieldsToSerialize() noexcept override;

 private:
  std::string title() const;
  void check_counts(int32_t inputs, int32_t outputs) const;
  // Where the data decides sizes, an output's sizes are unknown until the kernel ran: at their upper bounds.
  void bound_sizes(const std::vector<TensorRef>& given, std::vector<TensorRef>& made,
                   std::vector<SymbolicShape>& shapes) const;
  OperatorCall called(const std::vector<TensorRef>& given, const std::vector<TensorRef>& made, int32_t input_count) const;
  // Of the combination of dtypes that takes these types. Throws InputError where none does.
  template <class TypeOf>
  size_t row_of(int32_t input_count, const TypeOf& type_of) const;
  // The arguments that the operator writes into: their content goes where the outputs are.
  void copy_overwritten(const std::vector<TensorRef>& given, const std::vector<TensorRef>& made,
                        const nvinfer1::PluginTensorDesc* out, cudaStream_t stream) const;

  const PluginSpec& spec_;
  std::string node_;
  std::shared_ptr<const Attributes> attributes_;
  std::shared_ptr<Reserved> reserved_;
  NodeInputs inputs_;
  std::string timing_id_;
  std::string absent_;  // inputs that stand for absent ones, as in the node's attribute
  int tactic_ = 0;
  int32_t input_count_ = 0;  // of the node, known from onShapeChange on
  std::vector<nvinfer1::PluginField> fields_;
  std::vector<int64_t> reserved_bytes_;  // in the fields
  nvinfer1::PluginFieldCollection collection_{};
};

class Creator final : public nvinfer1::IPluginCreatorV3One {
 public:
  explicit Creator(const PluginSpec& spec);
  nvinfer1::IPluginV3* createPlugin(const char* name, const nvinfer1::PluginFieldCollection* fields,
                                    nvinfer1::TensorRTPhase phase) noexcept override;
  const nvinfer1::PluginFieldCollection* getFieldNames() noexcept override { return &collection_; }
  const char* getPluginName() const noexcept override { return spec_.op_type; }
  const char* getPluginVersion() const noexcept override { return spec_.version; }
  const char* getPluginNamespace() const noexcept override { return spec_.domain; }

 private:
  const PluginSpec& spec_;
  std::vector<nvinfer1::PluginField> fields_;
  nvinfer1::PluginFieldCollection collection_{};
};

}  // namespace deployops::trt
