"""The text of one `--input`: `x:float32[batch=1..64,3,h,w]` to `InputSpec` and back.

    input  := name ":" (tensor | scalar | "none")
    tensor := dtype "[" [dim ("," dim)*] "]" ["=" low ".." high]        values drawn from low..high
    scalar := ("int" | "float" | "bool" | "str") "=" value              a constant of the trace
    dim    := size | symbol ["=" [low] ".." [high]] ["%" multiple] ["@" example]
    name   := identifier ("." (index | key))*                           xs.0, xs.1: a list; d.key: a dict

Examples: `x:float32[batch,3,224,224]`, `x:float32[n=1..64@8,3,h=64..512%32,w%32]`,
`ids:int64[batch,seq]=0..30521`, `mask:bool[batch,seq]`, `t:float32[]` (0-d), `scale:float=0.5`, `past:none`.
"""

from __future__ import annotations

import keyword
import math
import re
from typing import NoReturn

from ...errors import UsageError
from .input_spec import DTYPES, IDENTIFIER, InputSpec, PythonValue, Symbol

__all__ = ["EXAMPLE", "parse_dim", "parse_input"]

EXAMPLE = "x:float32[batch=1..64,3,224,224]"

# Only before "[": without brackets `float` and `int` are Python scalars.
_ALIASES = {
    **{"half": "float16", "f16": "float16", "fp16": "float16", "bf16": "bfloat16"},
    **{"float": "float32", "f32": "float32", "fp32": "float32"},
    **{"double": "float64", "f64": "float64", "fp64": "float64"},
    **{"i8": "int8", "u8": "uint8", "byte": "uint8", "i16": "int16", "short": "int16"},
    **{"int": "int32", "i32": "int32", "long": "int64", "i64": "int64"},
    **{"cfloat": "complex64", "cdouble": "complex128"},
}
_SCALARS = ("int", "float", "bool", "str")
_BOOLS = {"true": True, "false": False}
_NAME = re.compile(r"[^\W\d]\w*(\.[\w-]+)*")
_SIZE = re.compile(r"[0-9]+")
# The exponent and the fraction must not eat the dots of a range: "1..64", "1.5..2".
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LARGEST_SIZE = 2**63 - 1
_DIGITS = frozenset("0123456789")
_MOST_TEXT, _MOST_DIMS, _DEEPEST = 10_000, 64, 32  # 64 dims: the most that torch and numpy have


def parse_input(text: str) -> InputSpec:
    """Read one `--input`; the grammar heads this module. Raises `UsageError` pointing at the fault."""
    return _Reader(text).input()


def parse_dim(text: str) -> int | Symbol:
    """Read one dim: `224`, `batch`, `h=64..512%32@128`."""
    reader = _Reader(text)
    dim = reader.dim()
    reader.end("the end of the dim")
    return dim


