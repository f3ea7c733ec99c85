"""How many cores this process may use, and whether the pools of a validation fit on them.

The number of cores that a machine reports is not it: a container has a quota, a scheduler an affinity, and runtimes that
look at neither start a thread per core, wait for each other's spinning, and measure that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..record import Finding

__all__ = ["quota", "thread_findings", "torch_pools", "torch_threads", "usable_cores"]

_MOUNT = Path("/sys/fs/cgroup")
_SELF = Path("/proc/self/cgroup")


def usable_cores(mount: Path = _MOUNT, membership: Path = _SELF) -> int:
    """Cores that this process may use at once: those of its affinity, at most its control group's quota, at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = quota(mount, membership)
    # 1.5 cores are worth two threads: with one, half a core is left unused
    return max(1, allowed if limit is None else min(allowed, -int(-limit // 1)))


def quota(mount: Path = _MOUNT, membership: Path = _SELF) -> float | None:
    """Cores' worth of time that the control groups leave, the tightest from this process's group to the root; or None."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    limits = []
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if not controllers:
            root, read = mount, _quota_v2
        elif "cpu" in controllers.split(","):
            root, read = mount / "cpu", _quota_v1
        else:
            continue
        # Inside a container the path is often that of the host, and its own group is mounted as the root.
        group = root / name.lstrip("/")
        chain = [g for g in (group, *group.parents) if g == root or root in g.parents]
        limits += [found for g in chain if (found := read(g)) is not None]
    return min(limits, default=None)


def _quota_v2(group: Path) -> float | None:
    try:
        most, period = (group / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if most == "max" else int(most) / int(period)


def _quota_v1(group: Path) -> float | None:
    try:
        most = int((group / "cpu.cfs_quota_us").read_text())
        period = int((group / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return most / period if most > 0 else None


def torch_pools() -> dict[str, int]:
    """Threads of torch's pool inside an operator, in this process. (Its pool between operators is not used by eager.)"""
    import torch

    return {"torch intra-op": torch.get_num_threads()}


def thread_findings(pools: Mapping[str, Mapping[str, int]], cores: int | None = None) -> list[Finding]:
    """What is wrong with the threads of a validation, from what each backend recorded.

    Backends run one after the other, so that each pool is held against the cores by itself; what is measured
    against each other must have the same number.

    Args:
        pools: backend -> pool -> threads (`Runner.pools`).
        cores: None: `usable_cores()`.
    """
    from ..record import Finding

    most = usable_cores() if cores is None else cores
    found = []
    wide = {b: {p: n for p, n in by.items() if n > most} for b, by in pools.items()}
    for backend, too_many in ((b, by) for b, by in wide.items() if by):
        listed = ", ".join(f"{pool}: {count}" for pool, count in too_many.items())
        found.append(
            Finding(
                "threads",
                "note",
                f"{backend} has more threads than the {most} cores this process may use ({listed}): they wait for each "
                "other, and latency says little",
                where=backend,
                advice=f"--threads {most}, or a machine with as many cores as the deployment has",
            )
        )
    computing = {b: n for b, by in pools.items() if (n := max(by.values(), default=0))}
    if len(set(computing.values())) > 1:
        listed = ", ".join(f"{b}: {n}" for b, n in computing.items())
        found.append(
            Finding(
                "threads",
                "note",
                f"the backends have different numbers of threads ({listed}): their latencies do not compare",
                advice="give one number to all with --threads",
            )
        )
    return found


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """So many threads of torch in this process, for a time."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
