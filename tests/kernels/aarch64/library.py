"""The kernels of a library for aarch64, run in qemu: `serve.cpp` there, this here."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch

from deployops import compile_library
from deployops.native.cpu_library import CpuLibrary, TensorRef
from deployops.native.kernel_files import INCLUDE
from deployops.symbolic import dtypes
from deployops.symbolic.operator import Operator

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64-static"


def missing() -> str | None:
    """What this machine lacks to run kernels for aarch64."""
    lacking = [program for program in (COMPILER, EMULATOR) if shutil.which(program) is None]
    return f"there is no {' and no '.join(lacking)}" if lacking else None


class Aarch64Library(CpuLibrary):
    """The kernels of the shipped operators, compiled for aarch64; `run` runs them in qemu."""

    def __init__(self, folder: Path) -> None:
        self.path = compile_library(cxx=COMPILER, out=folder).path
        self.operators, self._fingerprints, self._kernels = {}, {}, {}
        server = folder / "serve"
        source = Path(__file__).with_name("serve.cpp")
        flags = ("-std=c++17", "-O2", f"-I{INCLUDE}", "-ldl")
        subprocess.run([COMPILER, str(source), *flags, "-o", str(server)], check=True)
        asked = subprocess.run(
            [COMPILER, "-print-file-name=libc.so.6"], capture_output=True, text=True, check=True
        )
        root = Path(asked.stdout.strip()).resolve().parent.parent
        self._server = subprocess.Popen(
            [EMULATOR, "-L", str(root), str(server), str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._c = cast(ctypes.CDLL, SimpleNamespace(deployops_shapes=self._shapes, deployops_run=self._run))
        for number in range(self._take("q")):
            name = self._take_bytes().decode()
            self.operators[name], self._fingerprints[name] = number, self._take_bytes().decode()

    def close(self) -> None:
        self._server.kill()
        self._server.communicate()

    def run(
        self,
        op: Operator,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        *,
        threads: int | None = None,
        level: str | None = None,
    ) -> list[torch.Tensor]:
        self._attributes = len(op.interface.attributes) + len(op.interface.count_attributes)
        return super().run(op, args, kwargs, threads=threads)

    # --- what the loaded library would do --------------------------------------------------------------------------

    def _shapes(self, number: Any, refs: Any, shapes: Any, error: Any, size: Any) -> int:
        self._inputs, self._outputs = refs, len(shapes)
        self._begin(0, number.value, 0, 1, len(refs), 0)
        failed = self._answer(error)
        for shape in shapes:
            shape.rank = self._take("i")
            for d in range(max(shape.rank, 0)):
                shape.sizes[d] = self._take("q")
        return failed

    def _run(
        self, number: Any, row: Any, level: Any, threads: Any, by_call: Any, error: Any, size: Any
    ) -> int:
        call = by_call._obj
        self._begin(1, number.value, row.value, threads.value, call.input_count, self._attributes)
        for k in range(self._attributes):
            self._give_attribute(call.attributes[k])
        for k in range(self._outputs):
            self._give_tensor(call.outputs[k])
        failed = self._answer(error)
        for k in range(self._outputs):
            content = self._take_bytes()
            ctypes.memmove(call.outputs[k].data, content, len(content))
        return failed

    def _begin(self, runs: int, index: int, row: int, threads: int, given: int, attributes: int) -> None:
        slots = len(self._inputs)
        self._give("<bqqiiiii", runs, index, row, threads, slots, given, attributes, self._outputs)
        for ref in self._inputs:
            self._give_tensor(ref)

    def _give_tensor(self, ref: TensorRef) -> None:
        if ref.rank < 0:
            self._give("<i", -1)
            return
        sizes = ref.sizes[: ref.rank]
        numbers = 1
        for n in sizes:
            numbers *= n
        content = (
            ctypes.string_at(ref.data, numbers * dtypes.torch_dtype(ref.dtype).itemsize) if numbers else b""
        )
        self._give(f"<ii{len(sizes)}q", ref.rank, ref.dtype, *sizes)
        self._give_bytes(content)

    def _give_attribute(self, ref: Any) -> None:
        self._give("<bqd", ref.present, ref.i, ref.f)
        self._give_bytes(ref.s or b"")
        ints = ref.ints[: ref.count] if ref.ints else []
        floats = ref.floats[: ref.count] if ref.floats else []
        strings = [ref.strings[k] for k in range(ref.count)] if ref.strings else []
        self._give(f"<q{len(ints)}q", len(ints), *ints)
        self._give(f"<q{len(floats)}d", len(floats), *floats)
        self._give("<q", len(strings))
        for text in strings:
            self._give_bytes(ctypes.string_at(text.data, text.count))
        self._give("<q", ref.count)

    # --- the pipe --------------------------------------------------------------------------------------------------

    def _give(self, layout: str, *values: Any) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(struct.pack(layout, *values))

    def _give_bytes(self, content: bytes) -> None:
        assert self._server.stdin is not None
        self._give("<q", len(content))
        self._server.stdin.write(content)

    def _answer(self, error: Any) -> int:
        assert self._server.stdin is not None
        self._server.stdin.flush()
        failed = self._take("b")
        error.value = self._take_bytes()
        return failed

    def _take(self, layout: str) -> int:
        value: int = struct.unpack("<" + layout, self._read(struct.calcsize("<" + layout)))[0]
        return value

    def _take_bytes(self) -> bytes:
        return self._read(self._take("q"))

    def _read(self, count: int) -> bytes:
        assert self._server.stdout is not None
        content = self._server.stdout.read(count)
        assert len(content) == count, f"the kernels ended in qemu with {self._server.wait()}"
        return content
