"""An original that crashes, hangs or eats the memory still gets a complete report, and the parent lives."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from deployops.errors import UsageError
from deployops.validation import validate
from deployops.validation.latency.record import LatencyRecord
from deployops.validation.parity.budget import Budget
from deployops.validation.parity.metrics import Metrics
from deployops.validation.record import BackendRecord, Cell, Finding, Report
from deployops.validation.supervision import Heading, Running, supervised
from deployops.validation.supervision.entries import Entries
from deployops.validation.supervision.journal import StreamJournal, enter, read_line

HEADING = Heading("net.pt2", "net.onnx")

# A comparison of three samples on one backend. `fault` is what the original does on the second.
COMPARISON = """
import ctypes, os, signal, sys, time
from deployops.errors import UsageError
from deployops.validation.record import BackendRecord, Cell, Finding, Report
from deployops.validation.supervision import Heading, Planned

SAMPLES = ("one", "two", "three")

def killed(): os.kill(os.getpid(), signal.SIGKILL)
def segfault():
    print("the original: about to crash", flush=True)
    ctypes.string_at(0)
def hang(): time.sleep(600)
def memory(): raise MemoryError("4 GiB")
def allocates(): bytearray(8 << 30)
def leaves(): os._exit(0)
def exits(): sys.exit(4)
def refuses(): raise UsageError("no such input")
def bug(): {}["missing"]
def reads(): assert sys.stdin.read() == ""
def forks():
    if os.fork() == 0:
        time.sleep(600)
    killed()
def nothing(): pass

def compare(journal, request):
    fault, backend = request
    journal.heading(Heading("the model", "net.onnx", environment={"seed": 0}))
    journal.backend(BackendRecord("onnxruntime", required=True))
    journal.plan([Planned(s, "onnxruntime") for s in SAMPLES])
    cells = []
    for sample in SAMPLES:
        journal.running(sample, backend)
        if sample == "two":
            globals()[fault]()
        cells.append(Cell(sample, "y", "onnxruntime", "passed"))
        journal.cell(cells[-1])
    return Report("the model", "net.onnx", tuple(cells), (BackendRecord("onnxruntime", required=True),))

def crashes_on_loading(journal, request):
    journal.running(what="loading the model")
    killed()

def crashes_at_exit(journal, request):
    import atexit
    atexit.register(killed)
    return compare(journal, ("nothing", "pytorch"))
