"""Case 20: an engine that would not run here is refused with the exact mismatch, before anything is deserialised."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deployops.trt_plugins.engines.portability import Host
from deployops.trt_plugins.engines.portability import problems as reasons
from deployops.trt_plugins.engines.record import EngineRecord, PluginFile
from deployops.trt_plugins.engines.show import show_engine
from deployops.trt_plugins.engines.sidecar import engine_file, read_sidecar, write_sidecar
from deployops.validation.backends import BACKENDS, Request

from ..trt_plugins.engines.records import engine_record

MODEL = hashlib.sha256(b"model-v1").hexdigest()
LIBRARY = hashlib.sha256(b"so-1").hexdigest()
HOST = Host("tensorrt", "10.13.3", "linux-x86_64", "sm86", "RTX 3080")

# what the case changes in the engine's record, and what it expects to be named
CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "same": ({}, ()),
    "other_gpu": ({"archs": ("sm75",), "gpu": "T4"}, ("sm75", "sm86")),
    "older_trt": ({"tensorrt": "8.2.1"}, ("8.2.1", "10.13.3")),
    "older_trt_vc": ({"tensorrt": "10.10.0", "version_compatible": True}, ()),
    "ampere_plus": ({"archs": ("sm80",), "gpu": "A100", "hardware_compatible": "ampere+"}, ()),
    "other_os": ({"platform": "win-x86_64"}, ("win-x86_64", "linux-x86_64")),
    "stale_onnx": ({"model_sha256": hashlib.sha256(b"model-v0").hexdigest()}, ("built from another ONNX",)),
    "plugin_rebuilt": (
        {"plugins": (PluginFile("libacme.so", "0" * 64, False),)},
        ("plugin library changed",),
    ),
}


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    file = tmp_path / "net.engine"
    file.write_bytes(b"ftrt" + np.random.default_rng(0).bytes(2048))
    write_sidecar(file, record(file))
    return file


def record(engine: Path, **changes: Any) -> EngineRecord:
    plain: dict[str, Any] = {
        "model_sha256": MODEL,
        "plugins": (PluginFile("libacme.so", LIBRARY, False),),
        "profiles": (),
    }
    return engine_record(engine, **plain | changes)


@pytest.mark.parametrize("name", CASES)
def test_the_engines_of_the_case(name: str, engine: Path) -> None:
    changes, words = CASES[name]
    write_sidecar(engine, record(engine, **changes))
    read = read_sidecar(engine)
    assert read is not None
    found = reasons(read, HOST, engine=engine_file(engine), model=MODEL, plugins={"libacme.so": LIBRARY})
    assert len(found) == bool(words), found
    for word in words:
        assert word in found[0]


@pytest.mark.parametrize("first", CASES)
@pytest.mark.parametrize("second", CASES)
def test_all_pairs_of_mismatches_are_all_named(first: str, second: str, engine: Path) -> None:
    """Each change brings its own line and hides no other's; of two changes of one field the later holds."""
    changes = CASES[first][0] | CASES[second][0]
    expected = {
        n
        for n, (own, words) in CASES.items()
        if words and own and all(changes.get(k) == v for k, v in own.items())
    }
    if changes.get("hardware_compatible") == "ampere+" or changes.get("archs") == ("sm80",):
        expected.discard("other_gpu")  # Ampere and newer, whatever it was built on
    if changes.get("version_compatible") and changes["tensorrt"] == "8.2.1":
        expected.add("older_trt")  # 8.2 knew no version compatibility
    found = reasons(record(engine, **changes), HOST, model=MODEL, plugins={"libacme.so": LIBRARY})
    assert len(found) == len(expected)
    for name in expected:
        assert any(all(word in line for word in CASES[name][1]) for line in found), name


@pytest.mark.parametrize(("content", "word"), [(b"", "empty"), (b"ftrt" + bytes(96), "cut off")])
def test_empty_and_truncated_files(content: bytes, word: str, engine: Path) -> None:
    engine.write_bytes(content)
    shown = show_engine(engine, host=HOST)
    assert word in shown.problems[0]
    assert shown.exit_code == 1
    assert f"would not run here: the engine is {word}" in shown.summary()


def test_the_backend_refuses_before_anything_native_is_loaded(engine: Path) -> None:
    """An engine of TensorRT-RTX given to TensorRT is told from the sidecar, with no TensorRT installed."""
    write_sidecar(engine, record(engine, flavor="tensorrt-rtx", tensorrt="1.7.1"))
    reason = BACKENDS["tensorrt"].missing(Request(engine=engine))
    assert "built by TensorRT-RTX, not TensorRT" in reason
