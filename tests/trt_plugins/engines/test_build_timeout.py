"""A build ends: in the time that was given, before a hostile model or library holds it up, and with nothing left of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from deployops.errors import DeployOpsError, ModelFileError, UsageError
from deployops.native.compilers import find_cxx
from deployops.trt_plugins.engines import child
from deployops.trt_plugins.engines.build import BuildError, build_engine
from deployops.trt_plugins.engines.child import WorkerEnd, ask_worker
from deployops.trt_plugins.engines.flavor import TensorRT
from deployops.trt_plugins.engines.messages import explain_late

# Starts a process of its own, as a plugin may, and writes both numbers.
_HANGS = """
#include <cstdio>
#include <unistd.h>
__attribute__((constructor)) static void start() {
  int child = fork();
  if (child == 0) { sleep(300); _exit(0); }
  FILE* out = fopen("PIDS", "w"); fprintf(out, "%d %d", getpid(), child); fclose(out);
  sleep(300);
}
"""


def hanging_library(folder: Path) -> tuple[Path, Path]:
    pids = folder / "pids"
    (folder / "lib.cpp").write_text(_HANGS.replace("PIDS", str(pids)))
    made = folder / "libhangs.so"
    command = [str(find_cxx().path), "-shared", "-fPIC", str(folder / "lib.cpp"), "-o", str(made)]
    subprocess.run(command, check=True)
    return made, pids


def runs(pid: int) -> bool:
    """A process that ended and was not waited for yet runs no more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_timed_out_build_leaves_nothing(
    rtx: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    library, pids = hanging_library(tmp_path)
    start = time.monotonic()
    with pytest.raises(BuildError) as caught:
        build_engine(exported, out=tmp_path / "net.engine", plugins=[library], timeout=20)
    assert 20 <= time.monotonic() - start < 35
    assert caught.value.exit_code == 1
    text = str(caught.value)
    assert (
        "was ended after the 20 s of the timeout, while loading the plugins of libhangs.so: no engine is written"
        in text
    )
    numbers = [int(n) for n in pids.read_text().split()]
    assert len(numbers) == 2
    deadline = time.monotonic() + 5
    while any(map(runs, numbers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(runs, numbers))
    assert not (tmp_path / "net.engine").exists()
    assert not (tmp_path / "net.engine.json").exists()
    assert not list((tmp_path / "cache" / "tmp").iterdir())
    assert not list(temporary.iterdir())


def test_what_comes_before_the_builder_is_bounded_without_a_timeout(
    rtx: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "BEFORE_BUILDER", 15.0)
    library, _ = hanging_library(tmp_path)
    with pytest.raises(BuildError, match=r"while loading the plugins of libhangs\.so") as caught:
        build_engine(exported, out=tmp_path / "net.engine", plugins=[library])
    assert "--timeout SECONDS" in str(caught.value)


def test_a_build_within_its_time_is_built(rtx: Path, exported: Path, tmp_path: Path) -> None:
    assert build_engine(exported, out=tmp_path / "net.engine", timeout=300).path.exists()


def test_the_command_takes_a_timeout(command: Any, rtx: Path, exported: Path, tmp_path: Path) -> None:
    out = tmp_path / "net.engine"
    done = command("engine", "build", exported, "-o", out, "--timeout", "0.01")
    assert done.code == 1
    assert "after the 0.01 s of the timeout" in done.err
    assert "Traceback" not in done.err
    assert not out.exists()


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), True, "10"])
def test_what_is_no_time_is_refused(exported: Path, tmp_path: Path, timeout: Any) -> None:
    with pytest.raises(UsageError, match=r"timeout .*expected a number of seconds"):
        build_engine(exported, out=tmp_path / "net.engine", timeout=timeout)


# --- a stand-in for the worker: the builder takes longer than what comes before it may --------------------------------


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> TensorRT:
    """A TensorRT whose process runs `body`, with `say(**event)`."""
    (folder / "stand_in_worker.py").write_text(
        "import json, sys, time\n"
        "def say(**event): print(json.dumps(event), flush=True)\n"
        f"def main():\n    sys.stdin.readline()\n{body}"
    )
    start = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); import {module}; from stand_in_worker import main; main()"
    monkeypatch.setattr(child, "_START", start.replace("import {module}; ", "") + "  # {module}")
    monkeypatch.syspath_prepend(str(folder))
    return TensorRT("tensorrt", "tensorrt", "10.8", folder)