class _Reader:
    """A cursor over the text of one spec."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        if len(text) > _MOST_TEXT:
            self.fail(f"at most {_MOST_TEXT:,} characters, and there are {len(text):,}")

    def input(self) -> InputSpec:
        name = self.match(_NAME, "the name of a parameter of forward")
        if any(keyword.iskeyword(part) for part in name.split(".")[:1]):
            self.fail(f"a parameter name; {name!r} is a Python keyword", at=self.at - len(name))
        if name.count(".") >= _DEEPEST:
            self.fail(f"at most {_DEEPEST} levels of lists and dicts", at=self.at - len(name))
        self.token(":", "':' and a dtype after the name")
        start = self.skip()
        dtype = self.match(IDENTIFIER, "a dtype such as float32, or int, float, bool, str, none")
        if self.accept("["):
            return self.tensor(name, dtype, start)
        if dtype in ("none", "None"):
            self.end("nothing after 'none'")
            return InputSpec(name, "none")
        if dtype in _SCALARS:
            expected = f"'[' for a tensor, or '=' and a value for a Python {dtype} (a constant of the trace)"
            self.token("=", expected)
            return InputSpec(name, dtype, value=self.scalar(dtype))
        self.torch_dtype(dtype, start)
        return self.fail("'[' and the dims; write [] for a tensor with no dims")

    def torch_dtype(self, dtype: str, start: int) -> str:
        known = _ALIASES.get(dtype, dtype)
        if known not in DTYPES:
            self.fail(f"a dtype, one of {', '.join(DTYPES)}; {dtype!r} is none", at=start)
        return known

    def tensor(self, name: str, dtype: str, start: int) -> InputSpec:
        dtype = self.torch_dtype(dtype, start)
        shape: list[int | Symbol] = []
        if not self.accept("]"):
            shape.append(self.dim())
            while not self.accept("]"):
                self.token(",", "',' or ']' after a dim")
                if len(shape) == _MOST_DIMS:
                    self.fail(f"at most {_MOST_DIMS} dims")
                shape.append(self.dim())
        value_range = None
        if self.accept("="):
            value_range = self.value_range(dtype)
        self.end("the end, or '=' and a range of values such as =0..255")
        return InputSpec(name, dtype, tuple(shape), value_range=value_range)

    def dim(self) -> int | Symbol:
        start = self.skip()
        if self.peek() in _DIGITS:
            size = self.size("a size")
            self.refuse_expression(start)
            return size
        name = self.match(IDENTIFIER, "a dim: a size such as 224 or a name such as batch")
        low, high, multiple, example = 1, None, 1, None
        if self.accept("="):
            low = self.size("a size") if self.peek() in _DIGITS else 1
            self.token("..", "'..' in a range such as 1..64 (for a fixed dim write the number alone)")
            high = self.size("a size") if self.peek() in _DIGITS else None
        if self.accept("%"):
            multiple = self.size("the number that divides every size, such as 32")
        if self.accept("@"):
            example = self.size("the example size")
        self.refuse_expression(start)
        try:
            return Symbol(name, low, high, example, multiple)
        except UsageError as error:
            self.refuse(str(error), at=start)

    def refuse_expression(self, start: int) -> None:
        if self.peek() in ("+", "-", "*", "/", "("):
            self.fail(
                "a size or one name. A dim computed from others (2*n, a+b) cannot be declared: torch.export "
                "finds such relations itself. Give it a name of its own, and the relation is checked",
                at=start,
            )

    def size(self, expected: str) -> int:
        start = self.skip()
        digits = self.match(_SIZE, expected)
        # Python refuses to convert thousands of digits; look at the length first.
        if len(digits) > 19 or int(digits) > _LARGEST_SIZE:
            self.fail("a size that fits 64 bits", at=start)
        return int(digits)

    def value_range(self, dtype: str) -> tuple[float, float]:
        limits = DTYPES[dtype]
        if dtype == "bool" or dtype.startswith("complex"):
            self.fail(f"no range of values: {dtype} values are drawn at random")
        start = self.skip()
        low = self.number(limits)
        self.token("..", "'..' between the lowest and the highest value")
        high = self.number(limits)
        if low > high:
            self.fail(f"a range whose first value is not above its last; {low} is above {high}", at=start)
        return low, high

    def number(self, limits: tuple[int, int] | None) -> float:
        start = self.skip()
        text = self.match(_NUMBER, "a number")
        if limits is None:
            value = float(text)
            if math.isinf(value):
                self.fail("a finite number", at=start)
            return value
        if not text.lstrip("+-").isdigit() or len(text) > 21:
            self.fail(f"an integer from {limits[0]} to {limits[1]}", at=start)
        whole = int(text)
        if not limits[0] <= whole <= limits[1]:
            self.fail(f"an integer from {limits[0]} to {limits[1]}", at=start)
        return whole

    def scalar(self, dtype: str) -> PythonValue:
        if dtype == "str":
            value, self.at = self.text[self.at :], len(self.text)
            return value
        start = self.skip()
        text = self.text[start:].strip()
        if dtype == "bool" and text.lower() in _BOOLS:
            return _BOOLS[text.lower()]
        if dtype == "int" and re.fullmatch(r"[+-]?[0-9]{1,19}", text) and -(2**63) <= int(text) < 2**63:
            return int(text)
        if dtype == "float" and re.fullmatch(rf"{_NUMBER.pattern}|[+-]?inf|[0-9]+\.", text):
            return float(text)
        expected = {"bool": "true or false", "int": "a 64-bit integer", "float": "a number"}
        return self.fail(f"{expected[dtype]} after '='", at=start)

    def skip(self) -> int:
        while self.at < len(self.text) and self.text[self.at] == " ":
            self.at += 1
        return self.at

    def peek(self) -> str:
        start = self.skip()
        return self.text[start : start + 1]

    def accept(self, token: str) -> bool:
        if not self.text.startswith(token, self.skip()):
            return False
        self.at += len(token)
        return True

    def token(self, token: str, expected: str) -> None:
        if not self.accept(token):
            self.fail(expected)

    def match(self, pattern: re.Pattern[str], expected: str) -> str:
        found = pattern.match(self.text, self.skip())
        if found is None:
            self.fail(expected)
        self.at = found.end()
        return found.group()

    def end(self, expected: str) -> None:
        if self.peek():
            self.fail(expected)

    def fail(self, expected: str, at: int | None = None) -> NoReturn:
        self.refuse(f"Expected {expected}.", at=self.at if at is None else at)

    def refuse(self, reason: str, at: int) -> NoReturn:
        # A window, and one printable character for each, so that the caret stays below its fault.
        first = max(0, at - 60)
        shown = "".join(c if c.isprintable() else "?" for c in self.text[first : at + 60])
        caret = " " * (at - first) + "^"
        raise UsageError(
            f"Cannot read this input:\n  {shown}\n  {caret}\n{reason}\nExample: {EXAMPLE}"
        ) from None
