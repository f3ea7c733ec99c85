"""The times of a report for a terminal: a line for each candidate, what was unstable, where the time goes."""

from __future__ import annotations

from ..latency.record import LatencyRecord, Ratio, Roofline, Timing
from ..record import FAILED, NOT_CHECKED
from .lines import MOST_LINES, Lines, named, worded
from .quantities import milliseconds, percent, times
from .tables import table

__all__ = ["say_latency"]


def say_latency(page: Lines, latency: LatencyRecord) -> None:
    """Add the lines."""
    page.gap()
    page.say(f"latency, {latency.threads} thread{'s' if latency.threads > 1 else ''} each:")
    limits = {(r.candidate, r.sample): r for r in latency.rooflines if not r.subject and not r.machine}
    rows = []
    for t in latency.timings[:MOST_LINES]:
        against = [r for r in latency.ratios if (r.candidate, r.sample) == (t.candidate, t.sample)]
        first, others = (against[0], against[1:]) if against else (None, [])
        rows.append(_timing(t, first, limits.get((t.candidate, t.sample))))
        rows += [("", "", "", "", "", _ratio(r), "", "") for r in others]
    page.lines += table(
        (
            "candidate",
            "sample",
            "median",
            "p90",
            "runs",
            "time (interval)",
            "of the limit",
            "not to be trusted",
        ),
        rows[: 2 * MOST_LINES],
        width=page.width,
        right=("median", "p90", "runs"),
        flexible=("candidate", "sample", "time (interval)", "not to be trusted"),
        optional=("runs", "of the limit", "p90"),
    )
    if len(latency.timings) > MOST_LINES:
        page.say(f"… and {len(latency.timings) - MOST_LINES} more: they are in the JSON and HTML reports")
    for t in latency.timings[:MOST_LINES]:
        if t.phases:
            parts = [f"{named(k)} {milliseconds(v)}" for k, v in t.phases.items()]
            page.say(f"{named(t.candidate)} at {named(t.sample)}: {', '.join(parts)}")
    found: dict[str, list[str]] = {}
    for t in latency.timings[:MOST_LINES]:
        if t.unstable:
            found.setdefault(t.unstable, []).append(f"{named(t.candidate)} at {named(t.sample)}")
    for why, of in found.items():
        page.say(f"unstable, {', '.join(of)}: {worded(why)}")
    for r in sorted(latency.ratios, key=lambda r: r.verdict != FAILED)[:MOST_LINES]:
        if r.verdict in (FAILED, NOT_CHECKED) or (r.reason and r.verdict != "none"):
            page.say(
                f"{page.paint(r.verdict, r.verdict)}, {named(r.candidate)} at {named(r.sample)} "
                f"against {named(r.against)}: {worded(r.reason)}"
            )
    for limit in [r for r in latency.rooflines if r.machine and not r.subject][:MOST_LINES]:
        floor = f"{milliseconds(limit.floor)}, set by {limit.bound}"
        page.say(f"predicted floor on {named(limit.machine)} at {named(limit.sample)}: {floor}")
    for profile in latency.profiles[:MOST_LINES]:
        parts = [
            f"{named(n.name or n.op_type)}{' (custom)' if n.custom else ''} {percent(n.share)}"
            for n in profile.nodes[:4]
        ]
        if profile.total > 0 and profile.overhead > 0:
            parts.append(f"and {percent(profile.overhead / profile.total)} beside the nodes")
        page.say(f"{named(profile.candidate)} spends its time in {', '.join(parts)}") if parts else None
    for note in latency.notes[:MOST_LINES]:
        page.say(f"note: {worded(note)}")


def _timing(t: Timing, ratio: Ratio | None, limit: Roofline | None) -> tuple[str, ...]:
    share = ""
    if limit is not None and limit.share is not None:
        share = f"{percent(limit.share)} ({limit.bound})"
    # the first words say what kind it is; the line below says it in full
    flag = f"unstable: {named(t.unstable.partition(':')[0])}" if ":" in t.unstable else "unstable"
    return (
        named(t.candidate),
        named(t.sample),
        milliseconds(t.median),
        milliseconds(t.p90),
        str(len(t.times)),
        _ratio(ratio) if ratio is not None else "",
        share,
        flag if t.unstable else "",
    )


def _ratio(r: Ratio) -> str:
    if r.unstable:
        return f"no verdict: {named(r.unstable.partition(':')[0])}"
    if not r.ratio > 0:  # the reason is below the table
        return f"no verdict: {named(r.reason.partition(':')[0])}" if r.reason else "not measured"
    return f"{times(r.ratio)} {named(r.against)} ({r.low:.3g} to {r.high:.3g})"
