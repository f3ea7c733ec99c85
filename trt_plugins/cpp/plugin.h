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
#include "plugin_table.h"

namespace deployops::trt {

class Plugin final : public nvinfer1::IPluginV3,
                     public nvinfer1::IPluginV3OneCore,
                     public nvinfer1::IPluginV3OneBuild,
                     public nvinfer1::IPluginV3OneRuntime {
 public:
  Plugin(const PluginSpec& spec, const char* node, const nvinfer1::PluginFieldCollection& fields);
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
  int32_t getNbOutputs() const noexcept override { return int32_t(spec_.outputs.count); }
  int32_t getNbTactics() noexcept override;
  int32_t getValidTactics(int32_t* tactics, int32_t count) noexcept override;
  const char* getTimingCacheID() noexcept override { return timing_id_.c_str(); }
  int32_t getFormatCombinationLimit() noexcept override { return int32_t(spec_.rows.count); }

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
  // The place in the declaration of a node's input. Lists come last and are of one dtype: the first stands for all.
  size_t declared(int32_t input) const;
  bool row_takes(const RowSpec& row, int32_t position, nvinfer1::DataType type, int32_t inputs) const;

  const PluginSpec& spec_;
  std::string node_;
  std::shared_ptr<const Attributes> attributes_;
  std::string timing_id_;
  int tactic_ = 0;
  int32_t input_count_ = 0;  // of the node, known from onShapeChange on
  std::vector<nvinfer1::PluginField> fields_;
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
