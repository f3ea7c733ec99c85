"""The process in which emulated kernels run: what they break is only this process.

    python -m deployops.trt_plugins.emulation.worker LIBRARY

Reads calls on its standard input and answers each on its standard output (`calls`). A kernel that touches memory that is
not its own, or traps, ends the process; what happened is on standard error then.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from ...native.cpu_library import AttributeRef, OperatorCall, TensorRef, fill_list
from .calls import ALIGNED, Call, Memory, Reply

__all__ = ["main", "operator_call"]

_TEXT_SIZE = 4096
# Of an argument: its `TensorRef`, itself, and where it is to begin (see `Layout`).
Place = Callable[[Any, "Memory | None", "int | None", "list[Any]"], None]


class _Library:
    """An emulated library, loaded into this process."""

    def __init__(self, path: str) -> None:
        self._c = ctypes.CDLL(path)
        self._c.deployops_emulated_memory.restype = ctypes.c_void_p
        self._c.deployops_emulated_memory.argtypes = (
            ctypes.c_size_t,
            ctypes.c_size_t,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_char_p,
        )
        self._c.deployops_emulated_large_memory.restype = ctypes.c_void_p
        self._c.deployops_emulated_large_memory.argtypes = (
            ctypes.c_size_t,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_char_p,
        )
        self._c.deployops_emulated_large.argtypes = (ctypes.c_uint64, ctypes.c_uint64)
        self._c.deployops_emulated_blocks.restype = ctypes.c_uint64
        self._c.deployops_emulated_fill.argtypes = (ctypes.c_ubyte,)
        self._c.deployops_emulated_run.argtypes = (
            ctypes.c_size_t,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_uint32,
            ctypes.c_int,
            ctypes.POINTER(OperatorCall),
            ctypes.c_char_p,
            ctypes.c_size_t,
        )
        self._c.deployops_emulated_catch_faults()
        self._layout = ALIGNED

    def tactics(self) -> list[int]:
        """How many ways each operator has."""
        found: list[int] = []
        while count := self._c.deployops_emulated_tactics(ctypes.c_size_t(len(found))):
            found.append(count)
        return found

    def run(self, call: Call) -> Reply:
        held: list[Any] = []
        manner = call.manner
        self._layout = manner.layout
        self._c.deployops_emulated_fill(manner.fill)
        self._c.deployops_emulated_large(*call.large)
        try:
            packed, outputs = operator_call(call, self._place, held)
            text = ctypes.create_string_buffer(_TEXT_SIZE)
            outcome = self._c.deployops_emulated_run(
                call.operator,
                call.row,
                manner.tactic,
                manner.seed,
                manner.workers,
                packed,
                text,
                _TEXT_SIZE,
            )
            if outcome:
                return Reply("refused" if outcome == 1 else "failed", text.value.decode(errors="replace"))
            made = []
            for ref, output in zip(outputs, call.outputs, strict=False):
                memory = call.inputs[output] if isinstance(output, int) else output
                made.append(
                    ctypes.string_at(ref.data + memory.zeros, memory.size - memory.zeros)
                    if memory and memory.size
                    else b""
                )
            return Reply("done", outputs=tuple(made), blocks=self._c.deployops_emulated_blocks())
        except MemoryError as e:
            return Reply("refused", str(e))
        finally:
            self._c.deployops_emulated_release()

    def _place(self, ref: Any, memory: Memory | None, offset: int | None, held: list[Any]) -> None:
        """Put a tensor into memory of its own."""
        ref.rank = -1
        if memory is None:
            return
        sizes = (ctypes.c_int64 * max(len(memory.sizes), 1))(*memory.sizes)
        held.append(sizes)
        writable = memory.content is None or memory.overwritten
        alignment = self._layout.alignment if offset is None else 16
        if memory.zeros:
            address = self._c.deployops_emulated_large_memory(
                memory.size, memory.zeros, writable, memory.name.encode()
            )
        else:
            address = self._c.deployops_emulated_memory(
                memory.size,
                max(alignment, memory.item_size),
                offset or 0,
                alignment != 0,
                writable,
                memory.name.encode(),
            )
        if address is None:
            raise MemoryError(f"no memory for {memory.name}: {memory.size} bytes")
        if memory.content:
            ctypes.memmove(address + memory.zeros, memory.content, len(memory.content))
        ref.data, ref.sizes, ref.rank, ref.dtype = address, sizes, len(memory.sizes), memory.dtype


def operator_call(call: Call, place: Place, held: list[Any]) -> tuple[OperatorCall, Any]:
    """A call as a launcher takes it, and its outputs; `held` keeps what both refer to.

    `place`: gives a tensor memory: fills its `TensorRef`; an argument that is absent is None.
    """
    inputs = (TensorRef * max(len(call.inputs), 1))()
    layout = call.manner.layout
    for k, memory in enumerate(call.inputs):
        place(inputs[k], memory, layout.input_offset(k, memory.item_size) if memory else None, held)
    outputs = (TensorRef * max(len(call.outputs), 1))()
    for k, output in enumerate(call.outputs):
        if isinstance(output, int):  # the operator writes into this argument
            outputs[k] = inputs[output]
        else:
            place(outputs[k], output, layout.output_offset(k, output.item_size), held)
    held += [inputs, outputs]
    return OperatorCall(None, inputs, len(call.inputs), _attribute_refs(call, held), outputs, None), outputs


def _attribute_refs(call: Call, held: list[Any]) -> Any:
    """The attributes of a call as a launcher takes them; `held` keeps what they refer to."""
    refs = (AttributeRef * max(len(call.attributes), 1))()
    for ref, (onnx_type, value) in zip(refs, call.attributes, strict=False):
        if value is None:
            continue
        ref.present = True
        if isinstance(value, str):
            text = value.encode()
            ref.s, ref.count = text, len(text)
            held.append(text)
        elif isinstance(value, (list, tuple)):
            ref.count = len(value)
            fill_list(ref, value, onnx_type, held)
        elif isinstance(value, float):
            ref.f = value
        else:
            ref.i = value
    return refs


def main(path: str, calls: BinaryIO, replies: BinaryIO) -> None:
    """Answer calls until there are no more."""
    library = _Library(path)
    pickle.dump(library.tactics(), replies)
    replies.flush()
    while True:
        try:
            call = pickle.load(calls)  # from the parent process  # noqa: S301
        except EOFError:
            return
        pickle.dump(library.run(call), replies)
        replies.flush()


if __name__ == "__main__":
    # What a kernel prints goes where messages go, not among the replies.
    replies_to = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    main(sys.argv[1], sys.stdin.buffer, replies_to)
