"""What a validation found, as data: frozen, typed, written to JSON and read back (`reports/json_file.py`).

Nothing here runs, judges or renders. A number that depends on the clock stands in `latency` and nowhere else, so that
two runs with one seed give the same bytes for everything else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from .latency.record import LatencyRecord
from .parity.budget import Budget
from .parity.judge import budget_used, scale_ulps
from .parity.metrics import Metrics

__all__ = [
    "FAILED",
    "NOT_CHECKED",
    "PASSED",
    "SCHEMA",
    "BackendRecord",
    "Bisection",
    "Cell",
    "Culprit",
    "FileRecord",
    "Finding",
    "Limits",
    "Report",
    "ValueRange",
    "Verdict",
]

SCHEMA = "deployops.validation/2"

Verdict = Literal["passed", "failed", "not checked"]
PASSED: Verdict = "passed"
FAILED: Verdict = "failed"
NOT_CHECKED: Verdict = "not checked"


@dataclass(frozen=True, slots=True)
class Cell:
    """The verdict on one output of one sample on one backend.

    Attributes:
        sample: label of the inputs, such as "batch=3" or "batch=3, large".
        output: name in the ONNX graph; "*" for all outputs, where none could be told apart.
        backend: name of the backend, such as "onnxruntime".
        verdict: "passed", "failed" or "not checked".
        reason: why, in the user's terms; may be empty for "passed".
        dtype, shape: of the output; empty where it is not known.
        metrics, budget: None where nothing could be measured.
        subject: the operator that was run alone ("acme::swish"), empty for the model.
        judged_as: how the output was judged: "values", "argmax", "topk:5", "set", "boxes", "gradient".
    """

    sample: str
    output: str
    backend: str
    verdict: Verdict
    reason: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    metrics: Metrics | None = None
    budget: Budget | None = None
    subject: str = ""
    judged_as: str = "values"

    @property
    def used(self) -> float:
        """The part of the budget that was used; above 1 is over."""
        return budget_used(self.metrics, self.budget)

    @property
    def scale_ulps(self) -> float:
        """The largest difference in ULPs of the output's largest value."""
        return scale_ulps(self.metrics, self.budget)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is no parity of a cell but that the reader must know.

    Attributes:
        kind: "training mode", "randomness", "nondeterminism", "layout", "scale", "integer overflow",
            "float16 overflow", "variant", "crash", "hang", "out of memory", "threads", "baseline", "slower", …
        severity: "failed" makes the report fail, "not checked" keeps it from passing, "note" informs.
        text: one or two sentences in the user's terms.
        where: node, output, sample or backend it is about.
        advice: what to do.
        log: the last lines of a process that ended, where there are any.
    """

    kind: str
    severity: Literal["failed", "not checked", "note"]
    text: str
    where: str = ""
    advice: str = ""
    log: str = ""


@dataclass(frozen=True, slots=True)
class BackendRecord:
    """A backend of the matrix: whether it ran, and with what.

    Attributes:
        required: the user named it, or gave an engine for it; where it is not checked the exit code is 3.
        missing: why it could not be used at all; empty where it was.
        versions: such as {"onnxruntime": "1.32.0", "provider": "CPUExecutionProvider"}.
        files: libraries and engines it used, by name, with their SHA-256.
    """

    name: str
    required: bool = False
    missing: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    files: tuple[FileRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file that took part: its name without folders, its size in bytes and its SHA-256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ValueRange:
    """What a value of the graph holds: extremes of its finite elements, and how many are not finite."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    low: float
    high: float
    nan: int = 0
    inf: int = 0


@dataclass(frozen=True, slots=True)
class Culprit:
    """A node whose output leaves its budget although its inputs are the reference's.

    Attributes:
        node, op_type, domain: of the ONNX node; `output` the value that differs.
        module: path of the user's module, such as "encoder.layers.3.act"; empty where unknown.
        line: "net.py:41 in forward: the code there", as recorded at tracing; empty where unknown.
        inputs: ranges of the node's inputs.
        metrics, budget: of `output`.
        among: the nodes of which it is one and the last, where no value between them can be told; empty where it is alone.
    """

    node: str
    op_type: str
    domain: str
    output: str
    module: str
    line: str
    inputs: tuple[ValueRange, ...]
    metrics: Metrics | None = None
    budget: Budget | None = None
    reason: str = ""
    among: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bisection:
    """Where an output begins to diverge.

    Attributes:
        sample, output, backend: the failed cell that was looked into.
        culprit: None where no single node explains it; `text` says what was found instead.
        runs: of the backend.
        nodes: of the graph.
        reference: what the intermediate values were held against, in words.
    """

    sample: str
    output: str
    backend: str
    culprit: Culprit | None
    text: str
    runs: int
    nodes: int
    reference: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What the user set. None: derived, or not judged.

    Attributes:
        atol, rtol: instead of the derived budget.
        max_slowdown: candidate's median over the original's may not exceed it, beyond its confidence interval.
        min_speedup: the original's median over the candidate's must reach it.
        max_regression: the same backend against the baseline, 0.05 for 5 %.
    """

    atol: float | None = None
    rtol: float | None = None
    max_slowdown: float | None = None
    min_speedup: float | None = None
    max_regression: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What a validation found.

    Attributes:
        model, onnx: names of what was compared.
        cells: in the order of the runs.
        backends: every backend of the matrix, those that could not be used included.
        findings: what is no cell.
        bisections: where `--bisect` looked.
        latency: None where it was not measured.
        limits: the user's own; they make the report say so.
        files: what took part.
        environment: versions, threads, seed, sweep: what to repeat it with.
        notes: what the reader should know besides.
    """

    model: str
    onnx: str
    cells: tuple[Cell, ...]
    backends: tuple[BackendRecord, ...] = ()
    findings: tuple[Finding, ...] = ()
    bisections: tuple[Bisection, ...] = ()
    latency: LatencyRecord | None = None
    limits: Limits = field(default_factory=Limits)
    files: tuple[FileRecord, ...] = ()
    environment: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    schema: str = SCHEMA

    # The verdict and its renderings are one call away; they live in verdict.py and reports/.

    @property
    def verdict(self) -> Verdict:
        """Over everything: see `verdict.overall`."""
        from .verdict import overall

        return overall(self)

    @property
    def exit_code(self) -> int:
        """0 passed, 1 failed, 3 something required was not checked."""
        from .verdict import exit_code

        return exit_code(self)

    def text(self) -> str:
        """A table for a terminal, worst first."""
        from .reports.terminal import text

        return text(self)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: see `reports.json_file`."""
        from .reports.json_file import to_dict

        return to_dict(self)
