// What a library knows of its plugins: one table, written from the declarations (trt_plugins/templates).
#pragma once

#include "deployops/operator_table.h"
#include "launcher.h"
#include "symbolic_shape.h"

namespace deployops::trt {

// Sizes of outputs that the data decides. Each is one more output, an INT32 number, which the kernel writes.
struct DataSizes {
  int32_t count;
  const int32_t* const* numbers;  // for each output, for each of its dims: which of them it is, or −1
  // As `PluginSpec::shapes`, which gives their upper bounds, with the sizes to tune for. Null: half of each bound.
  void (*usual)(const SymbolicTensor* inputs, SymbolicShape* outputs);
};

struct PluginSpec {
  const char* name;         // the torch operator, acme::swish
  const char* fingerprint;  // of the declaration: an engine made with another one would pass arguments wrongly
  const char* domain;       // the plugin's namespace
  const char* op_type;      // the plugin's name
  const char* version;
  Table<InputSpec> inputs;
  const bool* shape_inputs;  // for each input: TensorRT gives its values, as sizes, and the kernel does not see it
  Table<AttributeSpec> attributes;
  Table<OutputSpec> outputs;
  Table<RowSpec> rows;
  // Shapes of the outputs. Throws InputError where the inputs do not fit.
  void (*shapes)(const SymbolicTensor* inputs, SymbolicShape* outputs);
  DataSizes data_sizes;
  const Launcher* (*launcher)();
  const char* kernel;  // a digest of the launcher's object: what TensorRT has timed of another one does not hold
};

Table<PluginSpec> plugin_table();

}  // namespace deployops::trt
