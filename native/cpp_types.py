"""How element types and attributes are spelled in C++."""

from __future__ import annotations

from typing import Any

from ..symbolic.attributes import Attribute

__all__ = ["attribute_kind", "attribute_type", "element_type", "identifier", "literal"]

_ELEMENTS = {
    "float32": "float",
    "float64": "double",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "bool": "bool",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "complex64": "std::complex<float>",
    "complex128": "std::complex<double>",
}

_SCALARS = {"INT": "int64_t", "FLOAT": "double", "STRING": "std::string_view"}
_KINDS = {"INT": "integer", "FLOAT": "real", "STRING": "text"}

# Words that Python allows as names and C++ does not (ISO C++17, 5.11).
_KEYWORDS = frozenset(
    """alignas alignof asm auto bool case catch char char16_t char32_t const constexpr const_cast decltype default
    delete do double dynamic_cast enum explicit export extern float friend goto inline int long mutable namespace new
    noexcept operator private protected public register reinterpret_cast short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true false typedef typeid typename union unsigned using
    virtual void volatile wchar_t xor or and not bitand bitor compl and_eq or_eq xor_eq not_eq""".split()  # noqa: SIM905
)


def element_type(dtype: str) -> str | None:
    """The C++ type of a dtype, `float` for float32; None where there is none (float8)."""
    return _ELEMENTS.get(dtype)


def attribute_type(attribute: Attribute) -> str:
    """The type of a kernel's parameter for a non-tensor argument: `double`, `std::optional<int64_t>`, `Span<double>`."""
    if attribute.is_list:
        text = f"Span<{_SCALARS[attribute.onnx_type[:-1]]}>"
    else:
        text = "bool" if attribute.kind == "bool" else _SCALARS[attribute.onnx_type]
    return f"std::optional<{text}>" if attribute.optional else text


def attribute_kind(onnx_type: str) -> str:
    """The enumerator of `AttributeKind` in operator_table.h."""
    return _KINDS[onnx_type.removesuffix("S")] + ("s" if onnx_type.endswith("S") else "")


def identifier(name: str) -> str:
    """A Python name as a C++ identifier: keywords get a `_`, what C++ has no letter for becomes its number."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c == "_") else f"_u{ord(c):x}_" for c in name)
    return f"{plain}_" if plain in _KEYWORDS else plain


def literal(value: Any) -> str:
    """A Python number or text in C++, exactly."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return f"{value}LL"
    if isinstance(value, float):
        if value != value:
            return "std::numeric_limits<double>::quiet_NaN()"
        if value in (float("inf"), float("-inf")):
            return f"{'-' if value < 0 else ''}std::numeric_limits<double>::infinity()"
        return value.hex()
    data = str(value).encode()
    # octal escapes have at most three digits: what follows is never read as part of one
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in data) + '"'
