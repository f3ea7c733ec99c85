"""Measure candidates in one interleaved run, and say what can be said of their times and ratios.

A candidate is a function that runs once and returns its milliseconds: it may have its own clock, process and device.
"""

from __future__ import annotations

import gc
import statistics as plain
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from .device import PhasedCandidate, Phases
from .interleaving import orders
from .record import LatencyRecord, Ratio, Timing
from .statistics import CONFIDENCE, FEWEST_RUNS, drift, ratio_interval, summary
from .surroundings import Observation, Observer
from .warm_up import warmed_up

__all__ = ["measure", "merged", "ratio_of", "timing_of"]

Candidate = Callable[[], float]

# Spread of the middle half over the median, and drift of the second half's median, beyond which one candidate's number
# is not stable. Ratios are judged by themselves: what all candidates have in common cancels there.
WIDEST_SPREAD = 0.25
WIDEST_DRIFT = 0.15
# High over low end of a ratio's interval, its drift, and rounds without memory that it must be worth.
WIDEST_INTERVAL = 1.25
WIDEST_RATIO_DRIFT = 0.1
FEWEST_EFFECTIVE = 20
ALIKE = 0.4  # part of the rounds that must be lost to memory before that is called instability
# Objects that may pile up while the garbage collector is off.
_MOST_GARBAGE = 100_000


