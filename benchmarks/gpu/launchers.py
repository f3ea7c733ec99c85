"""Kernels launched on torch tensors, for `bench_gpu.py`: on a GPU through a small library, or on the emulated device.

Both have the same two methods, so that what runs on a GPU has been run before on a machine without one.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from deployops.errors import DeployOpsError, UsageError
from deployops.native.archs import read_archs
from deployops.native.cpu_library import OperatorCall, TensorRef, attribute_refs, describe_tensor
from deployops.native.cuda_library import DEFAULT_ARCHS, CudaBuild, CudaTools, link_flags
from deployops.native.cuda_plan import cuda_unit
from deployops.native.cuda_signature import cuda_entries, cuda_entries_symbol
from deployops.native.jobs import run_all
from deployops.native.kernel_files import INCLUDE, find_kernel
from deployops.native.linking import put_library
from deployops.native.nvcc_objects import CudaCache, CudaJob, code_flags
from deployops.native.signature import fingerprint
from deployops.symbolic.operator import Operator
from deployops.trt_plugins.emulation.library import EmulatedLibrary, emulated_library
from deployops.trt_plugins.emulation.packing import fake_outputs, kernel_row

HERE = Path(__file__).resolve().parent
NAME = "libdeployops_bench_gpu.so"
_TEXT = 1024


class LaunchError(DeployOpsError):
    """A launcher refused, or CUDA did."""


class Launcher(Protocol):
    """`device`: where its tensors are. `asynchronous`: a launch returns before the kernel has run."""

    device: str
    asynchronous: bool

    def tactics(self, op: Operator) -> int: ...

    def prepared(
        self, op: Operator, args: Sequence[Any], kwargs: dict[str, Any], tactic: int
    ) -> Callable[[], list[torch.Tensor]]:
        """What launches the kernel, each time into the same outputs."""
        ...


def build(operators: Sequence[Operator], tools: CudaTools, folder: Path, jobs: int | None = None) -> Path:
    """Compile their kernels for `CudaLauncher`. Needs no GPU."""
    cache = CudaCache()
    units = [
        cuda_unit(op, file, cuda_entries(op, file.name), cuda_entries_symbol(op))
        for op in operators
        for file in [find_kernel(op, ".cuh")]
    ]
    build = CudaBuild(tools, cache)
    table = CudaJob(
        name="bench launchers",
        source=_table(operators),
        compiler=tools.cxx,
        flags=("-fPIC", "-fvisibility=hidden"),
        include_dirs=(tools.nvcc.include, INCLUDE, HERE),
        nvcc=tools.nvcc,
        device_flags=("-std=c++17", "-O2", *code_flags(tools.archs)),
    )
    objects = run_all([*build.tasks(units), (table.name, lambda: cache.compile(table))], jobs, None)
    flags = link_flags(tools.nvcc, HERE / "launchers.exports")
    return put_library(cache.link(objects, tools.cxx, flags, NAME), folder, NAME)


def _table(operators: Sequence[Operator]) -> str:
    symbols = [cuda_entries_symbol(op) for op in operators]
    rows = [
        f"    {{{json.dumps(op.name)}, {json.dumps(fingerprint(op))}, {symbol}()}},"
        for op, symbol in zip(operators, symbols, strict=True)
    ]
    return "\n".join(
        [
            '#include "launchers.cpp"',
            *(f'extern "C" const deployops::CudaKernels* {symbol}();' for symbol in symbols),
            "namespace bench {",
            "const Operator operators[] = {",
            *rows,
            "};",
            f"const size_t operator_count = {len(rows)};",
            "}",
            "",
        ]
    )


class CudaLauncher:
    """Launches on the current CUDA stream of torch. Raises UsageError where the library has other operators."""

    device = "cuda"
    asynchronous = True

    def __init__(self, library: Path, operators: Sequence[Operator]) -> None:
        self._c = ctypes.CDLL(str(library))
        self._c.bench_operator.restype = ctypes.c_char_p
        self._c.bench_launch.argtypes = (
            ctypes.c_size_t,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_size_t,
        )
        self._numbers: dict[str, tuple[int, int]] = {}
        made_of: dict[str, str] = {}
        tactics, digest = ctypes.c_int(), ctypes.c_char_p()
        while name := self._c.bench_operator(
            ctypes.c_size_t(len(self._numbers)), ctypes.byref(tactics), ctypes.byref(digest)
        ):
            made_of[name.decode()] = (digest.value or b"").decode()
            self._numbers[name.decode()] = (len(self._numbers), tactics.value)
        other = [op.name for op in operators if made_of.get(op.name) != fingerprint(op)]
        if other:
            raise UsageError(f"{library} has no kernel for, or another declaration of, {', '.join(other)}")

    def tactics(self, op: Operator) -> int:
        return self._numbers[op.name][1]

    def prepared(
        self, op: Operator, args: Sequence[Any], kwargs: dict[str, Any], tactic: int
    ) -> Callable[[], list[torch.Tensor]]:
        bound = op.interface.bind(args, kwargs)
        inputs = [None if t is None else t.contiguous() for t in op.interface.flat_inputs(bound)]
        slots = max(len(inputs), len(op.interface.inputs), 1)
        refs = (TensorRef * slots)()
        for k in range(slots):
            refs[k].rank = -1
        held: list[Any] = [describe_tensor(ref, t) for ref, t in zip(refs, inputs, strict=False)]
        names = [i.name for i in op.interface.inputs]
        outputs = []
        for o, fake in zip(op.interface.outputs, fake_outputs(op, args, kwargs), strict=True):
            own = inputs[names.index(o.mutates)] if o.mutates is not None else None
            outputs.append(
                own if own is not None else torch.empty(fake.shape, dtype=fake.dtype, device=self.device)
            )
        out_refs = (TensorRef * len(outputs))()
        held += [describe_tensor(ref, t) for ref, t in zip(out_refs, outputs, strict=True)]
        attributes, more = attribute_refs(op.interface, bound.attributes)
        held += [inputs, more]
        call = OperatorCall(None, refs, len(inputs), attributes, out_refs, None)
        number, row = self._numbers[op.name][0], kernel_row(op, bound.tensors)
        text = ctypes.create_string_buffer(_TEXT)

        def launch() -> list[torch.Tensor]:
            assert held
            stream = torch.cuda.current_stream().cuda_stream
            if self._c.bench_launch(number, row, tactic, stream, ctypes.byref(call), text, _TEXT):
                raise LaunchError(f"{op.name}, tactic {tactic}: {text.value.decode(errors='replace')}")
            return outputs

        return launch


class EmulatedLauncher:
    """The same kernels on the emulated device, for a dry run: slow, and its times say nothing."""

    device = "cpu"
    asynchronous = False

    def __init__(self, operators: Sequence[Operator]) -> None:
        self.library: EmulatedLibrary = emulated_library(list(operators))

    def tactics(self, op: Operator) -> int:
        return self.library.tactics(op)

    def prepared(
        self, op: Operator, args: Sequence[Any], kwargs: dict[str, Any], tactic: int
    ) -> Callable[[], list[torch.Tensor]]:
        return lambda: self.library.run(op, args, kwargs, tactic=tactic)


def archs_of(text: str | None) -> list[int]:
    """The architectures asked for; None: that of the GPU here, else the usual ones."""
    if text:
        return list(read_archs(text))
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        return [10 * major + minor]
    return list(DEFAULT_ARCHS)
