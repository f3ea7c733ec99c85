"""Case 35: no file runs code unless it is trusted; what it wanted to run is listed without running it."""

from __future__ import annotations

import io
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch


class Payload:
    """A harmless stand-in: unpickling it creates a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> Any:
        return open, (self.marker, "w")


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "MARKER_code_ran"


def zipped(marker: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save({"weight": torch.ones(2), "extra": Payload(marker)}, buffer)
    return buffer.getvalue()


def legacy(marker: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save(
        {"weight": torch.ones(2), "extra": Payload(marker)}, buffer, _use_new_zipfile_serialization=False
    )
    return buffer.getvalue()


def raw(marker: Path) -> bytes:
    return pickle.dumps(Payload(marker))


def protocol_four(marker: Path) -> bytes:
    """STACK_GLOBAL instead of GLOBAL: names come off the stack."""
    return pickle.dumps({"weight": Payload(marker)}, protocol=4)


def second_pickle(marker: Path) -> bytes:
    """A harmless pickle, and the hostile one after it in the same file."""
    return pickle.dumps({"weight": [1.0]}, protocol=2) + pickle.dumps(Payload(marker), protocol=2)


def hostile_program(marker: Path) -> bytes:
    """A torch.export archive in which the pickle of the sample inputs is hostile."""
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)), buffer)
    inner = io.BytesIO()
    torch.save((Payload(marker),), inner)
    out = io.BytesIO()
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(out, "w") as new:
        replaced = 0
        for name in old.namelist():
            hostile = "sample_inputs" in name and name.endswith(".pt")
            replaced += hostile
            new.writestr(name, inner.getvalue() if hostile else old.read(name))
        assert replaced
    return out.getvalue()


HOSTILE = [zipped, legacy, raw, protocol_four, second_pickle, hostile_program]
COMMANDS = [
    ["export", "FILE", "--input", "x:float32[1,2]"],
    ["export", "FILE", "--input", "x:float32[1,2]", "--model", "torch.nn:Identity"],
    ["export", "FILE"],
    ["validate", "FILE", "--onnx", "FILE.onnx"],
    ["inspect", "FILE"],
]


@pytest.mark.parametrize("make", HOSTILE)
def test_nothing_of_it_runs(command: Any, tmp_path: Path, marker: Path, make: Any) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(make(marker))
    marker.unlink(missing_ok=True)  # making one may have run it
    for arguments in COMMANDS:
        done = command(*[str(path) if a == "FILE" else a for a in arguments])
        assert not marker.exists(), arguments
        assert "Traceback" not in done.err
        if arguments[0] != "inspect":
            assert done.code == 2, (arguments, done.out, done.err)
    assert {p.name for p in tmp_path.iterdir()} <= {"model.pt"}


@pytest.mark.parametrize("make", [zipped, legacy, raw, protocol_four, hostile_program])
def test_what_it_wanted_is_listed(command: Any, tmp_path: Path, marker: Path, make: Any) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(make(marker))
    refused = command("export", path, "--input", "x:float32[1,2]")
    assert "io.open" in refused.err or "builtins.open" in refused.err or "_io.open" in refused.err
    inspected = command("inspect", path)
    assert "open" in inspected.out
    assert "would run code" in inspected.out


def test_the_refusal_says_how_to_trust(command: Any, tmp_path: Path, marker: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(zipped(marker))
    assert "--trust" in command("export", path, "--input", "x:float32[1,2]").err


NETS = """
import torch
class Net(torch.nn.Linear):
    def __init__(self): super().__init__(2, 2)
"""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "nets_of_case_35.py").write_text(NETS)
    monkeypatch.syspath_prepend(tmp_path)
    import nets_of_case_35

    return nets_of_case_35


def test_an_honest_pickled_module_needs_trust_and_says_what_it_is(
    command: Any, tmp_path: Path, nets: Any
) -> None:
    path = tmp_path / "net.pt"
    torch.save(nets.Net(), path)
    refused = command("export", path, "--input", "x:float32[n,2]")
    assert refused.code == 2
    assert "nets_of_case_35.Net" in refused.err
    assert "pickled" in refused.err
    done = command("export", path, "--input", "x:float32[n,2]", "--trust")
    assert done.code == 0, done.err


def test_an_honest_state_dict_needs_no_trust(command: Any, tmp_path: Path, nets: Any) -> None:
    path = tmp_path / "net.pt"
    torch.save(nets.Net().state_dict(), path)
    done = command("export", path, "--input", "x:float32[n,2]", "--model", "nets_of_case_35:Net")
    assert done.code == 0, done.err


def test_an_honest_program_needs_no_trust(command: Any, tmp_path: Path, nets: Any) -> None:
    path = tmp_path / "net.pt"
    torch.export.save(torch.export.export(nets.Net(), (torch.ones(1, 2),)), tmp_path / "net.pt2")
    shutil.move(tmp_path / "net.pt2", path)
    done = command("export", path)
    assert done.code == 0, done.err