"""

Run = Callable[..., Report]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    (tmp_path / "planted_comparison.py").write_text(COMPARISON)
    monkeypatch.syspath_prepend(str(tmp_path))

    def call(
        fault: str = "nothing", backend: str = "pytorch", function: str = "compare", **options: object
    ) -> Report:
        return supervised(f"planted_comparison:{function}", (fault, backend), HEADING, **options)  # type: ignore[arg-type]

    return call


def verdicts(report: Report) -> dict[str, str]:
    return {c.sample: c.verdict for c in report.cells}


def test_a_comparison_that_ends_well_is_the_childs_own_report(run: Run) -> None:
    seen: list[Running] = []
    report = run("nothing", progress=seen.append)
    assert report.exit_code == 0
    assert verdicts(report) == {"one": "passed", "two": "passed", "three": "passed"}
    assert report.findings == ()
    assert [r.sample for r in seen] == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("killed", "crash", "SIGKILL"),
        ("segfault", "crash", "SIGSEGV"),
        ("leaves", "crash", "exit code 0"),
        ("exits", "crash", "exit code 4"),
        ("memory", "out of memory", "MemoryError"),
        ("forks", "crash", "SIGKILL"),
        ("bug", "crash", "an error of deployops itself (KeyError)"),
    ],
)
def test_an_original_that_ends_its_process_midway(run: Run, fault: str, kind: str, words: str) -> None:
    report = run(fault)
    assert report.exit_code == 3  # nothing to compare with is not a failure of the file
    assert verdicts(report) == {"one": "passed", "two": "not checked", "three": "not checked"}
    (finding,) = report.findings
    assert (finding.kind, finding.severity) == (kind, "not checked")
    assert words in finding.text
    assert "running the original on two" in finding.text
    assert finding.advice
    assert report.model == "the model"
    assert report.environment == {"seed": 0}
    assert [b.name for b in report.backends] == ["onnxruntime"]
    assert report.text()


def test_the_log_has_the_last_words_and_the_line_of_the_crash(run: Run) -> None:
    (finding,) = run("segfault").findings
    assert "Its last words: the original: about to crash" in finding.text
    assert "planted_comparison.py" in finding.log
    assert "in segfault" in finding.log
    assert (
        "/" not in finding.log.split("planted_comparison.py")[0].splitlines()[-1]
    )  # no folder of this machine


def test_one_fault_gives_the_same_report_twice(run: Run) -> None:
    assert run("segfault") == run("segfault")


def test_a_hang_ends_at_the_limit(run: Run) -> None:
    report = run("hang", limit_s=8)
    (finding,) = report.findings
    assert (finding.kind, finding.severity) == ("hang", "not checked")
    assert "no answer within 8 s while running the original on two" in finding.text
    assert verdicts(report) == {"one": "passed", "two": "not checked", "three": "not checked"}


def test_a_backend_in_the_same_process_fails_the_sample_it_dies_on(run: Run) -> None:
    report = run("killed", backend="onnxruntime")
    assert report.exit_code == 1
    assert verdicts(report) == {"one": "passed", "two": "failed", "three": "not checked"}
    assert report.findings[0].severity == "failed"


@pytest.mark.skipif(
    sys.platform != "linux", reason="not checked: what a process may write to is limited on Linux only"
)
def test_the_memory_limit_is_kept(run: Run) -> None:
    (finding,) = run("allocates", memory=4 << 30).findings
    assert finding.kind == "out of memory"


def test_a_crash_before_anything_was_planned(run: Run) -> None:
    report = run(function="crashes_on_loading")
    assert report.exit_code == 3
    assert report.cells == ()
    assert (report.model, report.onnx) == ("net.pt2", "net.onnx")
    assert "while loading the model" in report.findings[0].text


def test_a_crash_after_everything_was_compared_is_a_note(run: Run) -> None:
    report = run(function="crashes_at_exit")
    assert report.exit_code == 0
    assert [(f.kind, f.severity) for f in report.findings] == [("crash", "note")]


ORIGINAL = """
import os, signal, time, torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)

    def forward(self, x):
        if len(x) == 2:
            {fault}
        return self.fc(x)
"""

OPENS_A_FILE = """
import torch
from deployops.export.source import open_source
from deployops.validation.backends import Sample
from deployops.validation.original import Original
from deployops.validation.record import Cell, Report
from deployops.validation.supervision import Planned

def compare(journal, request):
    journal.running(what="loading the model")
    original = Original(open_source(request["model"], trust=False, factory=request["factory"]).callable())
    samples = [Sample(f"batch={n}", (torch.ones(n, 2),)) for n in (1, 2, 3)]
    journal.plan([Planned(s.label, "onnxruntime") for s in samples])
    for sample in samples:
        journal.running(sample.label, "pytorch")
        original.expected(sample)
        journal.cell(Cell(sample.label, "y", "onnxruntime", "passed"))
    return Report("m", "o", ())
"""


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "crash"),
        pytest.param("time.sleep(600)", "hang", marks=pytest.mark.slow),
    ],
)
def test_a_model_file_whose_code_dies_at_one_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, kind: str
) -> None:
    (tmp_path / "net.py").write_text(ORIGINAL.format(fault=fault))
    (tmp_path / "planted_opening.py").write_text(OPENS_A_FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    torch.save(torch.nn.ModuleDict({"fc": torch.nn.Linear(2, 2)}).state_dict(), tmp_path / "net.pt")
    request = {"model": str(tmp_path / "net.pt"), "factory": f"{tmp_path / 'net.py'}:Net"}
    # the limit holds for loading torch, too, on a machine that does other things
    report = supervised("planted_opening:compare", request, HEADING, limit_s=20 if kind == "hang" else 600)
    assert verdicts(report) == {"batch=1": "passed", "batch=2": "not checked", "batch=3": "not checked"}
    assert [(f.kind, f.where) for f in report.findings] == [(kind, "running the original on batch=2")]
    assert report.exit_code == 3


VALIDATES = """
from deployops.validation import validate

