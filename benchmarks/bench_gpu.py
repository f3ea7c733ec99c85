"""The CUDA kernels on a GPU: right first, then how fast. One command, under eight minutes; writes docs/gpu-results.md.

    python benchmarks/bench_gpu.py                     # measures; exit code 3 where there is no GPU
    python benchmarks/bench_gpu.py --build lib         # only compiles the kernels, anywhere, for a GPU machine without nvcc
    python benchmarks/bench_gpu.py --library lib/libdeployops_bench_gpu.so
    python benchmarks/bench_gpu.py --dry-run           # the same code on the emulated device, tiny; exit code 3
    python benchmarks/bench_gpu.py --predict           # only the predicted floors in docs/gpu-results.md

Method: each candidate is timed alone between two CUDA events, on a device that is idle and an L2 cache that was just
overwritten; candidates take turns; the median counts. "Copy" is a device-to-device copy that reads and writes as many
bytes as the operator has to (each input read once, each output written once), measured in the same turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from gpu_floors import size_of, sources, table
from gpu_launchers import CudaLauncher, EmulatedLauncher, Launcher, build
from ort_cases import CASES, OPS, Case

from deployops.errors import DeployOpsError, NotCheckedError, UsageError
from deployops.native.archs import read_archs
from deployops.native.cuda_library import DEFAULT_ARCHS, cuda_tools
from deployops.symbolic import dtypes
from deployops.symbolic.checking.error_budget import faults
from deployops.symbolic.checking.sample_runs import SampleRun, map_tensors, sound_runs
from deployops.symbolic.checking.tally import Tally
from deployops.symbolic.operator import Operator

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "gpu-results.md"
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
TARGET = 0.85  # of a copy's speed
# ‖out − exact‖ / ‖exact‖ at full size: a few roundings of the dtype
LARGE_ERROR = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
TINY = {"attention": 8 * 16 * 64}
MEASURED = ("<!-- measured: written by benchmarks/bench_gpu.py -->", "<!-- end of measured -->")
NOTHING = "Nothing yet: this has not run on a GPU."


@dataclass
class Bench:
    """A run: what launches, how long it may take, what was found."""

    launcher: Launcher
    ops: dict[str, Operator]
    tiny: bool
    compiled: bool  # measure torch.compile
    deadline: float
    lines: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    @property
    def device(self) -> str:
        return self.launcher.device

    def late(self, reserve: float = 0.0) -> bool:
        return time.perf_counter() + reserve > self.deadline

    def say(self, *lines: str) -> None:
        self.lines += lines
        print(*lines, sep="\n", flush=True)

    def synchronize(self) -> None:
        if self.launcher.asynchronous:
            torch.cuda.synchronize()

    def draw(self, case: Case, dtype: torch.dtype) -> tuple[list[Any], dict[str, Any]]:
        torch.manual_seed(0)
        with torch.device(self.device):
            return case.draw(TINY.get(case.op_name, 1024) if self.tiny else size_of(case), dtype)


# --- timing ------------------------------------------------------------------------------------------------------


def timed(bench: Bench, candidates: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Medians in milliseconds, cold L2; the candidates take turns. One that fails is left out, and told."""
    runs: dict[str, Callable[[], float]] = {}
    for name, call in candidates.items():
        try:
            for _ in range(1 if bench.tiny else 3):
                call()
            bench.synchronize()
        except (DeployOpsError, RuntimeError) as error:
            bench.failures.append(f"{name}: {' '.join(str(error).split())[:200]}")
            continue
        runs[name] = timer(bench, call)
    times: dict[str, list[float]] = {name: [] for name in runs}
    begun = time.perf_counter()
    rounds, most_s = (2, 1.0) if bench.tiny else (60, 1.5)
    for k in range(rounds):
        for name, run in runs.items():
            times[name].append(run())
        if k >= 9 and time.perf_counter() - begun > most_s:
            break
    return {name: statistics.median(values) for name, values in times.items()}


