"""What the tests of inspection share: plugins by their description, and the parser of TensorRT-RTX to hold verdicts against."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

from deployops.native.compilers import find_cxx
from deployops.trt_plugins.library_manifest import PluginManifest, described_plugins

from ...packages import installed

HERE = Path(__file__).resolve().parent
RTX = "tensorrt-rtx==1.7.1.116"

Parse = Callable[[Mapping[str, onnx.ModelProto]], dict[str, Any]]


def plugins(*entries: dict[str, Any]) -> list[PluginManifest]:
    """As `--plugins FILE.json` reads them."""
    return [PluginManifest(Path("plugins.json"), described_plugins(list(entries), "plugins.json"), False)]


@pytest.fixture(scope="session")
def parse(tmp_path_factory: pytest.TempPathFactory) -> Parse:
    """What TensorRT-RTX's parser makes of models, by name (`run_parser.py`)."""
    folder = installed(RTX.replace("==", "-"), [RTX])
    work = tmp_path_factory.mktemp("parser")
    # Importing a plugin makes the parser load `libtensorrt_rtx.so`; the package has only `….so.1`.
    [real] = (folder / "tensorrt_rtx_libs").glob("libtensorrt_rtx.so.*")
    shim = work / "libtensorrt_rtx.so"
    flags = [f"-Wl,-soname,{shim.name}", "-Wl,--no-as-needed", f"-Wl,-rpath,{real.parent}"]
    subprocess.run([str(find_cxx().path), "-shared", *flags, str(real), "-o", str(shim)], check=True)

    def run(models: Mapping[str, onnx.ModelProto]) -> dict[str, Any]:
        texts = {name: base64.b64encode(m.SerializeToString()).decode() for name, m in models.items()}
        (work / "job.json").write_text(json.dumps(texts))
        command = [sys.executable, HERE / "run_parser.py", shim, work / "job.json", work / "result.json"]
        done = subprocess.run(
            list(map(str, command)),
            env={**os.environ, "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode < 0:
            return {"signal": -done.returncode}
        assert done.returncode == 0, done.stderr[-3000:]
        result: dict[str, Any] = json.loads((work / "result.json").read_text())
        return result

    return run