_BUILDS = """
    say(step="parsing m.onnx")
    say(step="building m.engine", builder=True)
    say(phase="Tactic selection", done=3, of=10)
    time.sleep(4)
    say(outcome="built")
"""


def test_the_builder_has_all_the_time_that_it_wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "BEFORE_BUILDER", 3.0)
    tensorrt = stand_in(tmp_path, monkeypatch, _BUILDS)
    assert ask_worker(tensorrt, {"do": "build"}).outcome == "built"


def test_but_not_more_than_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensorrt = stand_in(tmp_path, monkeypatch, _BUILDS)
    end = ask_worker(tensorrt, {"do": "build"}, limit=2.0)
    assert (end.outcome, end.step, end.phase) == ("late", "building m.engine", "Tactic selection, 3 of 10")
    assert "while building m.engine (Tactic selection, 3 of 10)" in explain_late(end, tensorrt, 2.0)


def test_a_worker_that_floods_us_ends_in_time_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = '    while True:\n        say(said=["warning", "x" * 1000])\n'
    end = ask_worker(stand_in(tmp_path, monkeypatch, body), {"do": "build"}, limit=3.0)
    assert end.outcome == "late"
    assert len(end.said) <= 10_000


def test_an_end_that_is_not_late_is_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = ask_worker(stand_in(tmp_path, monkeypatch, "    sys.exit(7)\n"), {"do": "build"}, limit=60.0)
    assert isinstance(end, WorkerEnd)
    assert (end.outcome, end.ending) == ("crashed", "exit code 7")


# --- models that would never end --------------------------------------------------------------------------------------


def bomb(path: Path, levels: int) -> Path:
    """Functions that each call the next one twice: 2**levels nodes."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("acme", 1)]
    functions = [
        helper.make_function(
            "acme",
            f"F{k}",
            ["x"],
            ["y"],
            [
                helper.make_node(f"F{k + 1}", [a], [b], domain="acme")
                if k + 1 < levels
                else helper.make_node("Relu", [a], [b])
                for a, b in (("x", "t"), ("t", "y"))
            ],
            opsets,
        )
        for k in range(levels)
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y")]
    graph = helper.make_graph([helper.make_node("F0", ["x"], ["y"], domain="acme")], "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions), path)
    return path


@pytest.mark.parametrize("precision", [None, "fp32", "fp16", "bf16"])
def test_functions_that_double_are_refused_in_every_precision(
    rtx: Path, tmp_path: Path, precision: Any
) -> None:
    start = time.monotonic()
    with pytest.raises(DeployOpsError) as caught:
        build_engine(bomb(tmp_path / "bomb.onnx", 40), out=tmp_path / "b.engine", precision=precision)
    assert "1,099,511,627,776 nodes, and more than 1,000,000 are refused. The largest is acme::F0" in str(
        caught.value
    )
    assert time.monotonic() - start < 60
    assert not (tmp_path / "b.engine").exists()


def test_functions_that_stay_small_are_built(rtx: Path, tmp_path: Path) -> None:
    assert build_engine(bomb(tmp_path / "small.onnx", 5), out=tmp_path / "s.engine").path.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="not checked: /dev and named pipes")
def test_what_has_no_end_is_not_read(rtx: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    for path in (Path("/dev/zero"), tmp_path / "pipe.onnx"):
        with pytest.raises(ModelFileError, match="is not a regular file"):
            build_engine(path, out=tmp_path / "m.engine")
    with pytest.raises(ModelFileError, match="is a directory"):
        build_engine(tmp_path, out=tmp_path / "m.engine")
    with (tmp_path / "large.onnx").open("wb") as file:
        file.truncate(1 << 31)
    with pytest.raises(ModelFileError, match="more than 2 GiB"):
        build_engine(tmp_path / "large.onnx", out=tmp_path / "m.engine")
