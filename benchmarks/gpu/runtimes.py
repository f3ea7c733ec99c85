"""The operators as nodes, in ONNX Runtime's CUDA provider and in TensorRT."""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from ort_cases import CASES, OPS

from deployops.errors import DeployOpsError

from .bench import Bench
from .launchers import archs_of


def runtimes(bench: Bench) -> None:
    """Each operator as a node, in ONNX Runtime's CUDA provider and in TensorRT: parity and latency, by `validate`."""
    missing = {"onnxruntime-cuda": _cuda_provider_missing()} | {
        flavor: "" if importlib.util.find_spec(module) else f"the package {module} is not installed"
        for flavor, module in (("tensorrt", "tensorrt"), ("tensorrt-rtx", "tensorrt_rtx"))
    }
    bench.unchecked += [f"{name}: {reason}" for name, reason in missing.items() if reason]
    there = [name for name, reason in missing.items() if not reason]
    if not there and not bench.tiny:
        return
    bench.say(
        "", "### In the runtimes", "",
        "| operator | backend | parity | median, ms, copies included |", "|---|---|---|---:|",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        # without a GPU: the bodies of the operators on the CPU, so that all of this has run once
        for backend in there or ["onnxruntime"]:
            try:
                plugins = _plugin_library(bench, Path(folder)) if backend.startswith("tensorrt") else []
            except DeployOpsError as error:
                bench.unchecked.append(f"{backend}: {error}")
                continue
            for name in bench.ops:
                if bench.late():
                    bench.unchecked.append(f"{name} in {backend}: the time was up")
                    continue
                try:
                    bench.say(_validated(bench, name, backend, plugins, Path(folder)))
                except DeployOpsError as error:
                    bench.failures.append(f"{name} in {backend}: {str(error)[:200]}")
    if "onnxruntime-cuda" in there and "relu" in bench.ops:
        _node_overhead(bench)


def _plugin_library(bench: Bench, folder: Path) -> list[Path]:
    """The plugins of all operators for this GPU; compiled once."""
    from deployops.trt_plugins.library import NAME, compile_plugins

    if not (folder / NAME).is_file():
        compile_plugins(archs=archs_of(None), out=folder)
    return [folder / NAME]


def _cuda_provider_missing() -> str:
    try:
        import onnxruntime
    except ImportError:
        return "not installed"
    has = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    return "" if has else "this build of ONNX Runtime has no CUDAExecutionProvider"


def _validated(bench: Bench, name: str, backend: str, plugins: Sequence[Path], folder: Path) -> str:
    """The row of an operator. Its model is one node, exported, built and compared as a user's would be."""
    from deployops import export_model, validate
    from deployops.trt_plugins.engines.build import build_engine

    case = next(c for c in CASES if c.op_name == name)
    torch.manual_seed(0)
    args, kwargs = case.draw(4096 if bench.tiny else 1 << 20, torch.float32)
    op = case.op

    class Net(torch.nn.Module):
        def forward(self, *tensors: torch.Tensor) -> Any:
            return op(*tensors, **kwargs)

    path = folder / f"{name}.onnx"
    export_model(Net(), tuple(args), out=path, custom_ops="function" if backend == "onnxruntime" else "node")
    engine = None
    if plugins:
        engine = folder / f"{name}.{backend}.engine"
        archs = [f"sm{a}" for a in archs_of(None)] if backend == "tensorrt-rtx" else []
        build_engine(path, out=engine, flavor=backend, plugins=plugins, archs=archs)  # type: ignore[arg-type]
    report = validate(
        Net(), path, tuple(args), backends=[backend], engine=engine, plugins=plugins, latency=not bench.tiny
    )
    cells = [c for c in report.cells if c.backend == backend]
    bad = [f"{c.verdict}: {c.reason}" for c in cells if c.verdict != "passed"]
    told = bad[0] if bad else f"passed ({len(cells)})" if cells else "not checked"
    if any(c.verdict == "failed" for c in cells):
        bench.failures.append(f"{name} in {backend}: {bad[0]}")
    elif told != f"passed ({len(cells)})":
        missing = [b.missing for b in report.backends if b.name == backend]
        bench.unchecked.append(f"{name} in {backend}: {' '.join([told, *missing])[:200]}")
    timings = report.latency.timings if report.latency else ()
    times = [t.median for t in timings if t.candidate == backend]
    return f"| {name} | {backend} | {told[:120]} | {f'{times[0]:.3f}' if times else '–'} |"


def _node_overhead(bench: Bench) -> None:
    """What a custom node costs in ONNX Runtime's CUDA provider beside a built-in one: chains of many tiny nodes."""
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper

    from deployops.ort_ops import session

    count, size = 200, 64
    times = {}
    for label, domain, op_type in (("built-in", "", "Relu"), ("custom", "deployops", OPS["relu"].op_type)):
        nodes = [helper.make_node(op_type, [f"t{k}"], [f"t{k + 1}"], domain=domain) for k in range(count)]
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [size]) for n in ("t0", f"t{count}")]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("deployops", 1)]
        made = helper.make_model(
            helper.make_graph(nodes, "chain", ends[:1], ends[1:]), opset_imports=opsets, ir_version=8
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "chain.onnx"
            path.write_bytes(made.SerializeToString())
            opened = session(path, providers=["CUDAExecutionProvider"])
        binding = opened.io_binding()
        x = onnxruntime.OrtValue.ortvalue_from_numpy(np.ones(size, np.float32), "cuda", 0)
        binding.bind_ortvalue_input("t0", x)
        binding.bind_output(f"t{count}", "cuda", 0)
        samples = []
        for _ in range(50):
            start = time.perf_counter()
            opened.run_with_iobinding(binding)
            binding.synchronize_outputs()
            samples.append((time.perf_counter() - start) / count * 1e6)
        times[label] = statistics.median(samples[10:])
    bench.say(
        "",
        f"A node in a chain of {count} on {size} numbers: built-in Relu {times['built-in']:.2f} µs, our relu "
        f"{times['custom']:.2f} µs.",
    )
