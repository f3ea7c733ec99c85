"""The process in which launchers run and their launches are interpreted.

    python -m deployops.trt_plugins.ptx.worker

Reads requests on its standard input and answers each on its standard output. A launcher that crashes ends only this process.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import re
import sys
from typing import Any, BinaryIO

import numpy as np

from ...native.cpu_library import OperatorCall
from ..emulation.calls import ALIGNED, NAN, Call, Memory
from ..emulation.worker import operator_call
from .exchange import Answer, Request
from .faults import NotInterpreted, PtxFault
from .machine import Launch, run_launch
from .memory import GlobalMemory, LaneFault, Segment
from .program import Program, compile_kernel
from .source import Module, read_module

__all__ = ["main"]

_TEXT_SIZE = 4096
_FIRST_ADDRESS = 0x7F0000000000
_APART = 1 << 24  # bytes between tensors, at least
_LAUNCH_FAILURE = 719  # cudaErrorLaunchFailure


class _LaunchRequest(ctypes.Structure):
    _fields_ = (
        ("module", ctypes.c_void_p),
        ("kernel", ctypes.c_char_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("dynamic_shared", ctypes.c_size_t),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
    )


class _Launcher(ctypes.Structure):
    _fields_ = (("launch", ctypes.c_void_p), ("tactics", ctypes.c_int), ("workspace", ctypes.c_void_p))


_INTERPRETER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_LaunchRequest))
_MEMORY = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t)


class _Library:
    """An operator's library in this process, with its PTX as far as it was needed."""

    def __init__(self, path: str, symbol: str) -> None:
        self._c = ctypes.CDLL(path)
        give = getattr(self._c, symbol)
        give.restype = ctypes.POINTER(_Launcher)
        self._launcher = give()
        self._c.deployops_ptx_run.argtypes = (
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.POINTER(OperatorCall), ctypes.c_char_p,
            ctypes.c_size_t,
        )  # fmt: skip
        self._callbacks = (_INTERPRETER(self._interpret), _MEMORY(self._access))
        self._c.deployops_ptx_interpreter(*self._callbacks)
        self._modules: dict[int, Module] = {}
        self._programs: dict[tuple[int, str], Program | NotInterpreted] = {}
        self._memory: list[Segment] = []
        self._error: BaseException | None = None
        self._kernels: list[str] = []
        self._steps = 0
        self._layout, self._fill = ALIGNED, NAN

    @property
    def tactics(self) -> int:
        return int(self._launcher.contents.tactics)

    def run(self, call: Call) -> Answer:
        held: list[Any] = []
        self._memory, self._error, self._kernels, self._steps = [], None, [], 0
        self._layout, self._fill = call.manner.layout, call.manner.fill
        packed, outputs = operator_call(call, self._place, held)
        text = ctypes.create_string_buffer(_TEXT_SIZE)
        outcome = self._c.deployops_ptx_run(
            self._launcher, call.row, call.manner.tactic, packed, text, _TEXT_SIZE
        )
        kernels = tuple(dict.fromkeys(self._kernels))
        error = self._raised()
        if isinstance(error, NotInterpreted):
            return Answer("not interpreted", error.what, kernels=kernels)
        if isinstance(error, PtxFault):
            return Answer("failed", str(error), kernels=kernels)
        if error is not None:
            raise error
        if outcome:
            return Answer("refused" if outcome == 1 else "failed", text.value.decode(errors="replace"))
        content = {s.address: s.content or b"" for s in self._memory}
        made = tuple(content[ref.data] if ref.rank >= 0 and ref.data in content else b"" for ref in outputs)
        return Answer("done", outputs=made[: len(call.outputs)], kernels=kernels, steps=self._steps)

    def _place(self, ref: Any, memory: Memory | None, offset: int | None, held: list[Any]) -> None:
        """Give a tensor a place among the addresses of the device; there is no memory behind it."""
        ref.rank = -1
        if memory is None:
            return
        sizes = (ctypes.c_int64 * max(len(memory.sizes), 1))(*memory.sizes)
        held.append(sizes)
        address = self._next_address()
        alignment = self._layout.alignment
        if offset is not None:
            address += offset
        elif alignment < 16:
            address += max(alignment, memory.item_size)  # as unaligned as a slice can be
        writable = memory.content is None or memory.overwritten
        content = memory.content if memory.content is not None else self._unwritten(memory.size)
        self._memory.append(Segment(memory.name, address, memory.size, content, writable))
        ref.data, ref.sizes, ref.rank, ref.dtype = address, sizes, len(memory.sizes), memory.dtype

    def _unwritten(self, size: int) -> bytes:
        return bytes([self._fill]) * size

    def _raised(self) -> BaseException | None:
        """What went wrong in a launch while the launcher ran."""
        return self._error

    def _next_address(self) -> int:
        last = self._memory[-1] if self._memory else None
        address = _FIRST_ADDRESS if last is None else last.address + last.size + _APART
        return address - address % 256

    def _access(self, what: int, to: int, origin: int, size: int) -> int:
        """What launchers ask of memory outside kernels: see runtime.cpp."""
        try:
            if what in (2, 3):
                name = "memory from cudaMallocAsync" if what == 2 else "the workspace"
                self._memory.append(Segment(name, self._next_address(), size, self._unwritten(size)))
                return self._memory[-1].address
            memory = GlobalMemory(self._memory)
            lane = np.zeros(1, np.int64)
            if size:
                target = int(memory.locate(lane, np.array([to], np.int64), size, True)[0])
                if what == 1:
                    source = int(memory.locate(lane, np.array([origin], np.int64), size, False)[0])
                    memory.content[target : target + size] = memory.content[source : source + size].copy()
                else:
                    memory.content[target : target + size] = origin
            self._keep(memory)
        except LaneFault as fault:
            self._error = self._error or PtxFault(
                f"the launcher's {('cudaMemsetAsync', 'cudaMemcpyAsync')[what]} {fault}"
            )
            return 0
        return 1

    def _keep(self, memory: GlobalMemory) -> None:
        """What kernels wrote is what the next one finds."""
        self._memory = [
            Segment(s.name, s.address, s.size, memory.read_segment(s), s.writable) if s.writable else s
            for s in self._memory
        ]

    def _interpret(self, request: Any) -> int:
        try:
            self._launch(request.contents)
        except BaseException as e:  # it must not pass through the launcher
            self._error = self._error or e
            return _LAUNCH_FAILURE
        return 0

    def _launch(self, request: Any) -> None:
        name = request.kernel.decode()
        self._kernels.append(name)
        program = self._program(request.module, name)
        if isinstance(program, NotInterpreted):
            raise program
        content = bytearray(program.function.parameter_bytes)
        for k, p in enumerate(program.function.parameters):
            content[p.offset : p.offset + p.size] = ctypes.string_at(request.arguments[k], p.size)
        launch = Launch(tuple(request.grid), tuple(request.block), request.dynamic_shared, bytes(content))
        variables = [
            Segment(f"the variable {v.name}", at, v.size, v.content or bytes(v.size), v.space == "global")
            for v, at in program.variables
        ]
        memory = GlobalMemory([*self._memory, *variables])
        try:
            self._steps += run_launch(program, launch, memory)
        except PtxFault as fault:
            raise PtxFault(f"the kernel `{name}`: {fault}") from None
        self._keep(memory)

    def _program(self, module: int, name: str) -> Program | NotInterpreted:
        key = (module, name)
        if key not in self._programs:
            try:
                found = self._module(module)
                if name not in found.kernels:
                    raise NotInterpreted(f"the kernel {name}, which its PTX lacks")
                self._programs[key] = compile_kernel(found, found.kernels[name])
            except NotInterpreted as e:
                self._programs[key] = e
        return self._programs[key]

    def _module(self, address: int) -> Module:
        if address not in self._modules:
            self._modules[address] = read_module(ptx_in(address))
        return self._modules[address]

    @property
    def every_kernel(self) -> tuple[str, ...]:
        """Those of the modules that were used."""
        return tuple(name for module in self._modules.values() for name in module.kernels)


