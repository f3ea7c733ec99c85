"""`deployops inspect --tensorrt`: what it prints, its exit codes, its JSON; and that it needs neither torch nor TensorRT."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner

from deployops.cli import cli
from deployops.errors import UsageError
from deployops.export import inspect_model

from .parser_models import MODELS, PLUGINS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("found", "no version"):
        onnx.save(MODELS[name][0], tmp_path / f"{name}.onnx")
    (tmp_path / "plugins.json").write_text(json.dumps(PLUGINS))
    return tmp_path


def inspect(folder: Path, name: str, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["inspect", str(folder / f"{name}.onnx"), *arguments])
    return result.exit_code, result.output


def test_found_and_not_found(folder: Path) -> None:
    with_plugins = ("--tensorrt", "10.8", "--plugins", str(folder / "plugins.json"))
    code, text = inspect(folder, "found", *with_plugins)
    assert code == 0
    assert "plugin  1 × acme::Blur (with a plugin in plugins.json)" in text
    assert "runtime TensorRT 10.8: nothing found" in text
    assert "ONNX Runtime" not in text
    code, text = inspect(folder, "no version", *with_plugins)
    assert code == 1
    assert "FAILS   'the_node': Blur is looked for in version '1'" in text


def test_both_runtimes_where_both_are_asked_for(folder: Path) -> None:
    code, text = inspect(folder, "found", "--tensorrt-rtx", "1.7", "--runtime", "onnxruntime==1.23.2")
    assert code == 1
    assert "runtime ONNX Runtime 1.23.2" in text
    assert "runtime TensorRT-RTX 1.7" in text


def test_json_has_everything(folder: Path) -> None:
    plugins = str(folder / "plugins.json")
    code, text = inspect(folder, "no version", "--tensorrt", "10.8", "--plugins", plugins, "--json")
    assert code == 1
    content = json.loads(text)
    assert content["onnxruntime"] is None
    found = content["tensorrt"]
    assert found["verdict"] == "would fail"
    assert found["tensorrt"] == {"flavor": "tensorrt", "version": "10.8", "operators_of": "10.8"}
    assert [f["kind"] for f in found["findings"]] == ["plugin-version"]
    assert found["plugins"] == [{"name": "plugins.json", "sha256": None, "plugins": 1, "archs": []}]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--plugins", "p.json"), "say which version"),
        (("--arch", "89"), "say which version"),
        (("--tensorrt", "10.8", "--tensorrt-rtx", "1.7"), "one at a time"),
        (("--tensorrt", "ten"), "expected X.Y"),
        (("--tensorrt", "10.8", "--arch", "big"), "--arch big"),
        (("--tensorrt", "10.8", "--arch", "7"), "'7' is no compute capability"),
        (("--tensorrt", "10.8", "--plugins", "none.so"), "no such file"),
        (("--tensorrt", "10.8", "--plugins", "none.json"), "no such file"),
    ],
)
def test_wrong_use(folder: Path, arguments: tuple[str, ...], told: str) -> None:
    script = "import sys; from deployops.cli import main; sys.argv = sys.argv[1:]; main()"
    command = [sys.executable, "-c", script, "deployops", "inspect", "found.onnx", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_that_is_no_onnx_file(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("m/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("m/version", b"3")
    with pytest.raises(UsageError, match="are for ONNX models"):
        inspect_model(tmp_path / "m.pt", tensorrt="10.8")


def test_neither_torch_nor_a_runtime_is_loaded(folder: Path) -> None:
    script = (
        "import sys; from deployops.export import inspect_model\n"
        f"inspect_model({str(folder / 'found.onnx')!r}, tensorrt='10.8', plugins=[{str(folder / 'plugins.json')!r}])\n"
        "print(*(m for m in ('torch', 'onnxruntime', 'tensorrt', 'tensorrt_rtx', 'sympy') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
