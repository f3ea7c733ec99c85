// The attributes of a plugin: from the fields that a parser, an engine or a program gives, and back into an engine.
#pragma once

#include <string>
#include <vector>

#include "tensorrt.h"
#include "deployops/operator_table.h"

namespace deployops::trt {

class Attributes {
 public:
  // Throws InputError for a field of another type, and for one that is required and missing.
  Attributes(Table<AttributeSpec> specs, const nvinfer1::PluginFieldCollection& fields);
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;

  // In the order of the declaration.
  const AttributeRef* refs() const { return refs_.data(); }
  // `alpha=1.5, mode="add"`; real numbers with all their digits.
  std::string text() const;
  // What makes the same attributes when it is read again. They point into this object.
  std::vector<nvinfer1::PluginField> fields() const;

 private:
  struct Value {
    int64_t i = 0;
    double f = 0;
    std::string s;
    std::vector<int64_t> ints;
    std::vector<double> floats;
  };

  Table<AttributeSpec> specs_;
  std::vector<Value> values_;
  std::vector<AttributeRef> refs_;
};

// The text of a field; empty where there is no such field.
std::string read_text(const nvinfer1::PluginFieldCollection& fields, const char* name);

// The type in which ONNX parsers give an attribute.
nvinfer1::PluginFieldType parsed_type(AttributeKind kind);

}  // namespace deployops::trt
