// What a library knows of its plugins: one table, written from the declarations (trt_plugins/templates).
#pragma once

#include "deployops/operator_table.h"
#include "launcher.h"
#include "symbolic_shape.h"

namespace deployops::trt {

struct PluginSpec {
  const char* name;         // the torch operator, acme::swish
  const char* fingerprint;  // of the declaration: an engine made with another one would pass arguments wrongly
  const char* domain;       // the plugin's namespace
  const char* op_type;      // the plugin's name
  const char* version;
  Table<InputSpec> inputs;
  Table<AttributeSpec> attributes;
  Table<OutputSpec> outputs;
  Table<RowSpec> rows;
  // Shapes of the outputs. Throws InputError where the inputs do not fit.
  void (*shapes)(const SymbolicTensor* inputs, SymbolicShape* outputs);
  const Launcher* (*launcher)();
};

Table<PluginSpec> plugin_table();

}  // namespace deployops::trt
