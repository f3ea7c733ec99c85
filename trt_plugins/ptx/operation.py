"""What an instruction does to values, apart from registers and lanes; the tables of all of them are in the modules beside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .faults import NotInterpreted
from .source import Instruction
from .values import dtype_of

__all__ = ["Modifiers", "Operation"]


@dataclass(frozen=True, slots=True)
class Operation:
    """A function of values.

    Attributes:
        sources: the types in which operands are read.
        apply: numpy arrays or scalars of these types -> the result, or results.
    """

    sources: tuple[np.dtype[Any], ...]
    apply: Callable[..., Any]


class Modifiers:
    """The modifiers of an opcode, each to be taken once: what nobody takes is nothing that we know."""

    def __init__(self, instruction: Instruction) -> None:
        self._instruction = instruction
        self._left = list(instruction.opcode[1:])

    def flag(self, *names: str) -> bool:
        """Whether one of these is there; takes it."""
        return self.one_of(*names, default="") != ""

    def one_of(self, *names: str, default: str | None = None) -> str:
        """The one that is there; `default` where none is."""
        for name in names:
            if name in self._left:
                self._left.remove(name)
                return name
        if default is None:
            raise NotInterpreted.of(self._instruction)
        return default

    def kind(self) -> str:
        """The type, which is the last one left."""
        if not self._left or dtype_of(self._left[-1]) is None:
            raise NotInterpreted.of(self._instruction)
        return self._left.pop()

    def end(self) -> None:
        """Raises NotInterpreted where something was not taken."""
        if self._left:
            raise NotInterpreted.of(self._instruction)
