"""The key of a cached engine holds whatever decides that a model is refused: else a stricter rule would not reach it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import deployops
from deployops.trt_plugins.engines import cache
from deployops.trt_plugins.engines.cache import cache_key, own_files
from deployops.trt_plugins.library import PluginLibrary

ROOT = Path(deployops.__file__).resolve().parent

# What a build refuses, it refuses in this process; which files it was refused by is seen when it ends.
BUILD = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from deployops.trt_plugins.engines.build import build_engine
build_engine(sys.argv[2], out=sys.argv[3], archs=["sm89"], precision="fp16", plugins=[sys.argv[4]])
print(json.dumps([m.__file__ for n, m in sys.modules.items() if n.startswith("deployops.") and m.__file__]))
"""


def test_all_that_a_build_loads_is_in_the_key(
    rtx: Path, exported_with_plugin: Path, engine_library: PluginLibrary, tmp_path: Path
) -> None:
    arguments = [json.dumps(sys.path), exported_with_plugin, tmp_path / "m.engine", engine_library.path]
    done = subprocess.run(
        [sys.executable, "-c", BUILD, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    loaded = {Path(file).resolve() for file in json.loads(done.stdout.splitlines()[-1])}
    rules = {"trt_plugins/inspection/node_attributes.py", "symbolic/plugin_attributes.py"}
    assert rules <= {str(path.relative_to(ROOT)) for path in loaded}
    assert loaded <= set(own_files())


@pytest.mark.parametrize(
    "file",
    [
        "errors.py",
        "native/kernel_manifest.py",
        "symbolic/graph_inspection/expansion.py",
        "trt_plugins/engines/casting/rules.py",
        "trt_plugins/fitted_nodes.py",
        "trt_plugins/inspection/check.py",
        "trt_plugins/library_manifest.py",
        "trt_plugins/tensorrt_operators.json",
    ],
)
def test_a_changed_rule_makes_another_key(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Changed:
        @staticmethod
        def digest(path: str) -> str:
            return "another" if path == str(ROOT / file) else digest(path)

    digest = cache.FILES.digest
    before = cache_key(model="m")
    assert cache_key(model="m") == before
    monkeypatch.setattr(cache, "FILES", Changed)
    cache._ours.cache_clear()
    try:
        assert cache_key(model="m") != before
    finally:
        cache._ours.cache_clear()
