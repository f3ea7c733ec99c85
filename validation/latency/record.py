"""What a latency measurement found, as data. Every number that depends on the clock is here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["LatencyRecord", "ModuleTime", "NodeTime", "Profile", "Ratio", "Roofline", "Timing"]


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one candidate on one sample, in milliseconds.

    Attributes:
        candidate: backend, "pytorch" for the original.
        times: of every measured run in order, the warm-up left out.
        first: the very first call, which is often many times slower.
        load: opening the file, compiling, building; belongs to no run.
        throughput: runs per second at the median.
        outliers: runs beyond the far fence (Tukey, 3 times the interquartile range).
        unstable: why no number here is to be trusted; empty where it is.
        phases: medians of phases that were timed apart ("h2d", "compute", "d2h"), where a device has them.
        device: what it ran on: "cpu", "cuda:0". `threads`: of its own pools, where it told them.
        warmup: the first runs of the warm-up in order, `first` in front; of `warmup_runs`. They are in no other number.
        settled: the warm-up ended because the times had become stable, not because its time was up.
        spread: interquartile range over the median.
    """

    candidate: str
    sample: str
    times: tuple[float, ...]
    first: float
    median: float
    p90: float
    p99: float
    mean: float
    throughput: float
    warmup_runs: int = 0
    load: float | None = None
    outliers: int = 0
    drift: float = 0.0
    unstable: str = ""
    phases: dict[str, float] = field(default_factory=dict)
    device: str = "cpu"
    threads: int | None = None
    warmup: tuple[float, ...] = ()
    settled: bool = True
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class Ratio:
    """Candidate over what it is compared with, medians; below 1 the candidate is faster.

    Attributes:
        against: "pytorch", or "baseline" for the same candidate in an earlier report.
        low, high: bootstrap confidence interval of the ratio, at `confidence`.
        verdict: "passed" or "failed" against the user's limit, "not checked" where it is unstable, "none" without a limit.
        unstable: why the number is not to be trusted, so that no verdict is drawn from it; empty where it is.
        block: rounds that the bootstrap drew together, because neighbours resemble each other.
    """

    candidate: str
    against: str
    sample: str
    ratio: float
    low: float
    high: float
    confidence: float = 0.95
    verdict: Literal["passed", "failed", "not checked", "none"] = "none"
    reason: str = ""
    unstable: str = ""
    block: int = 1


@dataclass(frozen=True, slots=True)
class Roofline:
    """The floor that memory and arithmetic set.

    Attributes:
        subject: node or operator; empty for the whole model.
        bytes, flops: moved and computed at least, from the graph's shapes.
        floor: milliseconds.
        share: floor over measured median, 1.0 at the limit; None where it was not measured.
        machine: empty for this one, measured; else the name of the device, and the floor is *predicted*.
        op_type: of the node; empty for the whole model.
        source: where a predicted floor's bandwidth and peak were published; what is not in the numbers.
    """

    candidate: str
    sample: str
    subject: str
    bytes: int
    flops: int
    floor: float
    share: float | None = None
    bound: Literal["memory", "compute"] = "memory"
    machine: str = ""
    op_type: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class NodeTime:
    """Where the time goes: one node of the graph, or one operator of torch.

    Attributes:
        time: milliseconds per run. `share` of the whole run.
        custom: a custom operator.
        cuts: what the runtime does not fuse because of this node.
        module: path of the user's module, where it is known.
        calls: per run.
    """

    name: str
    op_type: str
    time: float
    share: float
    custom: bool = False
    cuts: str = ""
    module: str = ""
    calls: float = 1.0


@dataclass(frozen=True, slots=True)
class ModuleTime:
    """A module of the user's model in the profiles of a sample: candidate -> milliseconds per run, submodules included.

    `module` is empty for the whole model. `custom`: a custom operator runs in it. A candidate that is not in `times` has
    no node of its own there: it was fused into that of another module.
    """

    sample: str
    module: str
    times: dict[str, float]
    custom: bool = False


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of one candidate, the costliest first.

    Attributes:
        total: milliseconds of a whole run under the profiler. `overhead`: what no node accounts for.
        runs: whose medians these are, the first ones left out.
    """

    candidate: str
    sample: str
    nodes: tuple[NodeTime, ...]
    total: float
    overhead: float = 0.0
    runs: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LatencyRecord:
    """Everything measured about time.

    Attributes:
        fingerprint: machine, processor, threads, versions: only equal ones may be compared.
        threads: of every candidate.
        copy_bandwidth: bytes per second that a plain copy reached here. `peak_flops` of a matrix product, float32.
        bandwidths: "copy, 1048576 bytes" -> bytes per second, for what stays in a cache. `peaks`: dtype -> flops.
        modules: the profiles joined by the user's modules.
        reference: the candidate that the ratios are against.
        notes: what the reader should know (oversubscribed pools, spinning, frequency).
    """

    threads: int
    timings: tuple[Timing, ...]
    ratios: tuple[Ratio, ...] = ()
    rooflines: tuple[Roofline, ...] = ()
    profiles: tuple[Profile, ...] = ()
    copy_bandwidth: float | None = None
    peak_flops: float | None = None
    fingerprint: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    modules: tuple[ModuleTime, ...] = ()
    bandwidths: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)
    reference: str = "pytorch"