def timer(bench: Bench, call: Callable[[], object]) -> Callable[[], float]:
    if bench.launcher.asynchronous:
        from deployops.validation.latency.cuda import cuda, event_timed

        return event_timed(call, cuda(), "cold")

    def once() -> float:
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e3

    return once


# --- parity ------------------------------------------------------------------------------------------------------


def parity(bench: Bench) -> None:
    """Every operator, dtype, sample and tactic against the reference in float64, within the budget of all checks here."""
    bench.say("", "### Parity with float64", "", "| operator | runs | tactics | |", "|---|---:|---:|---|")
    for name, op in bench.ops.items():
        tally = Tally(op.name, "CUDA")
        tactics = bench.launcher.tactics(op)
        found: list[str] = []
        count = 0
        seen: dict[str, int] = {}
        for run, by_torch in sound_runs(op, tally):
            seen[run.dtype] = seen.get(run.dtype, 0) + 1
            if bench.tiny and seen[run.dtype] > 2:
                continue
            exact = run.exact()
            for tactic in range(tactics):
                fault = launched_fault(bench, run, by_torch, exact, tactic)
                found += [fault] if fault else []
                count += 1
            if len(found) > 5:
                break
        bench.failures += found
        told = f"**failed**: {found[0]}" if found else "passed"
        bench.say(f"| {name} | {count} | {tactics} | {told} |")


def launched_fault(
    bench: Bench, run: SampleRun, by_torch: Sequence[Any], exact: Sequence[Any], tactic: int
) -> str:
    args, kwargs = run.copies(lambda t: t.to(bench.device))
    try:
        launch = bench.launcher.prepared(run.op, args, kwargs, tactic)
        got = [t.cpu() for t in launch()]
    except (DeployOpsError, RuntimeError) as error:
        return f"{run.op.name}, {run}, tactic {tactic}: {error}"
    for k, fault in enumerate(faults(run, got, by_torch, exact)):
        if fault:
            return f"{run.op.name}, {run}, tactic {tactic}, output {k}: {fault}"
    return ""


def large_fault(bench: Bench, case: Case, args: list[Any], kwargs: dict[str, Any], tactic: int) -> str:
    """The outputs at full size against the reference in float64 on the same device, poisoned before."""
    dtype = args[0].dtype
    launch = bench.launcher.prepared(case.op, args, kwargs, tactic)
    for t in launch() if bench.launcher.asynchronous else ():
        t.fill_(float("nan"))
    got = launch()
    wide = [map_tensors(a, lambda t: t.double() if t.is_floating_point() else t) for a in args]
    want = case.op.reference(*wide, **kwargs)
    for k, (a, b) in enumerate(zip(got, want if isinstance(want, tuple) else (want,), strict=True)):
        error = float((a.double() - b).norm() / b.norm())
        if not error <= LARGE_ERROR[dtype]:
            return f"{case.name} in {dtypes.name_of(dtype)}, tactic {tactic}, output {k}: ‖error‖ / ‖exact‖ = {error:.1e}"
    return ""


# --- speed -------------------------------------------------------------------------------------------------------


