"""Verdicts on measured ratios, from the numbers alone: a saved record can be judged again with other limits.

A limit is failed only where the whole confidence interval is beyond it, and passed only where the whole interval is
within. What lies across it, and what is unstable, is not checked: more runs or a quieter machine can tell.

An earlier record is compared with only where processor, threads and versions are the same. Even then two runs of one
program differ by more than the interval of either knows: memory is laid out anew, and neighbours are others. So the
original, which was measured in both, tells how much the machine itself has changed, and a regression is what remains
beyond it and beyond `max_regression`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...errors import UsageError
from .record import LatencyRecord, Ratio, Timing
from .statistics import CONFIDENCE, Floats, log_medians, log_ratios
from .torch_on_gpu import original_on

if TYPE_CHECKING:
    from ..record import Limits

__all__ = ["BASELINE", "DEFAULT_REGRESSION", "judge", "unjudged"]

BASELINE = "baseline"
# Where the user sets no limit: what two starts of one program may differ by.
DEFAULT_REGRESSION = 0.05
# The original itself became slower or faster by this: the machine is not as it was, and no ratio of ratios repairs it.
WIDEST_CHANGE = 0.3
WIDEST_INTERVAL = 1.25


def judge(
    record: LatencyRecord, limits: Limits, baseline: LatencyRecord | None = None, *, seed: int = 0
) -> LatencyRecord:
    """The record with a verdict on each ratio, and with the ratios to the baseline where there is one.

    Earlier verdicts and ratios to a baseline are dropped, so that judging twice is as judging once.

    Raises:
        UsageError: a limit that nothing can reach.
    """
    for name, least in (("max_slowdown", 0.0), ("min_speedup", 0.0), ("max_regression", -1.0)):
        value = getattr(limits, name)
        if value is not None and not (math.isfinite(value) and value > least):
            raise UsageError(f"{name} must be a finite number above {least:g}, got {value}")
    ratios = [_limited(r, limits) for r in record.ratios if r.against != BASELINE]
    if baseline is not None:
        ratios += _regressions(record, limits, baseline, seed)
    return replace(record, ratios=tuple(ratios))


def unjudged(record: LatencyRecord | None, limits: Limits, baseline: LatencyRecord | None = None) -> str:
    """Why limits on latency were set and yet nothing is held against them; empty where something is, or none were."""
    asked = [
        f"{name} {value:g}"
        for name, value in (("max_slowdown", limits.max_slowdown), ("min_speedup", limits.min_speedup))
        if value is not None
    ]
    wanted = [
        *asked,
        *(["the baseline"] if baseline is not None or limits.max_regression is not None else []),
    ]
    if not wanted:
        return ""
    if record is None:
        return f"latency was not measured, so that nothing is held against {' and '.join(wanted)}"
    if asked and not any(r.against != BASELINE for r in record.ratios):
        return f"no candidate was timed beside {record.reference}, so that nothing is held against {' and '.join(asked)}"
    if limits.max_regression is not None and not any(r.against == BASELINE for r in record.ratios):
        return f"max_regression {limits.max_regression:g} was set, and there is no baseline to compare with"
    return ""


def _limited(ratio: Ratio, limits: Limits) -> Ratio:
    bounds = []
    if limits.max_slowdown is not None:
        bounds.append((limits.max_slowdown, f"at most {limits.max_slowdown:g} × the time of {ratio.against}"))
    if limits.min_speedup is not None:
        bounds.append(
            (1 / limits.min_speedup, f"at least {limits.min_speedup:g} × as fast as {ratio.against}")
        )
    if not bounds:
        return replace(ratio, verdict="none", reason="")
    # the tighter one decides: both must hold
    bound, wanted = min(bounds)
    return _against(ratio, bound, wanted)


def _against(ratio: Ratio, bound: float, wanted: str) -> Ratio:
    interval = f"{ratio.ratio:.3g} ({ratio.low:.3g} to {ratio.high:.3g})"
    if ratio.unstable:
        return replace(ratio, verdict="not checked", reason=f"unstable, no verdict: {ratio.unstable}")
    if ratio.high <= bound:
        return replace(ratio, verdict="passed", reason="")
    if ratio.low > bound:
        return replace(
            ratio, verdict="failed", reason=f"wanted {wanted}, that is {bound:.3g}; it is {interval}"
        )
    reason = (
        f"wanted {wanted}, that is {bound:.3g}, which lies within the interval {interval}: measure for longer"
    )
    return replace(ratio, verdict="not checked", reason=reason)


def _regressions(
    record: LatencyRecord, limits: Limits, baseline: LatencyRecord, seed: int
) -> Iterator[Ratio]:
    allowed = DEFAULT_REGRESSION if limits.max_regression is None else limits.max_regression
    source = " (the default)" if limits.max_regression is None else ""
    other = _differences(record, baseline)
    before = _by_key(baseline)
    now = _by_key(record)
    for key, timing in now.items():
        if _is_original(timing.candidate, record.reference):
            continue
        # no ratio, so that there is nothing to be unstable
        nothing = Ratio(timing.candidate, BASELINE, timing.sample, 0.0, 0.0, 0.0)
        if other:
            yield replace(nothing, verdict="not checked", reason=other)
        elif key not in before:
            reason = f"the baseline has no {timing.candidate} at {timing.sample}"
            yield replace(nothing, verdict="not checked", reason=reason)
        else:
            control = _control(timing, record.reference)
            references = (now.get((control, key[1])), before.get((control, key[1])))
            found = _change(timing, before[key], *references, seed=seed)
            yield _against(found, 1 + allowed, f"at most {allowed:.3g} over the baseline{source}")
    for candidate, sample in [key for key in before if key not in now]:
        if not _is_original(candidate, record.reference) and sample in {s for _, s in now}:
            reason = f"the baseline has {candidate} at {sample}, which was not measured now"
            yield Ratio(
                candidate,
                BASELINE,
                sample,
                0.0,
                0.0,
                0.0,
                verdict="not checked",
                reason=reason,
            )


def _is_original(candidate: str, reference: str) -> bool:
    """The original itself, on whatever device and in whatever way: it tells of the machine, and is no candidate."""
    return candidate == reference or candidate.startswith(original_on("", reference))


def _control(timing: Timing, reference: str) -> str:
    """The original on the candidate's own device."""
    return reference if timing.device == "cpu" else original_on(timing.device, reference)


