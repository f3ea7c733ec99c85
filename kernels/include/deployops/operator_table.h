// What a library knows of its operators: one table, read by every adapter. Written from the declarations
// (native/templates/operator_table.cpp.j2).
#pragma once

#include "deployops/operator_call.h"
#include "deployops/shape.h"

namespace deployops {

enum class Form : uint8_t { single, optional, variadic };
enum class AttributeKind : uint8_t { integer, real, text, integers, reals, texts };

struct InputSpec {
  const char* name;
  Form form;
};

struct OutputSpec {
  const char* name;
  int overwrites;  // the input whose content it starts with, or −1
  bool by_kernel;  // the kernel allocates it
};

struct AttributeSpec {
  const char* name;
  AttributeKind kind;
  bool required;
  AttributeRef fallback;  // not present: the kernel is told that there is none
};

// One combination of dtypes (TensorProto.DataType), and so one kernel.
struct RowSpec {
  const int32_t* inputs;
  const int32_t* outputs;
  const char* label;  // "float16"
};

template <class T>
struct Table {
  const T* first;
  size_t count;
  const T& operator[](size_t i) const { return first[i]; }
  const T* begin() const { return first; }
  const T* end() const { return first + count; }
};

struct OperatorSpec {
  const char* name;         // the torch operator, acme::swish
  const char* fingerprint;  // of the declaration: a caller that knows another one would pass arguments wrongly
  const char* domain;
  const char* op_type;
  int version;       // of the domain's operator set, from which this operator means what it does
  int last_version;  // up to which it does
  Table<InputSpec> inputs;
  Table<AttributeSpec> attributes;
  Table<OutputSpec> outputs;
  Table<RowSpec> rows;
  // Shapes of the outputs; those by the kernel are left alone. Throws InputError where the inputs do not fit.
  void (*shapes)(const TensorRef* inputs, Shape* outputs);
  const KernelEntry* const* kernels;  // [level][row]
};

// The table of this library, and its instruction-set levels: the first one runs everywhere, the last one is the best.
struct LevelSpec {
  const char* name;
  bool (*supported)();
};
Table<OperatorSpec> operator_table();
Table<LevelSpec> level_table();

}  // namespace deployops