def speed(bench: Bench) -> None:
    """Each operator at 64M elements: against a copy of as many bytes, against torch."""
    bench.say(
        "", "### At 64M elements", "",
        f"Share: the time of the copy over that of the best tactic; {TARGET} is the target. attention: 8 heads, 4,096 keys, "
        "width 64; it is not bound by memory.", "",
        "| operator | dtype | MB | best tactic | ms | tactic 0, ms | GB/s | share of copy | eager, ms | torch.compile, ms "
        "| torch's own, ms |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    )  # fmt: skip
    for case in (c for c in CASES if c.op_name in bench.ops):
        for dtype in DTYPES:
            if bench.late():
                bench.unchecked.append(f"{case.name} in {dtypes.name_of(dtype)}: the time was up")
                continue
            try:
                bench.say(row(bench, case, dtype))
            except (DeployOpsError, RuntimeError) as error:
                bench.failures.append(f"{case.name} in {dtypes.name_of(dtype)}: {str(error)[:200]}")
            if bench.launcher.asynchronous:
                torch.cuda.empty_cache()


def row(bench: Bench, case: Case, dtype: torch.dtype) -> str:
    args, kwargs = bench.draw(case, dtype)
    launcher, op = bench.launcher, case.op
    names = range(launcher.tactics(op))
    calls: dict[str, Callable[[], object]] = {
        f"tactic {t}": launcher.prepared(op, args, kwargs, t) for t in names
    }
    outputs = launcher.prepared(op, args, kwargs, 0)()
    bench.failures += [fault for t in names if (fault := large_fault(bench, case, args, kwargs, t))]
    moved = sum(t.numel() * t.element_size() for t in [*args, *outputs] if isinstance(t, torch.Tensor))
    calls["copy"] = copy_of(bench, moved)
    calls |= torch_calls(bench, case, args, kwargs, dtype)
    times = timed(bench, calls)
    tactics = {t: times[f"tactic {t}"] for t in names if f"tactic {t}" in times}
    if not tactics:
        return f"| {case.name} | {dtypes.name_of(dtype)} | {moved / 1e6:.0f} | failed | | | | | | | |"
    best = min(tactics, key=lambda t: tactics[t])
    share = times["copy"] / tactics[best]
    # on the emulated device times say nothing; attention is not bound by memory
    if bench.launcher.asynchronous and case.op_name != "attention" and share < TARGET:
        bench.failures.append(
            f"{case.name} in {dtypes.name_of(dtype)}: {share:.2f} of a copy's speed; {TARGET} is the target"
        )
    others = [f"{times[n]:.3f}" if n in times else "–" for n in ("eager", "compiled", *case.also)]
    own = others[2] if len(others) > 2 else "–"
    return (
        f"| {case.name} | {dtypes.name_of(dtype)} | {moved / 1e6:.0f} | {best} | {tactics[best]:.3f} | "
        f"{tactics.get(0, float('nan')):.3f} | {moved / tactics[best] / 1e6:.0f} | {share:.2f} | {others[0]} | {others[1]} "
        f"| {own} |"
    )


def copy_of(bench: Bench, moved: int) -> Callable[[], object]:
    """A copy that reads and writes `moved` bytes together."""
    source = torch.randint(0, 255, (max(moved // 2, 1),), dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def torch_calls(
    bench: Bench, case: Case, args: list[Any], kwargs: dict[str, Any], dtype: torch.dtype
) -> dict[str, Callable[[], object]]:
    eager = case.eager
    assert eager is not None

    def on_device(call: Callable[..., Any]) -> Callable[[], object]:
        def run() -> object:
            with torch.device(bench.device), torch.no_grad():
                return call(*args, **kwargs)

        return run

    found = {"eager": on_device(eager)} | {name: on_device(call) for name, call in case.also.items()}
    # a compilation takes seconds: for two dtypes, and while there is time
    if bench.compiled and dtype != torch.bfloat16 and not bench.late(reserve=90):
        torch._dynamo.reset()
        found["compiled"] = on_device(torch.compile(eager, backend="eager" if bench.tiny else "inductor"))
    return found


def attention(bench: Bench) -> None:
    """Against torch's scaled_dot_product_attention, over lengths and widths."""
    from ort_cases import torch_sdpa

    if "attention" not in bench.ops:
        return
    bench.say(
        "", "### attention against torch's SDPA", "",
        "| batch · heads · length · width | causal | dtype | best tactic | ms | SDPA, ms | SDPA / ours |",
        "|---|---|---|---:|---:|---:|---:|",
    )  # fmt: skip
    op, launcher = OPS["attention"], bench.launcher
    shapes = (
        [(1, 2, 16, 16)]
        if bench.tiny
        else [(1, 8, 1024, 64), (4, 16, 1024, 64), (4, 16, 2048, 128), (1, 32, 4096, 128)]
    )
    for shape in shapes:
        for causal in (False, True):
            for dtype in DTYPES:
                if bench.late():
                    bench.unchecked.append(f"attention {shape}: the time was up")
                    continue
                torch.manual_seed(0)
                q, k, v = (torch.randn(shape, device=bench.device).to(dtype) for _ in range(3))
                kwargs: dict[str, Any] = {"is_causal": True} if causal else {}
                calls: dict[str, Callable[[], object]] = {
                    str(t): launcher.prepared(op, [q, k, v], kwargs, t) for t in range(launcher.tactics(op))
                }
                calls["sdpa"] = lambda q=q, k=k, v=v, causal=causal: torch_sdpa(q, k, v, causal)
                times = timed(bench, calls)
                ours = {t: ms for t, ms in times.items() if t != "sdpa"}
                if not ours or "sdpa" not in times:
                    continue
                best = min(ours, key=lambda t: ours[t])
                bench.say(
                    f"| {' · '.join(map(str, shape))} | {'yes' if causal else 'no'} | {dtypes.name_of(dtype)} | {best} | "
                    f"{ours[best]:.3f} | {times['sdpa']:.3f} | {times['sdpa'] / ours[best]:.2f} |"
                )


# --- runtimes ----------------------------------------------------------------------------------------------------


def runtimes(bench: Bench) -> None:
    """Each operator as a node, in ONNX Runtime's CUDA provider and in TensorRT: parity and latency, by `validate`."""
    missing = {"onnxruntime-cuda": cuda_provider_missing()} | {
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
                plugins = plugin_library(bench, Path(folder)) if backend.startswith("tensorrt") else []
            except DeployOpsError as error:
                bench.unchecked.append(f"{backend}: {error}")
                continue
            for name in bench.ops:
                if bench.late():
                    bench.unchecked.append(f"{name} in {backend}: the time was up")
                    continue
                try:
                    bench.say(validated(bench, name, backend, plugins, Path(folder)))
                except DeployOpsError as error:
                    bench.failures.append(f"{name} in {backend}: {str(error)[:200]}")
    if "onnxruntime-cuda" in there and "relu" in bench.ops:
        node_overhead(bench)


def plugin_library(bench: Bench, folder: Path) -> list[Path]:
    """The plugins of all operators for this GPU; compiled once."""
    from deployops.trt_plugins.library import NAME, compile_plugins

    if not (folder / NAME).is_file():
        compile_plugins(archs=archs_of(None), out=folder)
    return [folder / NAME]


def cuda_provider_missing() -> str:
    try:
        import onnxruntime
    except ImportError:
        return "not installed"
    has = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    return "" if has else "this build of ONNX Runtime has no CUDAExecutionProvider"


def validated(bench: Bench, name: str, backend: str, plugins: Sequence[Path], folder: Path) -> str:
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


def node_overhead(bench: Bench) -> None:
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


# --- the command -------------------------------------------------------------------------------------------------


def heading() -> Iterator[str]:
    query = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,persistence_mode"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader", "--id=0"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    properties = torch.cuda.get_device_properties(0)
    yield f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, torch {torch.__version__}."
    if said:
        yield f"nvidia-smi, before: {query} = {said}."


def measured(bench: Bench) -> None:
    start = time.perf_counter()
    for section in (parity, speed, attention, runtimes):
        section(bench)
    for title, found in (("Failed", bench.failures), ("Not checked", bench.unchecked)):
        if found:
            bench.say("", f"### {title}", "", *(f"- {text}" for text in dict.fromkeys(found)))
    bench.say("", f"{time.perf_counter() - start:.0f} s in all.")


def write(block: Iterable[str] | None) -> None:
    """Write docs/gpu-results.md; the measured part is kept where None is given."""
    before = RESULTS.read_text(encoding="utf-8") if RESULTS.is_file() else ""
    kept = before.partition(MEASURED[0])[2].partition(MEASURED[1])[0].strip() or NOTHING
    text = kept if block is None else "\n".join(block).strip()
    RESULTS.write_text(
        "\n".join(
            [
                "# CUDA kernels on GPUs",
                "",
                "Written by `python benchmarks/bench_gpu.py`, which measures, checks parity first, and takes under eight "
                "minutes on a machine with a GPU; `--predict` writes the second part alone.",
                "",
                "## Measured",
                "",
                MEASURED[0],
                "",
                text,
                "",
                MEASURED[1],
                "",
                "## Predicted",
                "",
                "*Predicted*, by no GPU: the least time that the bytes need at the bandwidth, and the operations at the "
                "peak rate, which NVIDIA published; milliseconds, the larger of both (c: that of the operations). Each "
                "input is read once and each output written once. A kernel that reaches the target of "
                f"{TARGET} of a copy's speed takes at least 1/{TARGET} of it, on a GPU whose copy reaches the published "
                "bandwidth. The floors of attention are those of matrix units; our kernel does its arithmetic on the "
                "ordinary cores, and its floor is far higher.",
                "",
                *table(),
                "",
                *sources(),
                "",
            ]
        ),
        encoding="utf-8",
    )


def archs_of(text: str | None) -> list[int]:
    if text:
        return list(read_archs(text))
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        return [10 * major + minor]
    return list(DEFAULT_ARCHS)


def chosen(options: argparse.Namespace) -> dict[str, Operator]:
    names = options.ops.split(",") if options.ops else list(OPS)
    if unknown := [name for name in names if name not in OPS]:
        raise UsageError(f"there is no operator {', '.join(unknown)}; there are {', '.join(OPS)}")
    return {name: OPS[name] for name in names}


def dry_run(options: argparse.Namespace) -> int:
    ops = chosen(options)
    operators = list(ops.values())
    bench = Bench(
        EmulatedLauncher(operators), ops, True, options.compile, time.perf_counter() + 60 * options.minutes
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            library = options.library or build(
                operators, cuda_tools(None, options.nvcc, archs_of(options.arch)), Path(folder), options.jobs
            )
            loaded = CudaLauncher(library, operators)
            counts = {op.name: (loaded.tactics(op), bench.launcher.tactics(op)) for op in operators}
            bench.failures += [f"{n}: {c} tactics" for n, c in counts.items() if c[0] != c[1]]
            print(f"compiled for CUDA and loaded: {len(counts)} operators")
        except NotCheckedError as error:
            bench.unchecked.append(f"compiling for CUDA: {error}")
        measured(bench)
    print("\nNot checked: everything above ran on the emulated device, and no time in it means anything.")
    return 1 if bench.failures else 3


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--build", type=Path, metavar="DIR")
    parser.add_argument("--library", type=Path)
    parser.add_argument("--ops", metavar="relu,softmax", help="these alone; nothing is written then")
    parser.add_argument("--arch", metavar="80,90")
    parser.add_argument("--nvcc")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    parser.add_argument("--minutes", type=float, default=7.5, help="begin nothing new after so many")
    options = parser.parse_args()
    if options.predict:
        write(None)
        return 0
    if options.build:
        print(
            build(
                list(chosen(options).values()),
                cuda_tools(None, options.nvcc, archs_of(options.arch)),
                options.build,
                options.jobs,
            )
        )
        return 0
    if options.dry_run:
        return dry_run(options)
    if not torch.cuda.is_available():
        print(
            "not checked: torch sees no GPU. --dry-run runs the same on the emulated device", file=sys.stderr
        )
        return 3
    end = time.perf_counter() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder:
        library = options.library or build(
            list(chosen(options).values()),
            cuda_tools(None, options.nvcc, archs_of(options.arch)),
            Path(folder),
            options.jobs,
        )
        bench = Bench(
            CudaLauncher(library, list(chosen(options).values())),
            chosen(options),
            False,
            options.compile,
            end,
        )
        bench.say(*heading())
        measured(bench)
    if not options.ops:
        write(bench.lines)
    return 1 if bench.failures else 3 if bench.unchecked else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DeployOpsError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
