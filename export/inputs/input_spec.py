"""What is known of one input of a model: its name, dtype and dims. `input_text` reads it from text."""

from __future__ import annotations

import dataclasses
import keyword
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ...errors import UsageError

__all__ = [
    "DTYPES",
    "IDENTIFIER",
    "MOST_BYTES",
    "InputSpec",
    "PythonValue",
    "Symbol",
    "item_bytes",
    "unified",
    "with_symbols",
]

PythonValue: TypeAlias = int | float | bool | str | None

# dtype -> smallest and largest value of the integer ones, None for the others.
DTYPES: dict[str, tuple[int, int] | None] = {
    "float16": None,
    "bfloat16": None,
    "float32": None,
    "float64": None,
    "int8": (-(2**7), 2**7 - 1),
    "uint8": (0, 2**8 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "bool": None,
    "complex64": None,
    "complex128": None,
}

IDENTIFIER = re.compile(r"[^\W\d]\w*")
# The names torch gives to sizes (s77), data-dependent sizes (u0) and floats (zf0, zuf0).
_TORCH_NAME = re.compile(r"(s|u|zf|zuf)[0-9]+")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A dim that stays variable: any size from `low` to `high` (None: no limit) that `multiple` divides.

    `example` is the size to trace with, when the default would not do.
    """

    name: str
    low: int = 1
    high: int | None = None
    example: int | None = None
    multiple: int = 1

    def __post_init__(self) -> None:
        fault = _symbol_fault(self)
        if fault:
            raise UsageError(f"The dim {str(self)!r} {fault}.")

    def __str__(self) -> str:
        text = self.name
        if (self.low, self.high) != (1, None):
            text += f"={self.low}..{'' if self.high is None else self.high}"
        if self.multiple != 1:
            text += f"%{self.multiple}"
        return text if self.example is None else f"{text}@{self.example}"

    def allows(self, size: int) -> bool:
        """Whether `size` is within the declared range."""
        return size >= self.low and (self.high is None or size <= self.high) and size % self.multiple == 0

    def at_least(self, size: int) -> int | None:
        """The smallest allowed size not below `size`."""
        found = -(-max(size, self.low) // self.multiple) * self.multiple
        return found if self.allows(found) else None

    def at_most(self, size: int) -> int | None:
        """The largest allowed size not above `size`."""
        found = (size if self.high is None else min(size, self.high)) // self.multiple * self.multiple
        return found if self.allows(found) else None


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of a model: a tensor (`shape` is a tuple), or a Python value (`shape` is None).

    `dtype` is a torch name ("float32"), or "int", "float", "bool", "str", "none" for Python values.
    `value_range` bounds, both included, the values that `Signature.make` draws.
    """

    name: str
    dtype: str
    shape: tuple[int | Symbol, ...] | None = None
    value: PythonValue = None
    value_range: tuple[float, float] | None = None

    def __str__(self) -> str:
        if self.shape is not None:
            text = f"{self.name}:{self.dtype}[{','.join(map(str, self.shape))}]"
            if self.value_range is None:
                return text
            low, high = self.value_range
            return f"{text}={low!r}..{high!r}"
        if self.dtype == "none":
            return f"{self.name}:none"
        value = str(self.value).lower() if self.dtype == "bool" else str(self.value)
        return f"{self.name}:{self.dtype}={value}"

    @property
    def is_tensor(self) -> bool:
        """Whether the input is a tensor rather than a Python value."""
        return self.shape is not None


def _symbol_fault(symbol: Symbol) -> str | None:
    name, low, high, multiple = symbol.name, symbol.low, symbol.high, symbol.multiple
    if not IDENTIFIER.fullmatch(name):
        return "is not named by an identifier such as batch"
    if keyword.iskeyword(name):
        return "is named by a Python keyword, which tools that compute with dims cannot read: rename it"
    if _TORCH_NAME.fullmatch(name):
        return "has a name that torch gives to sizes itself: rename it, to batch for instance"
    if low < 0 or multiple < 1:
        return "needs a range of sizes from 0 up, and a multiple from 1 up"
    if high is not None and high < low:
        return f"has an empty range: {low} is above {high}"
    if high is not None and high == low:
        return f"can have one size only: write the fixed dim {low} instead"
    first = symbol.at_least(max(low, 2))
    if first is None:
        # torch.export fixes sizes 0 and 1 whatever is asked, so there is no size to trace with.
        return "must allow a size of 2 or more, because torch.export fixes sizes 0 and 1"
    if symbol.at_least(low) == first and symbol.at_least(first + 1) is None:
        return f"can have one size only: write the fixed dim {first} instead"
    if symbol.example is not None and not symbol.allows(symbol.example):
        return f"has its example size {symbol.example} outside its range"
    if symbol.example is not None and symbol.example < 2:
        return "needs an example size of 2 or more, because torch.export fixes sizes 0 and 1"
    return None


MOST_BYTES = 4 * 2**30
"""What all inputs of a model together may take: a file of another person names sizes, and each is allocated."""


def item_bytes(dtype: str) -> int:
    """The bytes of one value of a dtype of `DTYPES`."""
    return 1 if dtype == "bool" else int("".join(filter(str.isdigit, dtype))) // 8


def unified(specs: Iterable[InputSpec]) -> tuple[InputSpec, ...]:
    """The specs with one symbol per name; a bare mention takes over what another one declares."""
    specs = tuple(specs)
    symbols = _merged_symbols(specs)
    return tuple(with_symbols(spec, symbols) for spec in specs)


def _merged_symbols(specs: Iterable[InputSpec]) -> dict[str, Symbol]:
    """One symbol per name; a bare mention takes over what another one declares."""
    merged: dict[str, Symbol] = {}
    where: dict[str, InputSpec] = {}
    for spec in specs:
        for dim in spec.shape or ():
            if not isinstance(dim, Symbol):
                continue
            known = merged.setdefault(dim.name, dim)
            where.setdefault(dim.name, spec)
            if (bare := Symbol(dim.name)) in (dim, known):
                merged[dim.name] = dim if known == bare else known
            elif dim != known:
                raise UsageError(
                    f"The dim {dim.name!r} is declared twice, differently: {known} and {dim}, in\n"
                    f"  {where[dim.name]}\n  {spec}\nDeclare it once and name it alone elsewhere."
                )
    return merged


def with_symbols(spec: InputSpec, symbols: Mapping[str, Symbol]) -> InputSpec:
    """The spec with each of its variable dims as `symbols` has it."""
    if spec.shape is None:
        return spec
    shape = tuple(symbols[dim.name] if isinstance(dim, Symbol) else dim for dim in spec.shape)
    return dataclasses.replace(spec, shape=shape)