def _change(
    now: Timing, before: Timing, control_now: Timing | None, control_before: Timing | None, *, seed: int
) -> Ratio:
    """The time now over that in the baseline; where the original was measured beside both, what it changed by is taken out."""
    unstable = ""
    change = 1.0
    paired = _pairs(now, control_now) and _pairs(before, control_before)
    if paired and control_now is not None and control_before is not None:
        change = control_now.median / control_before.median
        drawn = _difference(_paired(now, control_now, seed), _paired(before, control_before, seed + 1))
        if not 1 / (1 + WIDEST_CHANGE) <= change <= 1 + WIDEST_CHANGE:
            unstable = f"the machine is not as it was: {control_now.candidate} itself takes {change:.3g} × what it took"
    else:
        drawn = _difference(log_medians(now.times, seed=seed), log_medians(before.times, seed=seed + 1))
        unstable = now.unstable or (f"in the baseline: {before.unstable}" if before.unstable else "")
    tail = (1 - CONFIDENCE) / 2
    low, high = (float(v) for v in np.exp(np.quantile(drawn, (tail, 1 - tail))))
    ratio = now.median / before.median / change
    if not unstable and high > WIDEST_INTERVAL * low:
        unstable = f"the interval is too wide: {low:.3g} to {high:.3g}"
    return Ratio(now.candidate, BASELINE, now.sample, ratio, low, high, unstable=unstable)


def _paired(timing: Timing, control: Timing, seed: int) -> Floats:
    return log_ratios(timing.times, control.times, seed=seed)


def _difference(ours: Floats, theirs: Floats) -> Floats:
    """Of two independent distributions, draw by draw; a long series has fewer draws."""
    count = min(len(ours), len(theirs))
    return ours[:count] - theirs[:count]


def _pairs(timing: Timing, control: Timing | None) -> bool:
    """Was the original measured in the same rounds and on the same device? Another device's changes are its own."""
    return (
        control is not None
        and timing.device == control.device
        and len(timing.times) == len(control.times)
        and min(*timing.times, *control.times) > 0
    )


def _differences(record: LatencyRecord, baseline: LatencyRecord) -> str:
    """Why the two must not be compared; empty where they may."""
    now = {**record.fingerprint, "threads": str(record.threads)}
    before = {**baseline.fingerprint, "threads": str(baseline.threads)}
    if len(now) == 1 or len(before) == 1:
        return "one of the records does not say which machine it is from"
    differing = [
        f"{name} is {_shown(now, name)}, in the baseline {_shown(before, name)}"
        for name in dict.fromkeys((*now, *before))
        if now.get(name) != before.get(name)
    ]
    return f"other machine or versions, no verdict: {'; '.join(differing)}" if differing else ""


def _shown(fingerprint: Mapping[str, str], name: str) -> str:
    return fingerprint.get(name) or "not told"


def _by_key(record: LatencyRecord) -> dict[tuple[str, str], Timing]:
    return {(t.candidate, t.sample): t for t in record.timings if math.isfinite(t.median) and t.median > 0}
