"""Engines are built once for the same input; several pipelines at once lose nothing; timing caches are shared."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from deployops.trt_plugins.engines import build as build_module
from deployops.trt_plugins.engines.build import Engine, build_engine
from deployops.trt_plugins.engines.sidecar import read_sidecar
from deployops.trt_plugins.engines.timing_cache import add_to_timing_cache, use_timing_cache
from deployops.trt_plugins.library import PluginLibrary


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of TensorRT from now on."""
    asked: list[str] = []
    ask = build_module.ask_worker

    def asking(tensorrt: Any, request: Any, progress: Any = None, **options: Any) -> Any:
        asked.append(request["do"])
        return ask(tensorrt, request, progress, **options)

    monkeypatch.setattr(build_module, "ask_worker", asking)
    return asked


def test_the_same_is_built_once(
    rtx: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = counted(monkeypatch)
    first = build_engine(exported, out=tmp_path / "a.engine", archs=["sm89"])
    second = build_engine(exported, out=tmp_path / "b.engine", archs=["sm89", "sm89"])
    assert (first.cached, second.cached, asked) == (False, True, ["build"])
    assert second.path.read_bytes() == first.path.read_bytes()
    record = read_sidecar(second.path)
    assert record is not None
    assert record.engine == "b.engine"
    assert record.build_seconds == first.record.build_seconds
    assert "taken from the cache" in second.summary()


def test_every_input_of_a_build_counts(
    rtx: Path, exported_with_plugin: Path, engine_library: PluginLibrary, tmp_path: Path
) -> None:
    base: dict[str, Any] = {"archs": ["sm89"], "plugins": [engine_library.path]}
    rebuilt = tmp_path / "libdeployops_trt.so"
    rebuilt.write_bytes(engine_library.path.read_bytes() + b"\0")
    variants: list[dict[str, Any]] = [
        {},
        {"archs": ["sm86"]},
        {"profiles": ["x=1x7,2x7,4x7"]},
        {"precision": "fp32"},
        {"workspace": "64MiB"},
        {"embed_plugins": True},
        {"plugins": [rebuilt]},
    ]
    for variant in variants:
        built = build_engine(exported_with_plugin, out=tmp_path / "m.engine", **base | variant)
        assert not built.cached, variant
    for variant in variants:
        assert build_engine(exported_with_plugin, out=tmp_path / "m.engine", **base | variant).cached, variant


def test_without_the_cache_it_is_built_again_and_nothing_is_kept(
    rtx: Path, exported: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        assert not build_engine(exported, out=tmp_path / "m.engine", archs=["sm89"], cache=False).cached
    assert not list((tmp_path / "cache").rglob("*.engine"))


def test_a_damaged_engine_in_the_cache_is_built_again(rtx: Path, exported: Path, tmp_path: Path) -> None:
    first = build_engine(exported, out=tmp_path / "m.engine", archs=["sm89"])
    [kept] = (tmp_path / "cache").rglob("*.engine")
    kept.write_bytes(kept.read_bytes()[:-1])
    second = build_engine(exported, out=tmp_path / "m.engine", archs=["sm89"])
    assert not second.cached
    assert second.record.bytes == first.record.bytes


def test_pipelines_at_once_all_get_whole_engines(rtx: Path, exported: Path, tmp_path: Path) -> None:
    """In threads, and in another process; to one file, and to files of their own."""
    outs = [tmp_path / "same.engine", tmp_path / "same.engine", tmp_path / "own.engine"]
    made: list[Engine] = []
    threads = [
        threading.Thread(target=lambda out=out: made.append(build_engine(exported, out=out, archs=["sm89"])))
        for out in outs
    ]
    code = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1])\n"
        "from deployops.trt_plugins.engines.build import build_engine\n"
        "build_engine(sys.argv[2], out=sys.argv[3], archs=['sm89'])"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(sys.path), str(exported), str(tmp_path / "other.engine")]
    )
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert other.wait() == 0
    assert len(made) == 3
    for path in {*outs, tmp_path / "other.engine"}:
        record = read_sidecar(path)
        assert record is not None
        assert sha256(path.read_bytes()).hexdigest() == record.sha256
    assert not list(tmp_path.glob(".*"))
    assert build_engine(exported, out=tmp_path / "m.engine", archs=["sm89"]).cached


# --- the timing cache --------------------------------------------------------------------------------------------
# TensorRT-RTX times nothing, and TensorRT needs a GPU: these are the calls of its documentation (ITimingCache,
# IBuilderConfig) with sets of entries behind them. With TensorRT itself: not checked.


class Cache:
    def __init__(self, entries: set[str]) -> None:
        self.entries = entries

    def combine(self, other: Cache, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        self.entries |= other.entries
        return True

    def serialize(self) -> bytes:
        return json.dumps(sorted(self.entries)).encode()


class Config:
    def __init__(self) -> None:
        self.log: list[str] = []
        self.cache: Cache | None = None

    def create_timing_cache(self, content: bytes) -> Cache:
        try:
            return Cache(set(json.loads(content)) if content else set())
        except ValueError:  # as TensorRT does: an empty one, and a message
            self.log.append("Failed to deserialize timing cache. Returning an empty timing cache.")
            return Cache(set())

    def set_timing_cache(self, cache: Cache, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        self.cache = cache
        return True

    def get_timing_cache(self) -> Cache | None:
        return self.cache


def timed(folder: Path, *entries: str) -> Config:
    config = Config()
    assert not use_timing_cache(config, folder / "t.cache", lambda: config.log)
    assert config.cache is not None
    config.cache.entries |= set(entries)
    return config


def test_what_builds_time_at_once_is_all_kept(tmp_path: Path) -> None:
    configs = [timed(tmp_path, f"layer {k}") for k in range(8)]  # all began with an empty one
    threads = [
        threading.Thread(target=add_to_timing_cache, args=(c, tmp_path / "t.cache", tmp_path / "lock"))
        for c in configs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert json.loads((tmp_path / "t.cache").read_bytes()) == [f"layer {k}" for k in range(8)]
    config = timed(tmp_path)
    assert config.cache is not None
    assert len(config.cache.entries) == 8
    assert not list(tmp_path.glob(".*"))


def test_a_file_that_is_no_timing_cache_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "t.cache").write_text("not one")
    config = Config()
    why = use_timing_cache(config, tmp_path / "t.cache", lambda: config.log)
    assert why == "TensorRT says: Failed to deserialize timing cache. Returning an empty timing cache."
    assert (tmp_path / "t.cache").read_text() == "not one"


class Refusing(Config):
    """Of a cache that was timed on another GPU."""

    def set_timing_cache(self, cache: Cache, ignore_mismatch: bool) -> bool:
        self.log.append("[builder.cpp::set::12] Device of the timing cache does not match: cannot be used.")
        return False


class Silent(Config):
    def set_timing_cache(self, cache: Cache, ignore_mismatch: bool) -> bool:
        return False


def test_why_a_timing_cache_is_refused_is_said(tmp_path: Path) -> None:
    (tmp_path / "t.cache").write_text('["layer"]')
    told = [
        use_timing_cache(config, tmp_path / "t.cache", lambda c=config: c.log)
        for config in (Refusing(), Silent())
    ]
    assert told[0] == "TensorRT says: Device of the timing cache does not match: cannot be used."
    assert told[1].startswith("it was timed on another GPU or by another TensorRT")
