"""What goes between a process and the one that runs its kernels: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Call", "Memory", "Reply"]


@dataclass(frozen=True, slots=True)
class Memory:
    """A tensor. `content`: of an input; None for an output, which begins as NaN."""

    name: str
    sizes: tuple[int, ...]
    dtype: int  # TensorProto.DataType
    item_size: int
    size: int  # bytes
    content: bytes | None = None
    overwritten: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a kernel.

    Attributes:
        operator, row: number in the library; of the combination of dtypes.
        seed: of the schedule; 0: threads in their order.
        workers: threads of the operating system; 0: one per core.
        alignment: in bytes, of tensors that end at a guard; 0: they begin at one instead.
        attributes: ONNX type and value, in the order of the declaration.
        outputs: memory, or the number of the input that is overwritten.
    """

    operator: int
    row: int
    tactic: int
    seed: int
    workers: int
    alignment: int
    inputs: tuple[Memory | None, ...]
    attributes: tuple[tuple[str, Any], ...]
    outputs: tuple[Memory | int, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """`refused`: the launcher takes no such inputs. `failed`: what a thread, or a launch, did wrong."""

    outcome: Literal["done", "refused", "failed"]
    text: str = ""
    outputs: tuple[bytes, ...] = ()
