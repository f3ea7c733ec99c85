"""Other work on the machine is told from the scheduler's books, whatever the spread of the times says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deployops.validation.latency.measurement import measure
from deployops.validation.latency.surroundings import Contention, Observation
from deployops.validation.reports.lines import Lines
from deployops.validation.reports.terminal_times import say_latency

ME = os.getpid()


class Proc:
    """A folder as `/proc` is, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 0.0
        self.steal = 0
        self.waited: dict[tuple[int, int], float] = {}
        self.parents: dict[int, int] = {ME: 1}
        self.write()

    def write(self) -> None:
        (self.folder / "stat").write_text(f"cpu  1 2 3 4 5 6 7 {self.steal} 0 0\ncpu0 1\n")
        for pid, parent in self.parents.items():
            (self.folder / str(pid)).mkdir(exist_ok=True)
            (self.folder / str(pid) / "stat").write_text(f"{pid} (a (name) S 9) S {parent} 0 0")
        for (pid, thread), seconds in self.waited.items():
            task = self.folder / str(pid) / "task" / str(thread)
            task.mkdir(parents=True, exist_ok=True)
            (task / "schedstat").write_text(f"123 {int(seconds * 1e9)} 7\n")

    def clock(self) -> float:
        return self.now


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def seen(
    proc: Proc, before: dict[tuple[int, int], float], after: dict[tuple[int, int], float]
) -> Observation:
    """Two seconds of measuring."""
    contention = Contention(proc.folder, proc.clock)
    proc.waited = before
    proc.write()
    contention.begin()
    proc.now += 2.0
    proc.waited = after
    proc.write()
    return contention.end()


def test_threads_that_had_no_core_make_every_number_untrustworthy(proc: Proc) -> None:
    found = seen(proc, {(ME, 1): 5.0, (ME, 2): 5.0}, {(ME, 1): 6.0, (ME, 2): 6.5})
    assert (
        found.unstable
        == "other work on this machine: in 2 s its threads were ready and had no core for 2.5 s"
    )
    assert found.undecided == found.unstable


def test_a_little_waiting_is_no_matter(proc: Proc) -> None:
    assert seen(proc, {(ME, 1): 5.0}, {(ME, 1): 5.19}) == Observation()


def test_in_between_the_series_are_unstable_and_the_ratio_has_its_interval(proc: Proc) -> None:
    found = seen(proc, {(ME, 1): 5.0}, {(ME, 1): 5.4})
    assert found.unstable
    assert not found.undecided


def test_what_a_backend_s_process_waits_counts_and_a_stranger_s_does_not(proc: Proc) -> None:
    child, grandchild, stranger = ME + 1, ME + 2, ME + 3
    proc.parents |= {child: ME, grandchild: child, stranger: 1}
    quiet = {(child, 1): 1.0, (grandchild, 1): 1.0, (stranger, 1): 1.0}
    assert seen(proc, quiet, {**quiet, (stranger, 1): 9.0}) == Observation()
    assert seen(proc, quiet, {**quiet, (grandchild, 1): 3.0}).unstable


def test_time_that_the_hypervisor_gave_to_others(proc: Proc) -> None:
    contention = Contention(proc.folder, proc.clock)
    contention.begin()
    proc.now += 2.0
    proc.steal = 3 * os.sysconf("SC_CLK_TCK")
    proc.write()
    assert contention.end().unstable == (
        "other work on this machine: the hypervisor gave 3 s of this machine's cores to others"
    )


def test_a_system_that_does_not_tell_says_nothing(tmp_path: Path) -> None:
    contention = Contention(tmp_path / "none", iter([0.0, 1.0]).__next__)
    contention.begin()
    assert contention.end() == Observation()


class Busy:
    def begin(self) -> None: ...

    def end(self) -> Observation:
        return Observation(("seen",), "other work on this machine: much", "other work on this machine: much")


def test_steady_times_on_a_busy_machine_are_called_unstable_in_the_table() -> None:
    """Each run takes the same: no spread, no drift, and nothing to be trusted."""
    record = measure(
        {"pytorch": lambda: 100.0, "onnxruntime": lambda: 1.0},
        "s",
        threads=2,
        observers=[Busy()],
        seconds=0,
        warmup_s=0,
    )
    assert {t.unstable for t in record.timings} == {"other work on this machine: much"}
    assert [r.unstable for r in record.ratios] == ["other work on this machine: much"]
    assert "seen" in record.notes
    page = Lines(False, 0)
    say_latency(page, record)
    rows = [line for line in page.lines if line.startswith(("pytorch", "onnxruntime"))]
    assert len(rows) == 2
    assert all("unstable: other work on this machine" in row for row in rows)
    assert "unstable, pytorch at s, onnxruntime at s: other work on this machine: much" in page.lines


def test_a_machine_that_is_really_busy_is_found_to_be(tmp_path: Path) -> None:
    if not Path("/proc/self/schedstat").is_file():
        pytest.skip("not checked: this system does not tell how long a thread waited for a core")
    cores = os.sched_getaffinity(0)
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4 * len(cores))]
    try:

        def spin() -> float:
            return float(sum(k for k in range(20_000)) > 0)

        record = measure({"pytorch": spin}, "s", threads=1, observers=[Contention()], seconds=1.0)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert "other work on this machine: " in record.timings[0].unstable