def measure(
    candidates: Mapping[str, Candidate],
    sample_label: str,
    *,
    threads: int,
    reference: str = "pytorch",
    references: Mapping[str, str | None] | None = None,
    loads: Mapping[str, float] | None = None,
    pools: Mapping[str, int] | None = None,
    devices: Mapping[str, str] | None = None,
    fingerprint: Mapping[str, str] | None = None,
    observers: Sequence[Observer] = (),
    warmup_s: float = 0.1,
    most_warmup_s: float = 3.0,
    seconds: float = 0.5,
    runs: int = 30,
    most_runs: int = 5_000,
    most_seconds: float = 20.0,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> LatencyRecord:
    """Times of all candidates on one sample, and the ratio of each to the reference.

    The warm-up is for this sample alone: call `measure` for each shape. Then rounds, in which each candidate runs once,
    in changing order: at least `runs` of them and `seconds`, and none begins after `most_seconds` or `most_runs`.

    Args:
        candidates: name -> function that runs once and returns milliseconds. `PhasedCandidate` tells its phases too.
        threads: of each candidate's pools, recorded; that they were set is the caller's matter.
        reference: name of the candidate that the ratios are against; without it there are no ratios.
        references: another one for some candidates, as what ran on a GPU is held against what ran there; None: no ratio.
        loads: milliseconds of opening, compiling, building; in no other number.
        pools: threads that the candidates themselves say they have.
        devices: what each runs on; "cpu" where it says nothing.
        observers: look around while it is measured, and say what is not to be trusted.
        seed: of the bootstrap.
        clock: seconds; for the limits only, the candidates have their own.

    A candidate whose first call fails has a ratio without a number, which says so: no limit passes by it. What fails
    later ends the measurement.

    Raises:
        ValueError: no candidates.
        Whatever the candidates raise, where none is left.
    """
    with _no_collection():
        first, failed = _first_calls(candidates)
        names, calls = list(first), [candidates[name] for name in first]
        square = orders(len(calls))
        times: list[list[float]] = [[] for _ in calls]
        warm = warmed_up(
            calls,
            list(first.values()),
            seconds=warmup_s,
            most_seconds=max(0.0, min(most_warmup_s, most_seconds)),
            clock=clock,
        )
        before = [len(c.runs) if isinstance(c, PhasedCandidate) else 0 for c in calls]
        for observer in observers:
            observer.begin()
        start, rounds = clock(), 0
        while rounds < most_runs and (rounds < runs or clock() - start < seconds):
            if rounds >= 3 and clock() - start > most_seconds:
                break
            for k in square[rounds % len(square)]:
                times[k].append(calls[k]())
            if gc.get_count()[0] > _MOST_GARBAGE:
                gc.collect()
            rounds += 1
        seen = [observer.end() for observer in observers]
    timings = []
    for k, (name, call) in enumerate(zip(names, calls, strict=True)):
        device, phases = (devices or {}).get(name, "cpu"), {}
        if isinstance(call, PhasedCandidate):
            device, phases = call.device.name, _medians(call.runs[before[k] :])
        timings.append(
            timing_of(
                name,
                sample_label,
                times[k],
                warmup=warm.times[k],
                warmup_runs=warm.runs,
                settled=warm.settled[k],
                load=(loads or {}).get(name),
                phases=phases,
                device=device,
                threads=(pools or {}).get(name),
            )
        )
    timings = [_observed(t, seen) for t in timings]
    by_name = dict(zip(names, timings, strict=True))
    against = {name: (references or {}).get(name, reference) for name in (*by_name, *failed)}
    ratios = []
    for name, timing in by_name.items():
        other = against[name]
        if other is not None and other != name and other in by_name:
            ratio = ratio_of(timing, by_name[other], seed=seed)
            ratios.append(_undecided(ratio, (timing.device, by_name[other].device), seen))
    ratios += [
        Ratio(name, other, sample_label, 0.0, 0.0, 0.0, unstable=f"not measured: {why}")
        for name, why in failed.items()
        if (other := against[name]) is not None and other != name
    ]
    return LatencyRecord(
        threads=threads,
        timings=tuple(timings),
        ratios=tuple(ratios),
        fingerprint=dict(fingerprint or {}),
        notes=(
            *(f"latency of {name} at {sample_label} not measured: {why}" for name, why in failed.items()),
            *_unsettled(timings),
            *(note for observation in seen for note in observation.notes),
        ),
        reference=reference,
    )


def _observed(timing: Timing, seen: Sequence[Observation]) -> Timing:
    """What surrounded the runs says more than their spread: it comes first."""
    why = next((o.unstable for o in seen if o.unstable and o.device in ("", timing.device)), "")
    return replace(timing, unstable=why) if why else timing


def _undecided(ratio: Ratio, devices: Sequence[str], seen: Sequence[Observation]) -> Ratio:
    why = next((o.undecided for o in seen if o.undecided and o.device in ("", *devices)), "")
    return replace(ratio, unstable=why) if why else ratio


def _first_calls(candidates: Mapping[str, Candidate]) -> tuple[dict[str, float], dict[str, str]]:
    """Milliseconds of each first call, and why there is none."""
    first: dict[str, float] = {}
    failed: dict[str, str] = {}
    last: Exception = ValueError("no candidates")
    for name, call in candidates.items():
        try:
            first[name] = call()
        except Exception as error:  # noqa: PERF203 - a runtime's errors share no base
            last = error
            failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if not first:
        raise last
    return first, failed


def timing_of(
    candidate: str,
    sample: str,
    times: Sequence[float],
    *,
    warmup: Sequence[float] = (),
    warmup_runs: int | None = None,
    settled: bool = True,
    load: float | None = None,
    phases: Mapping[str, float] | None = None,
    device: str = "cpu",
    threads: int | None = None,
) -> Timing:
    """The summary of a measured series, the warm-up apart. Raises ValueError for an empty series."""
    found = summary(times)
    unstable = ""
    if len(times) < FEWEST_RUNS:
        unstable = f"only {len(times)} runs"
    elif found.spread > WIDEST_SPREAD:
        unstable = f"the middle half of the runs spreads over {found.spread:.0%} of the median"
    elif abs(found.drift) > WIDEST_DRIFT:
        unstable = f"the second half of the runs is {found.drift:+.0%} against the first"
    return Timing(
        candidate=candidate,
        sample=sample,
        times=tuple(float(t) for t in times),
        first=float(warmup[0]) if warmup else float(times[0]),
        median=found.median,
        p90=found.p90,
        p99=found.p99,
        mean=found.mean,
        throughput=1e3 / found.median if found.median else 0.0,
        warmup_runs=len(warmup) if warmup_runs is None else warmup_runs,
        load=load,
        outliers=found.outliers,
        drift=found.drift,
        unstable=unstable,
        phases=dict(phases or {}),
        device=device,
        threads=threads,
        warmup=tuple(float(t) for t in warmup),
        settled=settled,
        spread=found.spread,
    )


def ratio_of(candidate: Timing, against: Timing, *, confidence: float = CONFIDENCE, seed: int = 0) -> Ratio:
    """The ratio of two timings of one interleaved run, its interval, and why it is not to be trusted, if so."""
    rounds = min(len(candidate.times), len(against.times))
    ours, theirs = candidate.times[:rounds], against.times[:rounds]
    label = (candidate.candidate, against.candidate, candidate.sample)
    if min(*ours, *theirs) <= 0:
        return Ratio(*label, 0.0, 0.0, 0.0, confidence, unstable="a run took no time that the clock can tell")
    found = ratio_interval(ours, theirs, confidence=confidence, seed=seed)
    moved = drift([a / b for a, b in zip(ours, theirs, strict=True)])
    unstable = ""
    if rounds < FEWEST_RUNS:
        unstable = f"only {rounds} rounds"
    elif abs(moved) > max(WIDEST_RATIO_DRIFT, 2 * (found.high / found.low - 1)):
        unstable = f"the ratio in the second half of the rounds is {moved:+.0%} against the first"
    elif found.high > WIDEST_INTERVAL * found.low:
        unstable = f"the interval is too wide: {found.low:.3g} to {found.high:.3g}"
    elif found.effective < FEWEST_EFFECTIVE and found.effective < ALIKE * rounds:
        unstable = f"neighbouring rounds resemble each other: {rounds} are worth {found.effective:.0f}. Measure for longer"
    return Ratio(*label, found.ratio, found.low, found.high, confidence, unstable=unstable, block=found.block)


def merged(records: Sequence[LatencyRecord]) -> LatencyRecord:
    """The records of several samples as one; all from one process with one setting.

    Raises:
        ValueError: none, or of different thread counts or references.
    """
    if not records:
        raise ValueError("no records")
    first = records[0]
    if any((r.threads, r.reference) != (first.threads, first.reference) for r in records):
        raise ValueError("records of different settings")
    measured = next((r for r in records if r.copy_bandwidth is not None), first)
    return LatencyRecord(
        threads=first.threads,
        timings=tuple(t for r in records for t in r.timings),
        ratios=tuple(x for r in records for x in r.ratios),
        rooflines=tuple(x for r in records for x in r.rooflines),
        profiles=tuple(p for r in records for p in r.profiles),
        copy_bandwidth=measured.copy_bandwidth,
        peak_flops=measured.peak_flops,
        fingerprint=first.fingerprint,
        notes=tuple(dict.fromkeys(n for r in records for n in r.notes)),
        modules=tuple(m for r in records for m in r.modules),
        bandwidths=measured.bandwidths,
        peaks=measured.peaks,
        reference=first.reference,
    )


def _unsettled(timings: Sequence[Timing]) -> Iterator[str]:
    for timing in timings:
        if not timing.settled:
            yield (
                f"{timing.candidate} at {timing.sample}: the times had not become stable when the warm-up ended, "
                f"after {timing.warmup_runs} runs"
            )


def _medians(runs: Sequence[Phases]) -> dict[str, float]:
    return {
        "h2d": plain.median(r.h2d for r in runs),
        "compute": plain.median(r.compute for r in runs),
        "d2h": plain.median(r.d2h for r in runs),
        "total": plain.median(r.total for r in runs),
    }


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python's garbage collector stops whoever happens to run when it is due."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
