"""What makes two measurements comparable, and nothing that names the machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
import torch

from deployops.validation.latency import fingerprint as module
from deployops.validation.latency.fingerprint import fingerprint, load_note, processor_name


def test_threads_versions_and_the_processor_are_in_it() -> None:
    found = fingerprint(3, {"onnxruntime": "9.9"})
    assert (found["threads"], found["onnxruntime"], found["torch"]) == ("3", "9.9", torch.__version__)
    assert found["processor"]
    assert int(found["cores"]) >= 1
    assert all(isinstance(v, str) and v for v in found.values())


def test_the_host_s_name_is_not() -> None:
    found = fingerprint(1)
    assert platform.node() not in found.values()
    assert not {"node", "host", "hostname"} & found.keys()


def test_a_processor_by_name_family_and_model(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(
        "processor : 0\nmodel name\t: ACME 9\ncpu family\t: 25\nmodel\t\t: 17\n\nprocessor : 1\nmodel : 99\n"
    )
    assert processor_name(file) == "ACME 9 (cpu family 25, model 17)"
    assert processor_name(tmp_path / "nothing")


def test_the_governor_and_turbo_are_told_where_they_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scaling_governor").write_text("powersave\n")
    (tmp_path / "no_turbo").write_text("1\n")
    monkeypatch.setattr(module, "_CPU0", tmp_path)
    monkeypatch.setattr(module, "_TURBO", tmp_path / "no_turbo")
    found = fingerprint(1)
    assert (found["governor"], found["turbo"]) == ("powersave", "off")


@pytest.mark.parametrize(("load", "said"), [(0.2, False), (1.0, False), (1.5, True), (40.0, True)])
def test_other_work_on_the_cores_is_told(load: float, said: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert bool(load_note(2)) == said