def compare(journal, request):
    return validate(request["model"], request["onnx"], factory=request["factory"], latency=False, threads=1)
"""


def test_a_whole_validation_says_the_same_there_as_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deploy: Callable[..., Any]
) -> None:
    (tmp_path / "net.py").write_text(ORIGINAL.format(fault="pass").replace("len(x) == 2", "False"))
    (tmp_path / "planted_validation.py").write_text(VALIDATES)
    monkeypatch.syspath_prepend(str(tmp_path))
    torch.manual_seed(0)
    torch.save(torch.nn.ModuleDict({"fc": torch.nn.Linear(2, 2)}).state_dict(), tmp_path / "net.pt")
    options = {"factory": f"{tmp_path / 'net.py'}:Net"}
    exported = deploy(str(tmp_path / "net.pt"), ["x:float32[batch=1..9,2]"], **options)
    request = {"model": str(tmp_path / "net.pt"), "onnx": str(exported.path), **options}
    there = supervised("planted_validation:compare", request, HEADING)
    here = validate(request["model"], request["onnx"], factory=options["factory"], latency=False, threads=1)
    assert there.cells
    assert there == here


def test_errors_in_the_users_terms_pass_through(run: Run) -> None:
    with pytest.raises(UsageError, match="no such input"):
        run("refuses")


def test_the_originals_standard_input_is_empty(run: Run) -> None:
    assert run("reads").exit_code == 0


def test_entries_come_back_as_they_were(tmp_path: Path) -> None:
    cell = Cell(
        "s", "y", "b", "failed", "why", "float32", (2, 0), Metrics(3, max_abs=float("inf"), mean_abs=float("nan")),
        Budget(atol=1e-5, rtol=1e-6, rms=1e-5, source="the user's own"),
    )  # fmt: skip
    finding = Finding("crash", "note", "text", "where", "advice", "log")
    record = LatencyRecord(2, (), ())
    with (tmp_path / "journal").open("wb") as stream:
        journal = StreamJournal(stream)
        journal.cell(cell)
        journal.finding(finding)
        journal.latency(record)
        journal.backend(BackendRecord("b", missing="no GPU"))
        journal.note("a note")
    entries = Entries(HEADING)
    for line in (tmp_path / "journal").read_bytes().splitlines():
        found = read_line(line)
        assert found is not None
        enter(entries, *found)
    assert repr(entries.cells) == repr([cell])  # by repr: NaN is not equal to itself
    assert entries.findings == [finding]
    assert entries.latency == record
    assert entries.backends == [BackendRecord("b", missing="no GPU")]
    assert entries.notes == ["a note"]


@pytest.mark.parametrize(
    "line", [b'{"entry": "cell", "value": {"sam', b"", b"noise", b'{"entry": "other", "value": 1}']
)
def test_a_line_that_was_cut_is_left_out(line: bytes) -> None:
    assert read_line(line) is None


def test_the_parent_loads_no_torch() -> None:
    code = "import sys, deployops.validation.supervision\nprint('torch' in sys.modules, 'onnxruntime' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.skipif(os.name != "posix", reason="not checked: signals of a terminal")
@pytest.mark.parametrize("end", ["SIGINT", "SIGKILL"])
def test_no_child_outlives_the_parent(tmp_path: Path, end: str) -> None:
    (tmp_path / "planted_comparison.py").write_text(COMPARISON)
    script = f"""
    import os, signal, sys
    sys.path.insert(0, {str(tmp_path)!r})
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job is started with it ignored
    from deployops.validation.supervision import Heading, supervised
    def progress(running):
        if running.sample == "two":
            os.kill(os.getpid(), signal.{end})
    supervised("planted_comparison:compare", ("hang", "pytorch"), Heading("m", "o"), progress=progress)
    """
    # nobody is left to remove what a killed process had, so that it is put where the test is removed
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stderr=subprocess.DEVNULL, env=env
    )
    process.wait(60)
    deadline = time.monotonic() + 10
    while (left := processes_with(str(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


def processes_with(text: str) -> list[str]:
    """Command lines on this machine that have a text in them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended since
            continue
        if text in line and path.parent.name != str(os.getpid()):
            found.append(line)
    return found
