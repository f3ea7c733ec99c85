"""Reports to render: one with everything in it, its numbers measured on arrays; and what strangers may put into one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from deployops.validation.latency.record import (
    LatencyRecord,
    ModuleTime,
    NodeTime,
    Profile,
    Ratio,
    Roofline,
    Timing,
)
from deployops.validation.parity.budget import Budget, derived, own_rtol
from deployops.validation.parity.metrics import Metrics, Tolerance, measure
from deployops.validation.record import (
    BackendRecord,
    Bisection,
    Cell,
    Culprit,
    FileRecord,
    Finding,
    Report,
    ValueRange,
)

SAMPLES = ("example", "batch=1", "batch=3, large", "batch=8, strided", "batch=64, tiny")
HOSTILE = (
    "<script>document.title='owned'</script>",
    "\"'><img src=x onerror=alert(1)>",
    "\x1b[2J\x1b]0;owned\x07 \u202egnp.exe\u202c \u200bzero\u2066\x00",
    "x" * 10_000,
    "]]></system-out><evil/><!-- & &amp; {{ 7 * 7 }} {% raw %}",
    "\udc80 lone",
    "日本語の層／出力 עברית",
)


def measured(
    error: float,
    seed: int,
    dtype: str = "float32",
    shape: tuple[int, ...] = (4, 16, 8),
    tolerance: Tolerance | None = None,
) -> Metrics:
    """What `measure` says of an array and the same one with an error of this relative size."""
    draw = np.random.default_rng(seed)
    want = draw.normal(size=shape)
    got = (want * (1 + error * draw.normal(size=shape))).astype(dtype)
    allowed = tolerance or Tolerance(4 * 2.0**-23, 1e-6)
    return measure(got, want.astype(dtype), want, tolerance=allowed)


def cell(
    sample: str, output: str, backend: str, verdict: str = "passed", error: float = 1e-7, reason: str = ""
) -> Cell:
    """A cell with measured numbers, judged as it is told."""
    seed = sum(map(ord, sample + output + backend))
    want = np.random.default_rng(seed).normal(size=(4, 16, 8))
    rounded = want.astype(np.float32)
    own = measure(rounded, rounded, want, rtol=own_rtol(np.float32))
    budget = derived(own, np.float32, "the original's own error against float64")
    metrics = measured(error, seed, tolerance=budget.tolerance())
    return Cell(sample, output, backend, verdict, reason, "float32", (4, 16, 8), metrics, budget)


def times(median: float, seed: int, runs: int = 240) -> tuple[float, ...]:
    """Skewed, as times are, with this very median."""
    drawn = np.random.default_rng(seed).lognormal(0, 0.06, runs)
    return tuple((drawn * (median / np.median(drawn))).tolist())


def timing(candidate: str, median: float, seed: int, sample: str = "example") -> Timing:
    taken = times(median, seed)
    ordered = sorted(taken)
    return Timing(
        candidate,
        sample,
        taken,
        first=median * 9,
        median=float(np.median(taken)),
        p90=ordered[int(0.9 * len(ordered))],
        p99=ordered[int(0.99 * len(ordered))],
        mean=float(np.mean(taken)),
        throughput=1e3 / float(np.median(taken)),
        warmup_runs=40,
        load=120.0,
        outliers=3,
    )


def latency() -> LatencyRecord:
    """Three candidates at one sample, with everything that a measurement may find."""
    nodes = tuple(
        NodeTime(f"/layers.{k}/{op}", op, t, t / 2.4, op == "SnakeBeta", cuts if op == "SnakeBeta" else "")
        for k, (op, t, cuts) in enumerate(
            (
                ("Conv", 1.1, ""),
                ("SnakeBeta", 0.6, "Conv and Relu are not fused across it"),
                ("MatMul", 0.4, ""),
                ("Softmax", 0.2, ""),
                ("Reshape", 0.02, ""),
            )
        )
    )
    timings = (
        timing("pytorch", 3.1, 1),
        timing("onnxruntime", 2.4, 2),
        replace(timing("tensorrt", 0.31, 3), unstable="the spread is 31 % of the median", load=None),
    )

    return LatencyRecord(
        threads=2,
        timings=timings,
        ratios=(
            Ratio("onnxruntime", "pytorch", "example", 2.4 / 3.1, 0.761, 0.79),
            Ratio("tensorrt", "pytorch", "example", 0.1, 0.08, 0.14, unstable="the spread is 31 %"),
            Ratio(
                "onnxruntime",
                "baseline",
                "example",
                1.12,
                1.08,
                1.17,
                verdict="failed",
                reason="12 % slower than the baseline; 5 % are allowed",
            ),
        ),
        rooflines=(
            Roofline("onnxruntime", "example", "", 44_000_000, 900_000_000, 1.1, 0.46, "compute"),
            Roofline("onnxruntime", "example", "acme::SnakeBeta", 8_400_000, 12_600_000, 0.42, 0.7, "memory"),
            Roofline(
                "onnxruntime", "example", "/layers.2/MatMul", 2_000_000, 400_000_000, 0.3, 0.75, "compute"
            ),
            Roofline("tensorrt", "example", "", 44_000_000, 900_000_000, 0.02, None, "memory", "NVIDIA A100"),
        ),
        profiles=(Profile("onnxruntime", "example", nodes, 2.4, 0.08),),
        modules=(
            ModuleTime("example", "layers.0", {"pytorch": 1.4, "onnxruntime": 1.1}),
            ModuleTime("example", "layers.1", {"pytorch": 0.9, "onnxruntime": 0.6}, custom=True),
        ),
        copy_bandwidth=20e9,
        peak_flops=1.3e12,
        fingerprint={"processor": "a processor", "onnxruntime": "1.32.0"},
        notes=("the processor's frequency was not fixed",),
    )


@pytest.fixture
def full_report() -> Report:
    """Every kind of thing a report may hold; it fails."""
    backends = ("onnxruntime", "onnxruntime, optimiser off", "torch.compile")
    errors = {"torch.compile": 1.5e-7}
    cells = [
        cell(s, o, b, error=errors.get(b, 1e-7))
        for b in backends
        for s in SAMPLES
        for o in ("logits", "features")
    ]
    bad = cell(
        "batch=3, large",
        "logits",
        "onnxruntime",
        "failed",
        3e-3,
        "497 of 512 elements out of budget: needs atol 0.0087, has 1e-06",
    )
    cells = [
        bad if (c.sample, c.output, c.backend) == (bad.sample, bad.output, bad.backend) else c for c in cells
    ]
    cells.append(Cell("batch=0", "*", "onnxruntime", "not checked", "the original does not run this sample"))
    culprit = Culprit(
        "/layers.3/act/Gelu",
        "Gelu",
        "",
        "/layers.3/act/Gelu_output_0",
        "layers.3.act",
        "net.py:41: x = F.gelu(x)",
        (ValueRange("/layers.3/fc/Gemm_output_0", "float32", (3, 64), -4.1, 3.9),),
        measured(3e-3, 5),
        Budget(1e-6, 0.0, 1e-6, "the reference's own error"),
        "497 of 512 elements out of budget",
    )
    return Report(
        "net.pt",
        "net.onnx",
        tuple(cells),
        (
            BackendRecord("onnxruntime", True, "", {"onnxruntime": "1.32.0"}),
            BackendRecord("onnxruntime, optimiser off", False, "", {"onnxruntime": "1.32.0"}),
            BackendRecord("torch.compile", False, "", {"torch": "2.13.0"}),
            BackendRecord("tensorrt", False, 'TensorRT is not installed: pip install "deployops[gpu]"'),
        ),
        (
            Finding(
                "variant",
                "note",
                "the file follows the tanh form of GELU, the original the erf form",
                "/layers.3/act/Gelu",
                "export again with approximate='none'",
            ),
            Finding(
                "crash",
                "failed",
                "the process of the backend was ended by signal 9",
                "torch.compile",
                "run it alone, with less memory in use elsewhere",
                "loading\ncompiling\nKilled",
            ),
        ),
        (
            Bisection(
                "batch=3, large",
                "logits",
                "onnxruntime",
                culprit,
                "every node before it stays within its budget",
                9,
                212,
                "PyTorch in float64, cast at each node",
            ),
        ),
        latency(),
        files=(FileRecord("net.onnx", 1_234_567, "ab" * 32), FileRecord("net.pt", 7_654_321, "cd" * 32)),
        environment={"torch": "2.13.0", "seed": 0, "threads": 2, "sweep": "quick"},
        notes=("no wider reference for acme::topk",),
    )


@pytest.fixture
def hostile_report(full_report: Report) -> Report:
    """Names from a stranger in every place a name can stand."""
    texts = iter(HOSTILE * 1000)

    def evil() -> str:
        return next(texts)

    cells = tuple(
        Cell(evil(), evil(), evil(), c.verdict, evil(), evil(), c.shape, c.metrics, c.budget, evil(), evil())
        for c in full_report.cells
    )
    taken = full_report.latency
    assert taken is not None
    return Report(
        evil(),
        evil(),
        cells,
        tuple(BackendRecord(evil(), False, evil(), {evil(): evil()}) for _ in HOSTILE),
        tuple(Finding(evil(), "note", evil(), evil(), evil(), evil() + "\n" + evil()) for _ in HOSTILE),
        tuple(
            Bisection(
                evil(),
                evil(),
                evil(),
                Culprit(
                    evil(),
                    evil(),
                    evil(),
                    evil(),
                    evil(),
                    evil(),
                    (ValueRange(evil(), evil(), (2,), float("nan"), float("-inf")),),
                    reason=evil(),
                ),
                evil(),
                1,
                2,
                evil(),
            )
            for _ in HOSTILE
        ),
        replace(
            taken,
            timings=tuple(
                replace(t, candidate=evil(), sample=evil(), unstable=evil(), phases={evil(): 1.0})
                for t in taken.timings
            ),
            ratios=tuple(
                replace(r, candidate=evil(), against=evil(), sample=evil(), reason=evil())
                for r in taken.ratios
            ),
            rooflines=tuple(
                replace(r, candidate=evil(), subject=evil(), machine=evil()) for r in taken.rooflines
            ),
            profiles=tuple(
                replace(
                    p,
                    candidate=evil(),
                    sample=evil(),
                    nodes=tuple(replace(n, name=evil(), op_type=evil(), cuts=evil()) for n in p.nodes),
                )
                for p in taken.profiles
            ),
            modules=tuple(replace(m, module=evil(), times={evil(): 1.0}) for m in taken.modules),
            fingerprint={evil(): evil()},
            notes=(evil(),),
        ),
        files=(FileRecord(evil(), 1, evil()),),
        environment={evil(): evil(), "nested": [evil(), {evil(): evil()}]},
        notes=HOSTILE,
    )


@pytest.fixture
def large_report() -> Report:
    """5,000 cells, and a name that fills a screen."""
    metrics = measured(1e-7, 1)
    budget = Budget(1e-6, 0.0, 1e-6, "test")
    cells = tuple(
        Cell(
            f"batch={k % 1250}",
            f"output{k // 1250}",
            "onnxruntime" if k % 2 else "tensorrt",
            "failed" if k % 501 == 500 else "passed",
            f"reason {k}" if k % 501 == 500 else "",
            "float32",
            (4, 16, 8),
            metrics,
            budget,
        )
        for k in range(5000)
    )
    return Report("m" * 300, "o.onnx", cells, (BackendRecord("onnxruntime", True), BackendRecord("tensorrt")))


@pytest.fixture
def make_cell() -> Callable[..., Cell]:
    return cell