def ptx_in(address: int) -> str:
    """The PTX in a fat binary that lies in this process. Raises NotInterpreted where there is none in plain."""
    header = ctypes.string_at(address, 16)
    if int.from_bytes(header[:4], "little") != 0xBA55ED50:
        raise NotInterpreted("a fat binary of another format")
    size = int.from_bytes(header[6:8], "little") + int.from_bytes(header[8:16], "little")
    found = re.search(rb"(?:^|\n)\.version \d+\.\d+\n[^\0]*", ctypes.string_at(address, size))
    if found is None:
        raise NotInterpreted("compressed PTX")
    return found[0].decode()


def main(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    libraries: dict[str, _Library] = {}
    while True:
        try:
            request: Request = pickle.load(requests)  # from the parent process  # noqa: S301
        except EOFError:
            return
        library = libraries.get(request.library)
        if library is None:
            library = libraries[request.library] = _Library(request.library, request.symbol)
        if request.call is None:
            answer = Answer("done", tactics=library.tactics, every=library.every_kernel)
        else:
            answer = library.run(request.call)
        pickle.dump(answer, answers, protocol=pickle.HIGHEST_PROTOCOL)
        answers.flush()


if __name__ == "__main__":
    # What a launcher prints goes where messages go, not among the answers.
    replies_to = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    main(sys.stdin.buffer, replies_to)
