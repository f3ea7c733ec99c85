"""Engines come out right, or it is said why not, whatever lies in the cache, and whatever is done to the files meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deployops.errors import UsageError
from deployops.native.file_contents import FILES
from deployops.trt_plugins.engines import build as build_module
from deployops.trt_plugins.engines.build import BuildError, build_engine
from deployops.trt_plugins.engines.cache import EngineCache
from deployops.trt_plugins.engines.record import EngineRecord
from deployops.trt_plugins.engines.sidecar import engine_file
from deployops.trt_plugins.engines.timing_cache import add_to_timing_cache, use_timing_cache
from deployops.trt_plugins.library import PluginLibrary

from .test_build_cache import Cache as TimingCache
from .test_build_cache import Config
from .test_show import record


def folder(path: Path) -> None:
    path.mkdir()
    (path / "inside").mkdir()


def kept(cache: EngineCache, key: str, content: bytes) -> EngineRecord:
    """An engine of this content in the cache."""
    with cache.build_folder() as made:
        engine = made / "engine"
        engine.write_bytes(content)
        told = record(engine)
        cache.keep(key, engine, told)
    return told


def test_an_engine_is_found_under_its_own_key_alone(tmp_path: Path) -> None:
    cache = EngineCache(tmp_path / "cache")
    records = {key: kept(cache, key, key.encode()) for key in ("ab12", "cd34")}
    for key, told in records.items():
        found = cache.find(key)
        assert found is not None
        assert (found[0].read_bytes(), found[1]) == (key.encode(), told)
    first, second = (tmp_path / "cache" / "records" / key[:2] / key for key in records)
    first.write_bytes(second.read_bytes())
    assert cache.find("ab12") is None


def test_where_the_cache_cannot_keep_it_the_engine_is_there_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = EngineCache(tmp_path / "cache")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deployops.native.cache_store.Store.put_object", full)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept(cache, "ab12", b"engine")
    assert cache.find("ab12") is None


def test_where_nothing_can_be_written_into_the_cache_another_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        cache = EngineCache(tmp_path / "file" / "cache")
    with cache.build_folder() as made:
        (made / "engine").write_bytes(b"x")
    assert not made.exists()


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("elsewhere")])
def test_what_lies_in_the_place_of_a_lock_is_no_hindrance(
    put: Callable[[Path], None], tmp_path: Path
) -> None:
    cache = EngineCache(tmp_path / "cache")
    lock = cache.lock_file(tmp_path / "m.engine")
    lock.parent.mkdir()
    put(lock)
    with cache.locked(tmp_path / "m.engine"):
        assert lock.is_file()
    assert not (lock.parent / "elsewhere").exists()


def test_two_libraries_with_one_plugin_are_refused(
    rtx: Path, engine_library: PluginLibrary, exported_with_plugin: Path, tmp_path: Path
) -> None:
    """TensorRT takes the first, leaves out all of the second, and builds."""
    other = tmp_path / "libother.so"
    other.write_bytes(engine_library.path.read_bytes() + b"\0")
    with pytest.raises(UsageError, match=r"no plugin of .*libother\.so.* Give one of the two"):
        build_engine(
            exported_with_plugin,
            out=tmp_path / "m.engine",
            archs=["sm89"],
            plugins=[engine_library.path, other],
        )
    assert not (tmp_path / "m.engine").exists()


def test_a_library_that_is_replaced_during_the_build_is_told(
    rtx: Path,
    engine_library: PluginLibrary,
    exported_with_plugin: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = tmp_path / "lib.so"
    shutil.copyfile(engine_library.path, library)
    ask = build_module.ask_worker

    def asking(*args: Any, **kwargs: Any) -> Any:
        end = ask(*args, **kwargs)
        (tmp_path / "new.so").write_bytes(library.read_bytes() + b"\0")
        (tmp_path / "new.so").replace(library)
        return end

    monkeypatch.setattr(build_module, "ask_worker", asking)
    with pytest.raises(BuildError, match=r"lib\.so changed while the engine was built"):
        build_engine(exported_with_plugin, out=tmp_path / "m.engine", archs=["sm89"], plugins=[library])
    assert not list(tmp_path.rglob("*.engine"))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.pop("plugins"),
        lambda m: m.update(format=2),
        lambda m: m.update(plugins=[3]),
        lambda m: m["plugins"][0].update(signatures="float16"),
        lambda m: m["plugins"][0].update(plugin_name=["\x1b[2J"]),
        lambda m: m.update(sha256="0" * 64),
    ],
)
def test_a_manifest_that_was_edited_does_not_decide_types(
    change: Callable[[dict[str, Any]], Any],
    rtx: Path,
    engine_library: PluginLibrary,
    exported_with_plugin: Path,
    tmp_path: Path,
) -> None:
    library = tmp_path / "lib.so"
    shutil.copyfile(engine_library.path, library)
    content = json.loads(engine_library.manifest.read_text())
    assert content["sha256"] == FILES.digest(str(library))
    change(content)
    library.with_suffix(".json").write_text(json.dumps(content))
    with pytest.raises(UsageError, match="deployops compile") as told:
        build_engine(exported_with_plugin, out=tmp_path / "m.engine", precision="fp16", plugins=[library])
    assert str(told.value).isprintable()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 100 kB: less than the engine."""
    path = tmp_path / "disk"
    path.mkdir()
    options = ["-t", "tmpfs", "-o", "size=100k,mode=0700", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(["mount", *options], capture_output=True).returncode:
        pytest.skip("not checked: no file system can be mounted here")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_a_disk_that_is_full_is_told_and_nothing_is_left(
    rtx: Path, exported: Path, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"m\.engine cannot be written: No space left on device"):
        build_engine(exported, out=small_disk / "m.engine", archs=["sm89"])
    assert not list(small_disk.rglob("*"))
    monkeypatch.setenv("DEPLOYOPS_CACHE", str(small_disk))
    with pytest.raises(UsageError, match=r"into the cache: No space left on device.*set DEPLOYOPS_CACHE"):
        build_engine(exported, out=tmp_path / "m.engine", archs=["sm89"])
    assert not (tmp_path / "m.engine").exists()


# --- the timing cache, with the stand-ins of test_build_cache --------------------------------------------------------


def test_a_pipe_is_no_timing_cache(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.cache")
    assert use_timing_cache(Config(), tmp_path / "t.cache", list).endswith("t.cache is not a regular file")


def test_what_was_timed_is_written_or_it_is_said(tmp_path: Path) -> None:
    config = Config()
    config.cache = TimingCache({"layer"})
    (tmp_path / "t.cache").mkdir()
    told = add_to_timing_cache(config, tmp_path / "t.cache", tmp_path / "lock")
    assert "what was timed is not kept" in told
    assert "t.cache" in told
    os.mkfifo(tmp_path / "no-folder")
    assert add_to_timing_cache(config, tmp_path / "u.cache", tmp_path / "no-folder" / "lock") == ""
    assert json.loads((tmp_path / "u.cache").read_text()) == ["layer"]


def test_an_engine_is_whole_however_it_is_read(tmp_path: Path) -> None:
    """A pipe has no size and no end."""
    os.mkfifo(tmp_path / "m.engine")
    with pytest.raises(UsageError, match="not a regular file"):
        engine_file(tmp_path / "m.engine")
