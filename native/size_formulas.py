"""Expressions of sizes, as the fake kernel gives them, written in C++."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..symbolic import dims

__all__ = ["formula"]


@dataclass(frozen=True, slots=True)
class _Expression:
    """A C++ expression over `Size`; arithmetic builds larger ones."""

    text: str

    def __add__(self, other: Any) -> _Expression:
        return _joined(self, "+", other)

    def __radd__(self, other: Any) -> _Expression:
        return _joined(other, "+", self)

    def __sub__(self, other: Any) -> _Expression:
        return _joined(self, "-", other)

    def __rsub__(self, other: Any) -> _Expression:
        return _joined(other, "-", self)

    def __mul__(self, other: Any) -> _Expression:
        return _joined(self, "*", other)

    def __rmul__(self, other: Any) -> _Expression:
        return _joined(other, "*", self)

    def __neg__(self) -> _Expression:
        return _joined(0, "-", self)


def _joined(a: Any, operator: str, b: Any) -> _Expression:
    return _Expression(f"({_text(a)} {operator} {_text(b)})")


def _text(value: Any) -> str:
    return value.text if isinstance(value, _Expression) else f"Size({value})"


_FUNCTIONS = {"floordiv": "floor_divide", "mod": "modulo", "max": "larger", "min": "smaller"}


def formula(dim: str) -> str:
    """A dim expression in C++, over `Size` values named like its symbols: `floor_divide(d0_1, Size(2))`."""

    def call(name: str, arguments: list[Any]) -> _Expression:
        return _Expression(f"{_FUNCTIONS[name]}({', '.join(map(_text, arguments))})")

    return _text(dims.walk(dim, _Expression, call))
