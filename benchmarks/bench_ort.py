"""Speed of the CPU kernels: against a plain copy, ONNX Runtime's own operators, and PyTorch.

    python benchmarks/bench_ort.py                      # everything: about a quarter of an hour
    python benchmarks/bench_ort.py --tables runtime --ops rms_norm attention --threads 1

What is compared runs in turns within one process, and each figure is a median; ratios, not times, are what to look
at. Inputs and outputs are bound to memory that is there already (IOBinding). Spinning is off on all sides.

Tables:
    copy       elementwise operators at 16M elements: bytes read and written per second, over those of numpy.copyto
    runtime    one node with our kernel, against the same operator expanded into standard ones, in ONNX Runtime; "nodes
               alone": the same less what a run costs before any node, which is most of the time of a small one
    torch      against PyTorch as users write it, eager and compiled
    node       what a custom node costs beside a built-in Relu
    build      the library: a clean build, one where nothing changed, and its size
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Spinning is off on every side: torch's threads would keep the cores that ours need. They read this when torch is loaded.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

import numpy as np
import onnx
import onnx.inliner
import onnxruntime as ort
import torch
from onnx import TensorProto, helper
from ort_cases import CASES, Case

from deployops.native.cpu_library import CpuLibrary
from deployops.ort_ops import ort_library
from deployops.symbolic import dtypes

MILLION16 = 1 << 24
TABLES = ("copy", "runtime", "torch", "node", "build")


# --- measuring ---------------------------------------------------------------------------------------------------


def in_turns(candidates: dict[str, Callable[[], Any]], seconds: float = 1.0) -> dict[str, float]:
    """Median time of each candidate in seconds; they take turns, so that what else the machine does hits all alike."""
    repeats = {}
    for name, run in candidates.items():
        run()
        start = time.perf_counter()
        run()
        once = time.perf_counter() - start
        repeats[name] = max(1, int(2e-4 / max(once, 1e-7)))  # a timer's resolution is no measurement
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    end = time.perf_counter() + seconds * len(candidates)
    while time.perf_counter() < end or len(samples[next(iter(samples))]) < 7:
        for name, run in candidates.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                run()
            samples[name].append((time.perf_counter() - start) / repeats[name])
    return {name: statistics.median(times) for name, times in samples.items()}


def options(threads: int, library: str | None) -> ort.SessionOptions:
    made = ort.SessionOptions()
    made.log_severity_level = 4
    made.intra_op_num_threads = threads
    made.add_session_config_entry("session.intra_op.allow_spinning", "0")
    made.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if library is not None:
        made.register_custom_ops_library(library)
    return made


def bound(session: ort.InferenceSession, feeds: dict[str, ort.OrtValue], outputs: list[ort.OrtValue]) -> Any:
    """A run whose inputs and outputs are in place."""
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_ortvalue_input(name, value)
    for slot, value in zip(session.get_outputs(), outputs, strict=True):
        binding.bind_ortvalue_output(slot.name, value)
    return lambda: session.run_with_iobinding(binding)


def ort_value(t: torch.Tensor) -> ort.OrtValue:
    if t.dtype == torch.bfloat16:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(
            t.view(torch.int16).numpy().view(np.uint16), TensorProto.BFLOAT16
        )
    return ort.OrtValue.ortvalue_from_numpy(t.numpy())


# --- models ------------------------------------------------------------------------------------------------------


def models(case: Case, args: Sequence[Any], kwargs: dict[str, Any], outputs: Sequence[torch.Tensor]) -> Any:
    """The node alone; the node expanded into standard operators; names of the inputs."""
    import onnx_ir as ir

    from deployops.symbolic.checking.body_check import one_node_model
    from deployops.symbolic.checking.sample_runs import SampleRun
    from deployops.symbolic.samples import Sample

    dtype = dtypes.name_of(outputs[0].dtype)
    run = SampleRun(case.op, dtype, 0, Sample(tuple(args), kwargs))
    proto = ir.to_proto(one_node_model(run, outputs))
    given = [t for t in case.op.interface.flat_inputs(case.op.interface.bind(args, kwargs)) if t is not None]
    for value, t in zip(proto.graph.input, given, strict=True):
        del value.type.tensor_type.shape.dim[:]
        for size in t.shape:
            value.type.tensor_type.shape.dim.add().dim_value = size
    expanded = onnx.inliner.inline_local_functions(proto)
    del proto.functions[:]
    return proto, expanded, [v.name for v in proto.graph.input], given


def optimised_nodes(model: onnx.ModelProto, folder: str) -> list[str]:
    """The operators that ONNX Runtime runs after its own fusions."""
    made = options(1, None)
    made.optimized_model_filepath = str(Path(folder) / "optimised.onnx")
    ort.InferenceSession(model.SerializeToString(), made, providers=["CPUExecutionProvider"])
    return [n.op_type for n in onnx.load(made.optimized_model_filepath).graph.node]


# --- tables ------------------------------------------------------------------------------------------------------


def table_copy(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    library = arguments.library
    rows = []
    for dtype in ("float32", "float16"):
        for case in CASES:
            if not case.elementwise or case.op_name not in arguments.ops:
                continue
            args, kwargs = case.draw(MILLION16, getattr(torch, dtype))
            outputs = case.op.flatten_outputs(case.op(*args, **kwargs), {})
            node, _, names, given = models(case, args, kwargs, outputs)
            session = ort.InferenceSession(
                node.SerializeToString(), options(1, library), providers=["CPUExecutionProvider"]
            )
            feeds = {n: ort_value(t) for n, t in zip(names, given, strict=True)}
            run = bound(session, feeds, [ort_value(torch.empty_like(t)) for t in outputs])
            moved = sum(t.numel() * t.element_size() for t in (*given, *outputs))
            source = np.ones(moved // 2, np.uint8)
            target = np.empty_like(source)
            found = in_turns(
                {"ours": run, "copy": lambda s=source, t=target: np.copyto(t, s)}, arguments.seconds
            )
            rows.append(
                {
                    "operator": case.name,
                    "dtype": dtype,
                    "ours GB/s": moved / found["ours"] / 1e9,
                    "copy GB/s": moved / found["copy"] / 1e9,
                    "of the copy": found["copy"] / found["ours"],
                }
            )
            show(rows[-1])
    return rows


def table_runtime(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    library = arguments.library
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for threads in arguments.threads:
            run = _run_alone(threads, arguments.seconds)
            for dtype in arguments.dtypes:
                for case in CASES:
                    for size in case.sizes if case.op_name in arguments.ops else ():
                        row = _against_expansion(case, size, dtype, threads, run, library, folder, arguments)
                        if row is not None:
                            rows.append(row)
                            show(row)
    return rows


def _against_expansion(
    case: Case,
    size: int,
    dtype: str,
    threads: int,
    run: float,
    library: str,
    folder: str,
    arguments: argparse.Namespace,
) -> dict[str, Any] | None:
    args, kwargs = case.draw(size, getattr(torch, dtype))
    outputs = case.op.flatten_outputs(case.op(*args, **kwargs), {})
    node, expanded, names, given = models(case, args, kwargs, outputs)
    feeds = {n: ort_value(t) for n, t in zip(names, given, strict=True)}
    candidates = {}
    for name, model, registered in (("ours", node, library), ("expanded", expanded, None)):
        session = ort.InferenceSession(
            model.SerializeToString(), options(threads, registered), providers=["CPUExecutionProvider"]
        )
        candidates[name] = bound(session, feeds, [ort_value(torch.empty_like(t)) for t in outputs])
    found = in_turns(candidates, arguments.seconds)
    nodes = optimised_nodes(expanded, folder)
    own = [n for n in nodes if n != "Cast"]
    return {
        "operator": case.name,
        "dtype": dtype,
        "elements": size,
        "threads": threads,
        "ours µs": found["ours"] * 1e6,
        "expanded µs": found["expanded"] * 1e6,
        "faster": found["expanded"] / found["ours"],
        "nodes alone": (found["expanded"] - run) / max(found["ours"] - run, 1e-9),
        "expansion": f"fused: {own[0]}" if len(own) == 1 else f"{len(nodes)} nodes",
    }


def _run_alone(threads: int, seconds: float) -> float:
    """Seconds that a run takes before it comes to any node: a run of one node, less what a node adds to a chain."""
    found = in_turns({str(n): _chain("Relu", "", n, threads, None) for n in (1, 100, 1100)}, seconds)
    return found["1"] - (found["1100"] - found["100"]) / 1000


def _chain(op_type: str, domain: str, count: int, threads: int, library: str | None) -> Callable[[], Any]:
    nodes = [helper.make_node(op_type, [f"v{k}"], [f"v{k + 1}"], domain=domain) for k in range(count)]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("v0", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info(f"v{count}", TensorProto.FLOAT, [1])],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("deployops", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = ort.InferenceSession(
        model.SerializeToString(), options(threads, library), providers=["CPUExecutionProvider"]
    )
    return bound(session, {"v0": ort_value(torch.ones(1))}, [ort_value(torch.empty(1))])


def table_torch(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    library = arguments.library
    rows = []
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        for dtype in arguments.dtypes:
            for case in CASES:
                if case.op_name not in arguments.ops or case.eager is None:
                    continue
                size = case.sizes[-1]
                args, kwargs = case.draw(size, getattr(torch, dtype))
                outputs = case.op.flatten_outputs(case.op(*args, **kwargs), {})
                node, _, names, given = models(case, args, kwargs, outputs)
                session = ort.InferenceSession(
                    node.SerializeToString(), options(threads, library), providers=["CPUExecutionProvider"]
                )
                feeds = {n: ort_value(t) for n, t in zip(names, given, strict=True)}
                candidates = {
                    "ours": bound(session, feeds, [ort_value(torch.empty_like(t)) for t in outputs]),
                    "eager": lambda c=case, a=args, k=kwargs: c.eager(*a, **k),
                }
                for name, function in case.also.items():
                    candidates[name] = lambda f=function, a=args, k=kwargs: f(*a, **k)
                if arguments.compile:
                    compiled = torch.compile(case.eager)
                    try:
                        compiled(*args, **kwargs)
                        candidates["compiled"] = lambda f=compiled, a=args, k=kwargs: f(*a, **k)
                    except Exception as e:
                        print(
                            f"  torch.compile does not run {case.name}: {type(e).__name__}", file=sys.stderr
                        )
                with torch.no_grad():
                    found = in_turns(candidates, arguments.seconds)
                row = {
                    "operator": case.name,
                    "dtype": dtype,
                    "elements": size,
                    "threads": threads,
                    "ours µs": found["ours"] * 1e6,
                }
                row |= {f"over {n}": t / found["ours"] for n, t in found.items() if n != "ours"}
                rows.append(row)
                show(row)
    return rows


def table_node(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Chains of many nodes on one number: the difference of two lengths, so that what a run costs drops out."""
    library = arguments.library
    found = in_turns(
        {
            "custom 100": _chain("RectifiedLinear", "deployops", 100, 1, library),
            "custom 1100": _chain("RectifiedLinear", "deployops", 1100, 1, library),
            "Relu 100": _chain("Relu", "", 100, 1, library),
            "Relu 1100": _chain("Relu", "", 1100, 1, library),
        },
        arguments.seconds,
    )
    custom = (found["custom 1100"] - found["custom 100"]) * 1e6
    built_in = (found["Relu 1100"] - found["Relu 100"]) * 1e6
    rows = [
        {"node": "ours", "ns": custom},
        {"node": "Relu", "ns": built_in},
        {"node": "ratio", "ns": custom / built_in},
    ]
    for row in rows:
        show(row)
    return rows


