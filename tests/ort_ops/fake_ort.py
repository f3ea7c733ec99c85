"""The adapter for CUDA without a GPU: compiled with kernels for the emulated device, and run under a fake ONNX Runtime."""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from deployops.native.compilers import find_cxx
from deployops.native.jobs import run_all
from deployops.native.kernel_files import INCLUDE
from deployops.native.object_cache import Cache, CompileJob
from deployops.ort_ops.build_plan import NATIVE_CPP, ORT_CPP
from deployops.ort_ops.cuda_plan import make_cuda_plan
from deployops.symbolic import dtypes
from deployops.symbolic.operator import Operator
from deployops.trt_plugins.emulation.build import _CPP as DEVICE_CPP
from deployops.trt_plugins.emulation.build import device_jobs, kernel_flags

HERE = Path(__file__).resolve().parent
STREAM = 0x5EED0


def built(operators: Sequence[Operator]) -> Path:
    """One library of the adapter, these kernels, the emulated device and the fake ONNX Runtime; from the cache."""
    compiler, cache = find_cxx(), Cache()
    plan = make_cuda_plan(operators)
    ours = (DEVICE_CPP / "include", INCLUDE, NATIVE_CPP, ORT_CPP)
    adapter = '#include "cuda_target.h"\n#include "ort_adapter.cpp"\n'
    flags = kernel_flags()
    jobs = [
        CompileJob(
            f"{unit.operator} (fake ONNX Runtime)", unit.source, compiler, kernel_flags(),
            (DEVICE_CPP / "include", INCLUDE, NATIVE_CPP, Path(unit.file).parent), unit.symbol,
        )
        for unit in plan.units
    ]  # fmt: skip
    jobs += [
        *device_jobs(compiler),
        CompileJob("fake operator table", plan.table, compiler, flags, ours),
        CompileJob("fake adapter", adapter, compiler, flags, ours),
        CompileJob(
            "fake ONNX Runtime", '#include "fake_ort.cpp"\n', compiler, flags, (*ours, DEVICE_CPP, HERE)
        ),
    ]
    objects = run_all([(job.name, lambda job=job: cache.compile(job)) for job in jobs], 2, None)
    return cache.link(objects, compiler, ("-pthread", "-Wl,-Bsymbolic"), "libfake_ort.so")


class FakeRuntime:
    """A process with the library in it, or with one that nvcc `compiled` instead.

    `operators`: of each, domain, name, provider, version, types, memory types.
    """

    def __init__(self, library: Path, compiled: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                str(HERE / "run_fake_ort.py"),
                str(library),
                *([str(compiled)] if compiled else []),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        said = self._read()
        assert "operators" in said, said
        self.operators: list[list[str]] = said["operators"]

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # where a kernel has ended it
            self._process.stdin.close()
        self._process.wait(20)

    def run(
        self,
        op: Operator,
        tensors: Sequence[torch.Tensor | None],
        attributes: dict[str, Any],
        outputs: Sequence[torch.dtype],
        *,
        wanted: Sequence[bool] | None = None,
        over: int | None = None,
    ) -> dict[str, Any]:
        """A node's one run. `over`: output 0 is bound to the memory of that input."""
        kinds = {a.name: a.onnx_type for a in op.interface.attributes}
        job = {
            "operator": self._number(op, tensors),
            "node": "the_node",
            "inputs": [None if t is None else _packed(t) for t in tensors],
            "attributes": [(n, kinds.get(n, "INT"), v) for n, v in attributes.items() if v is not None],
            "outputs": [
                (
                    wanted is None or wanted[k],
                    dtypes.onnx_number(d),
                    d.itemsize,
                    over if k == 0 else None,
                )
                for k, d in enumerate(outputs)
            ],
            "stream": STREAM,
        }
        assert self._process.stdin is not None
        pickle.dump(job, self._process.stdin)
        self._process.stdin.flush()
        reply = self._read()
        if "outputs" in reply:
            reply["tensors"] = [
                None if o is None else _unpacked(*o, d)
                for o, d in zip(reply["outputs"], outputs, strict=True)
            ]
        return reply

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            reply: dict[str, Any] = pickle.load(self._process.stdout)  # of our own child  # noqa: S301
        except EOFError:
            raise AssertionError(f"the process ended with {self._process.wait(20)}") from None
        return reply

    def _number(self, op: Operator, tensors: Sequence[torch.Tensor | None]) -> int:
        """The custom operator that ONNX Runtime would choose: by name and types."""
        for number, (domain, name, _, _, types, *_) in enumerate(self.operators):
            declared = [int(t) for t in types.split(",") if t]
            given = [
                None if t is None else (declared[min(k, len(declared) - 1)], dtypes.onnx_number(t.dtype))
                for k, t in enumerate(tensors)
            ]
            if (domain, name) == (op.domain, op.op_type) and all(g is None or g[0] == g[1] for g in given):
                return number
        raise AssertionError(f"no {op.onnx_name} for {[t if t is None else t.dtype for t in tensors]}")


def _packed(t: torch.Tensor) -> tuple[bytes, tuple[int, ...], int, int]:
    flat = t.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    content = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return content, tuple(t.shape), dtypes.onnx_number(t.dtype), t.element_size()


def _unpacked(content: bytes, sizes: list[int], dtype: torch.dtype) -> torch.Tensor:
    if not content:
        return torch.empty(sizes, dtype=dtype)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(dtype).reshape(sizes)
