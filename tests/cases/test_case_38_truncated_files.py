"""Case 38: every damaged file is refused, flipped bits included, in a line that says that it is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import deployops

FACTORY = (
    "import torch\ndef net(): return torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])\n"
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bytes, int]]:
    """File name -> its bytes, and the place of one weight's exponent byte."""
    import warnings

    folder = tmp_path_factory.mktemp("whole")
    torch.manual_seed(0)
    net = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)]).eval()
    x = torch.ones(1, 64)
    torch.save(net.state_dict(), folder / "w.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(net, x).save(str(folder / "ts.pt"))
    torch.export.save(torch.export.export(net, (x,)), folder / "program.pt2")
    deployops.export_model(net, (x,), out=folder / "m.onnx")
    mark = net[2].weight.detach().numpy().tobytes()[:16]
    found = {}
    for name in ("w.pt", "ts.pt", "program.pt2", "m.onnx"):
        content = (folder / name).read_bytes()
        place = content.find(mark) + 3
        assert place > 3, name
        found[name] = content, place
    return found


def damaged(content: bytes, place: int, how: str) -> bytes:
    half = len(content) // 2
    return {
        "empty": b"",
        "first 100 bytes": content[:100],
        "half": content[:half],
        "last byte lost": content[:-1],
        "one bit flipped": content[:place] + bytes([content[place] ^ 0x04]) + content[place + 1 :],
        "zero-filled tail": content[:half] + bytes(len(content) - half),
        "garbage in front": b"\0" * 512 + content,
        "text-mode transfer": content.replace(b"\n", b"\r\n"),
    }[how]


HOW = [
    "empty",
    "first 100 bytes",
    "half",
    "last byte lost",
    "one bit flipped",
    "zero-filled tail",
    "garbage in front",
    "text-mode transfer",
]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", ["w.pt", "ts.pt", "program.pt2", "m.onnx"])
def test_it_is_refused(
    command: Any, whole: dict[str, tuple[bytes, int]], tmp_path: Path, name: str, how: str
) -> None:
    path = tmp_path / name
    path.write_bytes(damaged(*whole[name], how))
    if name == "m.onnx":
        runs = [command("validate", tmp_path / "absent.pt", "--onnx", path)]
        seen = command("inspect", path)
        assert seen.code == 2 or "empty file" in seen.out or "no model format" in seen.out
    else:
        (tmp_path / "factory.py").write_text(FACTORY)
        options = ["--model", f"{tmp_path / 'factory.py'}:net"] if name == "w.pt" else []
        runs = [command("export", path, "--input", "x:float32[1,64]", "-o", tmp_path / "out.onnx", *options)]
    for done in runs:
        assert done.code == 2, done.out
        assert done.err.startswith("error: ")
        assert name in done.err
        assert "Traceback" not in done.err
        assert "deployops met something it does not know" not in done.err
        assert len(done.err.strip().splitlines()) <= 3, done.err
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("name", ["w.pt", "ts.pt", "program.pt2"])
def test_the_whole_file_exports(
    command: Any, whole: dict[str, tuple[bytes, int]], tmp_path: Path, name: str, run_onnx: Any
) -> None:
    """The control: what the tests above damage is good."""
    path = tmp_path / name
    path.write_bytes(whole[name][0])
    (tmp_path / "factory.py").write_text(FACTORY)
    options = ["--model", f"{tmp_path / 'factory.py'}:net"] if name == "w.pt" else []
    done = command("export", path, "--input", "input:float32[1,64]", "-o", tmp_path / "out.onnx", *options)
    assert done.code == 0, done.err
    assert np.isfinite(run_onnx(tmp_path / "out.onnx", np.ones((1, 64), np.float32))[0]).all()


def test_a_missing_file_and_a_directory(command: Any, tmp_path: Path) -> None:
    for path, word in ((tmp_path / "absent.pt", "does not exist"), (tmp_path, "directory|folder|not a file")):
        import re

        for arguments in (["export", path], ["inspect", path]):
            done = command(*arguments)
            assert done.code == 2
            assert re.search(word, done.err, re.IGNORECASE), done.err
