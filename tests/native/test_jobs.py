"""Many jobs at once: their order, their failures, and that nothing keeps running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deployops.errors import DeployOpsError, NotCheckedError, UsageError
from deployops.native import jobs
from deployops.native.jobs import JobsError, processor_count, run_all
from deployops.native.processes import ProcessError, environment, run


def task(value: int, seconds: float = 0.0) -> tuple[str, Callable[[], int]]:
    def work() -> int:
        time.sleep(seconds)
        return value

    return f"job {value}", work


def failing(
    name: str, error: BaseException, wait: Callable[[], object] = lambda: None
) -> tuple[str, Callable[[], int]]:
    def work() -> int:
        wait()
        raise error

    return name, work


def gone(pid: int) -> bool:
    """No such process, or one that only waits to be collected."""
    for _ in range(50):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.1)
    return False


def test_results_come_in_the_order_of_the_tasks() -> None:
    tasks = [task(n, (5 - n) * 0.02) for n in range(6)]
    assert run_all(tasks, 3) == [0, 1, 2, 3, 4, 5]
    assert run_all([], 3) == []
    assert run_all(tasks[:1], 0) == [0]


def test_progress_is_told_in_this_thread_as_jobs_end() -> None:
    told: list[tuple[int, int, str]] = []
    threads = set()

    def progress(done: int, total: int, name: str) -> None:
        told.append((done, total, name))
        threads.add(threading.get_ident())

    run_all([task(n) for n in range(5)], 2, progress)
    assert [t[:2] for t in told] == [(n, 5) for n in range(1, 6)]
    assert {t[2] for t in told} == {f"job {n}" for n in range(5)}
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("workers", [1, 3])
def test_no_more_run_at_once_than_workers(workers: int) -> None:
    lock, running, most = threading.Lock(), 0, 0

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.05)
        with lock:
            running -= 1

    run_all([(str(n), work) for n in range(9)], workers)
    assert most == workers


def test_the_default_is_the_processors_of_this_process() -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from deployops.native.jobs import processor_count; print(processor_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


@pytest.mark.parametrize(
    ("quota", "count"), [("max 100000", 8), ("150000 100000", 2), ("50000 100000", 1), ("", 8)]
)
def test_a_quota_of_the_container_counts(quota: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(Path, "read_text", lambda self: quota)
    assert processor_count() == count


def test_one_failure_comes_as_it_is() -> None:
    error = NotCheckedError("no compiler")
    with pytest.raises(NotCheckedError) as caught:
        run_all([task(1), failing("bad", error), task(2)], 1)
    assert caught.value is error


def test_all_failures_that_occurred_come_together() -> None:
    both = threading.Barrier(3)
    tasks = [
        failing("swish.avx2", UsageError("swish.h:12: error"), both.wait),
        failing("swish.avx512", UsageError("swish.h:12: error"), both.wait),
        failing("relu.avx2", NotCheckedError("out of memory"), both.wait),
    ]
    with pytest.raises(JobsError) as caught:
        run_all(tasks, 3)
    assert str(caught.value) == "swish.avx2, swish.avx512: swish.h:12: error\n\nrelu.avx2: out of memory"
    assert caught.value.exit_code == 3
    assert [type(e) for e in caught.value.failures.values()] == [UsageError, UsageError, NotCheckedError]
    assert isinstance(caught.value, DeployOpsError)


def test_failures_that_say_the_same_come_as_one() -> None:
    both = threading.Barrier(2)
    with pytest.raises(UsageError, match=r"^swish.h:12: error$"):
        run_all([failing(n, UsageError("swish.h:12: error"), both.wait) for n in ("avx2", "avx512")], 2)


def test_a_fault_of_ours_is_not_dressed_up() -> None:
    with pytest.raises(ZeroDivisionError):
        run_all([("bad", lambda: 1 // 0), task(1)], 1)


def test_a_failure_ends_the_programs_that_run_and_what_has_not_begun(tmp_path: Path) -> None:
    begun: list[int] = []

    def program(number: int) -> int:
        begun.append(number)
        # The program's own child, as a compiler driver has one.
        return run(["sh", "-c", f"sleep 1000 & echo $! > {tmp_path}/pid; wait"]).code

    def wait_and_fail() -> int:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.01)
        raise UsageError("bad kernel")

    tasks = [
        ("first", lambda: program(1)),
        ("bad", wait_and_fail),
        *((f"n{n}", lambda n=n: program(n)) for n in range(2, 6)),
    ]
    began = time.monotonic()
    with pytest.raises(UsageError, match="bad kernel"):  # the job that was stopped is no failure
        run_all(tasks, 2)
    assert time.monotonic() - began < 20
    assert begun == [1]
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_failing_progress_display_ends_the_jobs_too(tmp_path: Path) -> None:
    def progress(done: int, total: int, name: str) -> None:
        raise BrokenPipeError

    began = time.monotonic()
    with pytest.raises(BrokenPipeError):
        run_all([task(1), ("slow", lambda: run(["sleep", "1000"]).code)], 2, progress)
    assert time.monotonic() - began < 20


INTERRUPTED = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the suite runs in the background
from deployops.native.jobs import run_all
from deployops.native.processes import run
folder = Path(sys.argv[1])
def work(n):
    return run(["sh", "-c", f"echo $$ > '{folder}/{n}.tmp'; mv '{folder}/{n}.tmp' '{folder}/{n}'; exec sleep 1000"])
try:
    run_all([(str(n), lambda n=n: work(n)) for n in range(4)], 2)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_ends_everything(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    while not all((tmp_path / str(n)).exists() for n in range(2)):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert out == "interrupted\n"
    assert all(gone(int((tmp_path / str(n)).read_text())) for n in range(2))
    assert not (tmp_path / "2").exists()


def test_a_batch_that_was_stopped_does_not_stop_the_next() -> None:
    with pytest.raises(UsageError):
        run_all([failing("bad", UsageError("x"))], 1)
    assert run_all([("good", lambda: run(["echo", "hello"]).out)], 1) == ["hello\n"]
    assert run(["echo", "hello"]).out == "hello\n"


# --- programs ------------------------------------------------------------------------------------------------------


def test_a_program_says_how_it_ended() -> None:
    done = run(["sh", "-c", "cat; echo err >&2; exit 3"], text="in é")
    assert (done.code, done.out, done.err) == (3, "in é", "err\n")
    assert run(["sh", "-c", "kill -TERM $$"]).code == -signal.SIGTERM
    assert run(["printf", r"\377"]).out == "\N{REPLACEMENT CHARACTER}"


def test_no_shell_reads_the_arguments() -> None:
    assert run(["printf", "%s", "$HOME; `id` 'x' \"y\""]).out == "$HOME; `id` 'x' \"y\""


def test_a_program_that_does_not_end_or_begin() -> None:
    with pytest.raises(
        ProcessError, match=r"sleep did not end within 0\.2 s and was stopped. The command: sleep 1000"
    ):
        run(["sleep", "1000"], limit=0.2)
    with pytest.raises(ProcessError, match="/no/such cannot be run: No such file"):
        run(["/no/such"])


def test_a_program_that_ignores_being_asked_to_end() -> None:
    began = time.monotonic()
    with pytest.raises(ProcessError):
        run(["sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1; done"], limit=0.3)
    assert time.monotonic() - began < 10


def test_programs_speak_english_and_write_where_they_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.setenv("LC_MESSAGES", "de_DE.UTF-8")
    monkeypatch.setenv("DEPENDENCIES_OUTPUT", str(tmp_path / "extra"))
    env = environment(tmp_path)
    assert env["LC_ALL"] == "C"
    assert "DEPENDENCIES_OUTPUT" not in env
    assert env["TMPDIR"] == str(tmp_path)
    assert os.environ["DEPENDENCIES_OUTPUT"]  # that of this process stays


def test_the_module_offers_what_it_says() -> None:
    assert all(hasattr(jobs, name) for name in jobs.__all__)
