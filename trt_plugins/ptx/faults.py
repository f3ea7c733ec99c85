"""What can go wrong while PTX is interpreted, and what is not interpreted."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .source import Instruction

__all__ = ["NotInterpreted", "PtxFault"]


class NotInterpreted(Exception):
    """PTX that the interpreter lacks. `what`: the instruction, or the construct."""

    def __init__(self, what: str) -> None:
        super().__init__(f"`{what}` is not interpreted")
        self.what = what

    @staticmethod
    def of(instruction: Instruction) -> NotInterpreted:
        """An instruction by its opcode, with all its modifiers."""
        return NotInterpreted(".".join(instruction.opcode))


class PtxFault(Exception):
    """A kernel did something wrong: which thread, at which instruction."""
