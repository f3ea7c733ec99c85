#include "attributes.h"

#include <cstdio>
#include <cstring>

namespace deployops::trt {
namespace {

using nvinfer1::PluginField;
using nvinfer1::PluginFieldType;

// Unaligned reads: a field lies where the engine's bytes have it.
template <class From, class To>
void append(const PluginField& field, std::vector<To>& to) {
  for (int32_t k = 0; k < field.length; ++k) {
    From value;
    std::memcpy(&value, static_cast<const char*>(field.data) + size_t(k) * sizeof value, sizeof value);
    to.push_back(To(value));
  }
}

// In the words of ONNX and NumPy; by number, as older headers lack the later ones.
std::string name_of(PluginFieldType type) {
  constexpr const char* names[] = {"float16", "float32", "float64",      "int8",     "int16", "int32", "a string",
                                   "dims",    "of no type", "bfloat16", "int64", "float8", "int4",  "float4"};
  const size_t number = size_t(type);
  return number < sizeof names / sizeof *names ? names[number] : "of field type " + std::to_string(number);
}

[[noreturn]] void refuse_type(const PluginField& field, const char* expected) {
  throw InputError(std::string("attribute `") + field.name + "` is " + name_of(field.type) + "; expected " + expected);
}

std::vector<int64_t> integers(const PluginField& field) {
  std::vector<int64_t> read;
  switch (field.type) {
    case PluginFieldType::kINT8: append<int8_t>(field, read); break;
    case PluginFieldType::kINT16: append<int16_t>(field, read); break;
    case PluginFieldType::kINT32: append<int32_t>(field, read); break;
    case PluginFieldType::kINT64: append<int64_t>(field, read); break;
    default: refuse_type(field, "integers");
  }
  return read;
}

std::vector<double> reals(const PluginField& field) {
  std::vector<double> read;
  switch (field.type) {
    case PluginFieldType::kFLOAT32: append<float>(field, read); break;
    case PluginFieldType::kFLOAT64: append<double>(field, read); break;
    default: refuse_type(field, "floating-point numbers (32 or 64 bits)");
  }
  return read;
}

// ONNX parsers count a NUL at the end.
std::string text_of(const PluginField& field) {
  if (field.type != PluginFieldType::kCHAR) refuse_type(field, "a string");
  std::string text(static_cast<const char*>(field.data), size_t(field.length));
  if (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

template <class T>
T single(const PluginField& field, const std::vector<T>& values) {
  require(values.size() == 1, "attribute `", field.name, "` holds ", values.size(), " values; expected one");
  return values[0];
}

const PluginField* find(const nvinfer1::PluginFieldCollection& fields, const char* name) {
  for (int32_t k = 0; k < fields.nbFields; ++k) {
    const PluginField& field = fields.fields[k];
    if (field.name != nullptr && std::strcmp(field.name, name) == 0) return &field;
  }
  return nullptr;
}

std::string digits(double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.17g", value);
  return buffer;
}

template <class T, class F>
std::string listed(const T* items, size_t count, F&& one) {
  std::string text = "[";
  for (size_t k = 0; k < count; ++k) text += (k ? ", " : "") + one(items[k]);
  return text + "]";
}

// The address of an empty list's content: TensorRT takes no null.
constexpr int64_t nothing = 0;

}  // namespace

Attributes::Attributes(Table<AttributeSpec> specs, const nvinfer1::PluginFieldCollection& fields)
    : specs_(specs), values_(specs.count), refs_(specs.count) {
  for (size_t k = 0; k < specs.count; ++k) {
    const AttributeSpec& spec = specs[k];
    AttributeRef& ref = refs_[k];
    const PluginField* const field = find(fields, spec.name);
    if (field == nullptr) {
      require(!spec.required, "attribute `", spec.name, "` is missing, and has no default");
      ref = spec.fallback;
      continue;
    }
    require(field->length >= 0 && (field->length == 0 || field->data != nullptr), "attribute `", spec.name,
            "` has no data");
    Value& value = values_[k];
    ref.present = true;
    switch (spec.kind) {
      case AttributeKind::integer: ref.i = value.i = single(*field, integers(*field)); break;
      case AttributeKind::real: ref.f = value.f = single(*field, reals(*field)); break;
      case AttributeKind::text:
        value.s = text_of(*field);
        ref.s = value.s.c_str();
        ref.count = value.s.size();
        break;
      case AttributeKind::integers:
        value.ints = integers(*field);
        ref.ints = value.ints.data();
        ref.count = value.ints.size();
        break;
      case AttributeKind::reals:
        value.floats = reals(*field);
        ref.floats = value.floats.data();
        ref.count = value.floats.size();
        break;
      case AttributeKind::texts: throw InputError("a list of texts is no plugin field");
    }
  }
}

std::string Attributes::text() const {
  std::string text;
  for (size_t k = 0; k < specs_.count; ++k) {
    const AttributeRef& ref = refs_[k];
    if (!ref.present) continue;
    text += (text.empty() ? "" : ", ") + std::string(specs_[k].name) + "=";
    switch (specs_[k].kind) {
      case AttributeKind::integer: text += std::to_string(ref.i); break;
      case AttributeKind::real: text += digits(ref.f); break;
      case AttributeKind::integers:
        text += listed(ref.ints, ref.count, [](int64_t v) { return std::to_string(v); });
        break;
      case AttributeKind::reals: text += listed(ref.floats, ref.count, digits); break;
      default: text += '"' + std::string(ref.s, ref.count) + '"';
    }
  }
  return text;
}

std::vector<PluginField> Attributes::fields() const {
  std::vector<PluginField> fields;
  for (size_t k = 0; k < specs_.count; ++k) {
    const AttributeRef& ref = refs_[k];
    if (!ref.present) continue;
    PluginField field{specs_[k].name, &nothing, PluginFieldType::kINT64, 1};
    switch (specs_[k].kind) {
      case AttributeKind::integer: field.data = &ref.i; break;
      case AttributeKind::real:
        field.data = &ref.f;
        field.type = PluginFieldType::kFLOAT64;
        break;
      case AttributeKind::integers:
        field.length = int32_t(ref.count);
        if (ref.count != 0) field.data = ref.ints;
        break;
      case AttributeKind::reals:
        field.type = PluginFieldType::kFLOAT64;
        field.length = int32_t(ref.count);
        if (ref.count != 0) field.data = ref.floats;
        break;
      default:  // with its NUL, as parsers give it
        field.type = PluginFieldType::kCHAR;
        field.length = int32_t(ref.count) + 1;
        field.data = ref.s;
    }
    fields.push_back(field);
  }
  return fields;
}

std::string read_text(const nvinfer1::PluginFieldCollection& fields, const char* name) {
  const PluginField* const field = find(fields, name);
  return field == nullptr || field->length == 0 || field->data == nullptr ? std::string() : text_of(*field);
}

PluginFieldType parsed_type(AttributeKind kind) {
  switch (kind) {
    case AttributeKind::real:
    case AttributeKind::reals: return PluginFieldType::kFLOAT32;
    case AttributeKind::text:
    case AttributeKind::texts: return PluginFieldType::kCHAR;
    default: return PluginFieldType::kINT32;
  }
}

}  // namespace deployops::trt
