// Which declared inputs a node gives. TensorRT hands those in memory over in a row, and the values of shape inputs apart;
// for an optional input that is absent before one that is given, the node gives its first input again, and says so.
#pragma once

#include <algorithm>
#include <vector>

#include "data_types.h"
#include "plugin_table.h"

namespace deployops::trt {

// The attribute that says which inputs of a node stand for absent ones, by their number (trt_plugins/fitted_nodes.py).
constexpr const char* absent_inputs_field = "deployops_absent_inputs";

class NodeInputs {
 public:
  NodeInputs(const PluginSpec& spec, std::vector<int64_t> absent) : spec_(spec), absent_(std::move(absent)) {
    for (size_t k = 0; k < spec.inputs.count; ++k) (spec.shape_inputs[k] ? values_ : memory_).push_back(k);
    for (int64_t k : absent_) {
      require(k >= 0 && size_t(k) < spec.inputs.count && spec.inputs[size_t(k)].form == Form::optional, "attribute `",
              absent_inputs_field, "` names input ", k, ", which is not optional");
    }
  }

  const std::vector<int64_t>& absent() const { return absent_; }

  // Throws InputError where the node cannot have so many.
  void check_count(int32_t in_memory) const {
    int32_t least = 0, most = 0;
    for (size_t k : memory_) {
      const Form form = spec_.inputs[k].form;
      least += form == Form::single;
      most = form == Form::variadic || most < 0 ? -1 : most + 1;
      if (form == Form::single && most >= 0) least = most;  // an optional one before it cannot be left out
    }
    if (!values_.empty() && most >= 0 && in_memory > most) {
      throw InputError(std::string("the node gives `") + spec_.inputs[values_[0]].name +
                       "` as a tensor in memory; it is a shape input, which a node tells TensorRT with the attribute "
                       "tensorrt_plugin_shape_input_indices (deployops export writes it)");
    }
    require(in_memory >= least && (most < 0 || in_memory <= most), "the node has ", in_memory, " inputs; expected ",
            least, most < 0 ? " or more" : most > least ? " to " + std::to_string(most) : std::string());
  }

  void check_value_count(int32_t values) const {
    require(size_t(values) == values_.size(), "the node has ", values, " shape inputs; expected ", values_.size());
  }

  // How many inputs the node has; and how many places there are for them, for absent ones at the end too.
  size_t given(int32_t in_memory) const { return size_t(in_memory) + values_.size(); }
  size_t slots(int32_t in_memory) const { return std::max(given(in_memory), spec_.inputs.count); }

  // Where the k-th input in memory is among them. Lists come last, so that what follows the declared ones is theirs.
  size_t slot(int32_t k) const {
    return size_t(k) < memory_.size() ? memory_[size_t(k)] : size_t(k) + values_.size();
  }
  size_t value_slot(int32_t k) const { return values_[size_t(k)]; }

  // Where a declared input is among those in memory.
  int32_t memory_place(size_t declared) const {
    return int32_t(std::find(memory_.begin(), memory_.end(), declared) - memory_.begin());
  }

  // Whether the k-th input in memory stands for an absent one.
  bool stands_in(int32_t k) const {
    return std::find(absent_.begin(), absent_.end(), int64_t(slot(k))) != absent_.end();
  }

  // Whether a combination of dtypes takes these types, up to the input or output `last`. The first `in_memory` are inputs.
  template <class TypeOf>
  bool takes(const RowSpec& row, int32_t last, int32_t in_memory, const TypeOf& type_of) const {
    for (int32_t k = 0; k <= last; ++k) {
      const int32_t onnx = onnx_type(type_of(k));
      if (onnx == 0) return false;
      if (k < in_memory && stands_in(k) ? type_of(k) != type_of(0) : onnx != expected(row, k, in_memory)) return false;
    }
    return true;
  }

 private:
  int32_t expected(const RowSpec& row, int32_t k, int32_t in_memory) const {
    if (k < in_memory) {
      // Lists are of one dtype: the first stands for all.
      size_t first_list = 0;
      while (first_list < spec_.inputs.count && spec_.inputs[first_list].form != Form::variadic) ++first_list;
      return row.inputs[std::min(slot(k), first_list)];
    }
    const size_t output = size_t(k - in_memory);
    return output < spec_.outputs.count ? row.outputs[output] : size_type;
  }

  const PluginSpec& spec_;
  std::vector<int64_t> absent_;
  std::vector<size_t> memory_, values_;  // numbers of declared inputs
};

}  // namespace deployops::trt
