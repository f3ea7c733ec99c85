"""What goes between a process and the one that runs its kernels: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["ALIGNED", "LARGE", "LOW", "NAN", "ZERO", "Call", "Layout", "Manner", "Memory", "Reply"]

# What unwritten memory holds, as a byte: in every floating dtype NaN; about 93 % of its range (float16) or a large number;
# the same below zero; 0. As integers -1, large ones of either sign, 0. NaN is lost in fmax, large ones in a minimum, and so on.
NAN, LARGE, LOW, ZERO = 0xFF, 0x7B, 0xFB, 0x00


@dataclass(frozen=True, slots=True)
class Memory:
    """A tensor. `content`: of an input; None for an output, which begins as the call says.

    `zeros`: bytes at its beginning that are 0 and that nobody looks at; `content`, and what an output is read for, is the rest.
    """

    name: str
    sizes: tuple[int, ...]
    dtype: int  # TensorProto.DataType
    item_size: int
    size: int  # bytes
    content: bytes | None = None
    overwritten: bool = False
    zeros: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """Where tensors lie.

    Attributes:
        alignment: in bytes, of tensors that end at a guard; 0: they begin at one instead.
        inputs, outputs: None: as `alignment` says. Else the first of them begins so many elements past a multiple of 16
            bytes, and each of the others one more.
    """

    alignment: int = 16
    inputs: int | None = None
    outputs: int | None = None

    def input_offset(self, number: int, item_size: int) -> int | None:
        """Bytes past a multiple of 16 at which an input begins; None: as `alignment` says."""
        return None if self.inputs is None else (self.inputs + number) * item_size % 16

    def output_offset(self, number: int, item_size: int) -> int | None:
        """The same of an output."""
        return None if self.outputs is None else (self.outputs + number) * item_size % 16


ALIGNED = Layout()


@dataclass(frozen=True, slots=True)
class Manner:
    """How a kernel is run.

    Attributes:
        seed: of the schedule; 0: threads in their order.
        workers: threads of the operating system; 0: one per core.
        fill: the byte of which memory is made that nobody has written: NAN, LARGE, LOW, ZERO.
    """

    tactic: int = 0
    seed: int = 0
    workers: int = 0
    layout: Layout = ALIGNED
    fill: int = NAN


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a kernel.

    Attributes:
        operator, row: number in the library; of the combination of dtypes.
        attributes: ONNX type and value, in the order of the declaration.
        outputs: memory, or the number of the input that is overwritten.
        large: where only some blocks are run (`LargeRun` of device.h): the elements of the largest tensor, and how many of
            them, at its end, are to be computed.
    """

    operator: int
    row: int
    manner: Manner
    inputs: tuple[Memory | None, ...]
    attributes: tuple[tuple[str, Any], ...]
    outputs: tuple[Memory | int, ...]
    large: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Reply:
    """`refused`: the launcher takes no such inputs. `failed`: what a thread, or a launch, did wrong. `blocks`: launched."""

    outcome: Literal["done", "refused", "failed"]
    text: str = ""
    outputs: tuple[bytes, ...] = ()
    blocks: int = 0
