"""One small file per backend: how a sample becomes output arrays. Nothing here judges.

Arrays travel as numpy, the types numpy lacks as those of ml_dtypes (bfloat16, float8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy.typing as npt

__all__ = ["Backend", "Sample"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """One call of the model.

    Attributes:
        label: what the report calls it, such as ``"batch=3"``.
        args, kwargs: as the model's forward takes them.
        names: names of the flattened tensors of args, then kwargs, where the caller knows them.
    """

    label: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] | None = None


class Backend(Protocol):
    """Something that runs samples. `run` raises whatever the runtime raises."""

    name: str

    def run(self, inputs: Sequence[tuple[str, Any]]) -> list[Array]:
        """Outputs in graph order, from (name, tensor or Python scalar) pairs in the order of the call."""
        ...