def table_build(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "deployops.cli", "compile", "-o", "lib", "--json"]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"DEPLOYOPS_CACHE": str(Path(folder) / "cache")}
        for name in ("clean", "nothing changed"):
            start = time.perf_counter()
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, check=True
            )
            seconds = time.perf_counter() - start
            library = Path(folder) / json.loads(done.stdout)["library"]
            rows.append({"build": name, "seconds": seconds, "MB": library.stat().st_size / 1e6})
            show(rows[-1])
    return rows


# --- output ------------------------------------------------------------------------------------------------------


def text(value: Any) -> str:
    return (
        f"{value:.2f}"
        if isinstance(value, float) and value < 100
        else f"{value:.0f}"
        if isinstance(value, float)
        else str(value)
    )


def show(row: dict[str, Any]) -> None:
    print("  " + "  ".join(f"{k} {text(v)}" for k, v in row.items()), file=sys.stderr, flush=True)


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(k for row in rows for k in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(text(row.get(c, "")) for c in columns) + " |" for row in rows]
    return "\n".join(lines)


def main() -> None:
    names = list(dict.fromkeys(case.op_name for case in CASES))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=TABLES)
    parser.add_argument("--ops", nargs="*", choices=names, default=names)
    parser.add_argument("--dtypes", nargs="*", default=["float32", "float16"])
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--seconds", type=float, default=0.5, help="per candidate")
    parser.add_argument("--library", help="default: that of the shipped operators, compiled now")
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    arguments.library = arguments.library or ort_library()
    levels = CpuLibrary(arguments.library).levels
    print(f"onnxruntime {ort.__version__}, torch {torch.__version__}, kernels: {levels[-1]}\n")
    for name in arguments.tables:
        print(f"{name}:", file=sys.stderr)
        rows = globals()[f"table_{name}"](arguments)
        print(f"### {name}\n\n{markdown(rows)}\n", flush=True)


if __name__ == "__main__":
    main()
