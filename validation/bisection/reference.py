"""What the values between the nodes of a file are held against: an interface, and what its answers consist of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

__all__ = ["Fragment", "Origin", "Reference", "Unmappable"]

Array = npt.NDArray[Any]


class Unmappable(Exception):
    """There is no such reference for this file and this sample; the message says why."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from in the user's model: module path, and file and line; empty where unknown."""

    module: str = ""
    line: str = ""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A step of the original as a module of its own, weights in it, and what it is called with."""

    module: Any
    inputs: tuple[Any, ...]


class Reference(Protocol):
    """Values by their names in the ONNX graph, in the dtypes of the file, and what computes them again.

    Attributes:
        words: what it is, for the report.
        of_the_model: whether it is the user's model; else the file itself, of which it cannot find faults.
        values: of inputs, of nodes, of constants.
    """

    @property
    def words(self) -> str: ...
    @property
    def of_the_model(self) -> bool: ...
    @property
    def values(self) -> Mapping[str, Array]: ...

    def expected(self, name: str) -> Array:
        """The value in the dtype in which it is judged: that of the original, which the file may hold in a wider one."""
        ...

    def wide(self, wanted: Sequence[str], known: Collection[str]) -> dict[str, Array | None]:
        """`wanted` in float64, from the values `known` as they are in the deployed dtype. None where not possible."""
        ...

    def carried_on(self, changed: Mapping[str, Array]) -> list[Array]:
        """The model's outputs with these values in place of its own. Raises Unmappable where it does not run."""
        ...

    def origin(self, name: str) -> Origin:
        """Where the value comes from in the user's model."""
        ...

    def weight(self, name: str) -> tuple[str, Array] | None:
        """The parameter or buffer behind a constant of the file, and what the constant should hold."""
        ...

    def weights(self, name: str) -> dict[str, Array]:
        """Parameters and buffers that go into the value, between it and the values before it."""
        ...

    def fragment(self, name: str) -> Fragment | None:
        """What computes the value from the values before it, to be exported alone; None where there is no such thing."""
        ...

    def declared(self, name: str) -> tuple[str, str, Mapping[str, Any]] | None:
        """ONNX domain, type and attributes of the one declared operator in the step to the value; None: there is none."""
        ...
