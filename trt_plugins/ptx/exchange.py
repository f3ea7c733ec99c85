"""What goes between a process and the one that interprets its kernels: plain data."""

from __future__ import annotations

from dataclasses import dataclass

from ..emulation.calls import Call

__all__ = ["Answer", "Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """A call of a launcher; `call`: None asks how many tactics it has."""

    library: str
    symbol: str
    call: Call | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it.

    Attributes:
        outcome: "done", "refused" (by the launcher), "failed" (what a thread did), "not interpreted".
        text: why.
        outputs: their bytes.
        kernels: names in the PTX, of the kernels that were launched.
        steps: groups of instructions that the interpreter took.
        tactics: how many the launcher has.
        every: the kernels of the library.
    """

    outcome: str
    text: str = ""
    outputs: tuple[bytes, ...] = ()
    kernels: tuple[str, ...] = ()
    steps: int = 0
    tactics: int = 0
    every: tuple[str, ...] = ()
