"""What `engine show` says: the sidecar, what holds here, what is not checked; and of bare engines what their first bytes say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from deployops.errors import ModelFileError, UsageError
from deployops.trt_plugins.engines.plan_header import PlanHeader, read_plan_header
from deployops.trt_plugins.engines.portability import Host
from deployops.trt_plugins.engines.record import EngineRecord, KeptFloat32, PluginFile, TensorRecord
from deployops.trt_plugins.engines.show import show_engine
from deployops.trt_plugins.engines.sidecar import sidecar_path, write_sidecar
from deployops.trt_plugins.engines.source_model import read_source_model

from .records import engine_record

HOST = Host("tensorrt-rtx", "1.7.1.116", "linux-x86_64", "sm86", "RTX 3080")


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    path = tmp_path / "net.engine"
    path.write_bytes(np.random.default_rng(1).bytes(500))
    write_sidecar(path, record(path))
    return path


def record(path: Path, **changes: Any) -> EngineRecord:
    plain: dict[str, Any] = {
        "flavor": "tensorrt-rtx",
        "tensorrt": "1.7.1.116",
        "archs": ("sm86", "sm89"),
        "gpu": None,
        "plugins": (PluginFile("libacme.so", "cd" * 32, False),),
        "kept_float32": tuple(KeptFloat32(f"/n{k}", "Pow", "a reason") for k in range(11)),
        "inputs": (TensorRecord("x", "float32", ("n", 3)),),
        "outputs": (TensorRecord("y", "float32", ("n", 3)),),
        "workspace": 2 << 30,
        "build_seconds": 1.25,
        "warnings": ("weights that became zero",),
    }
    return engine_record(path, **plain | changes)


def test_all_of_the_record_is_printed(engine: Path) -> None:
    shown = show_engine(engine, host=HOST)
    text = shown.summary()
    for part in (
        "TensorRT-RTX 1.7.1.116", "net.onnx", "sm86, sm89", "linux-x86_64", "fp16", "Pow /n0: a reason", "3 more nodes",
        "x: float32[n, 3]", "y: float32[n, 3]", "x=1x3,4x3,8x3", "libacme.so (to be loaded first)", "1.2 s",
        "weights that became zero", "here      TensorRT-RTX 1.7.1.116, linux-x86_64, RTX 3080 (sm86)",
    ):  # fmt: skip
        assert part in text, part
    assert shown.exit_code == 0
    assert "would not run" not in text
    assert "not checked: its plugin libraries, libacme.so" in text
    assert "not checked: that it loads and computes" in text
    assert json.loads(json.dumps(shown.to_dict()))["sidecar"]["archs"] == ["sm86", "sm89"]


def test_what_does_not_hold_here_ends_with_1(engine: Path) -> None:
    shown = show_engine(engine, host=replace(HOST, arch="sm75", gpu="T4"))
    assert shown.exit_code == 1
    assert (
        "would not run here: built for sm86, sm89, here is T4 (sm75): build it on this GPU" in shown.summary()
    )


def test_without_a_gpu_the_gpu_is_not_checked(engine: Path) -> None:
    shown = show_engine(engine, host=Host("tensorrt-rtx", None, "linux-x86_64"))
    assert shown.exit_code == 0
    assert any(
        line.startswith("the GPU: none was found here; it needs sm86, sm89") for line in shown.not_checked
    )
    assert any("the version: no TensorRT-RTX was found here" in line for line in shown.not_checked)


def test_given_a_model_and_libraries_they_are_compared(engine: Path, tmp_path: Path) -> None:
    model, library = tmp_path / "net.onnx", tmp_path / "libacme.so"
    onnx.save(
        parser.parse_model(
            '<ir_version: 9, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { y = Abs(x) }'
        ),
        model,
    )
    library.write_bytes(b"library")
    shown = show_engine(engine, model=model, plugins=[library], host=HOST)
    assert [p.partition(":")[0] for p in shown.problems] == [
        "built from another ONNX",
        "plugin library changed",
    ]
    import hashlib

    library_digest = hashlib.sha256(b"library").hexdigest()
    right = record(
        engine,
        model_sha256=read_source_model(model).sha256,
        plugins=(PluginFile("libacme.so", library_digest, False),),
    )
    write_sidecar(engine, right)
    shown = show_engine(engine, model=model, plugins=[library], host=HOST)
    assert not shown.problems
    assert len(shown.not_checked) == 1
    with pytest.raises(UsageError, match="no plugin library"):
        show_engine(engine, plugins=[tmp_path / "gone.so"], host=HOST)


def test_names_of_strangers_move_no_cursor(engine: Path) -> None:
    evil = "\x1b[2J\nwould not run here: nothing\r"
    write_sidecar(
        engine,
        record(
            engine,
            model=evil.replace("/", ""),
            warnings=(evil,),
            inputs=(TensorRecord(evil, evil, (evil,)),),
            profiles=(),
            gpu=evil,
        ),
    )
    lines = show_engine(engine, host=HOST).summary().split("\n")
    assert all(line.isprintable() for line in lines)
    assert not any(line.strip().startswith("would not run") for line in lines)


def test_a_damaged_sidecar_is_an_error(engine: Path) -> None:
    sidecar_path(engine).write_text("{")
    with pytest.raises(ModelFileError, match="does not describe an engine"):
        show_engine(engine, host=HOST)


# --- engines without a sidecar -----------------------------------------------------------------------------------


def test_nothing_is_claimed_of_other_files(tmp_path: Path) -> None:
    path = tmp_path / "net.engine"
    for content in (b"ftrt" + b"\1" * 60, b"\xf7\x01" * 60):
        path.write_bytes(content)
        assert read_plan_header(path) is None
        shown = show_engine(path)
        assert shown.exit_code == 0
        assert "not checked: whether it is an engine at all" in shown.summary()
    for content in (b"", b"x", b"ftrt", b"ftrt" + bytes(20)):
        path.write_bytes(content)
        shown = show_engine(path)
        assert shown.exit_code == 1
        assert shown.problems[0].startswith(
            "the engine is empty (0 bytes)" if not content else f"the engine has {len(content)} bytes"
        )
    with pytest.raises(UsageError, match="cannot be read"):
        show_engine(tmp_path / "gone.engine")


def test_an_engine_of_tensorrt_says_its_version_and_no_more(tmp_path: Path) -> None:
    """The bytes are as `trtexec --getPlanVersionOnly` reads them; no engine of TensorRT can be built here."""
    path = tmp_path / "net.engine"
    path.write_bytes(b"ftrt" + bytes(20) + bytes([10, 13, 3, 9]) + b"ftrt" + bytes(200))
    assert read_plan_header(path) == PlanHeader("tensorrt", "10.13.3.9")
    shown = show_engine(path, host=Host("tensorrt", "10.9.0.34", "linux-x86_64", "sm86"))
    assert "built by TensorRT 10.13.3.9, here is 10.9.0.34" in shown.problems[0], (
        "newer than the runtime: never"
    )
    newer = show_engine(path, host=Host("tensorrt", "10.16.1.11", "linux-x86_64", "sm86"))
    assert not newer.problems
    assert any("version compatible" in line for line in newer.not_checked)
    assert any("the GPU" in line for line in newer.not_checked)
    assert any("whole" in line for line in newer.not_checked)


BUILD = """
import sys
import tensorrt_rtx as trt
logger = trt.Logger(trt.Logger.ERROR)
for job in sys.argv[1:]:
    path, _, archs = job.partition("=")
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    x = network.add_input("x", trt.float32, (-1, 3))
    total = network.add_elementwise(x, x, trt.ElementWiseOperation.SUM)
    network.mark_output(total.get_output(0))
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 3), (4, 3), (8, 3))
    config = builder.create_builder_config()
    config.add_optimization_profile(profile)
    names = [a for a in archs.split(",") if a]
    if names:
        config.num_compute_capabilities = len(names)
    for k, name in enumerate(names):
        config.set_compute_capability(getattr(trt.ComputeCapability, name.upper()), k)
    open(path, "wb").write(builder.build_serialized_network(network, config))
runtime = trt.Runtime(logger)
print(trt.__version__, runtime.engine_header_size)
"""
ARCHS = ["", "sm75", "sm80", "sm86", "sm89", "sm120", "sm121", "sm86,sm89", "sm80,sm120"]


@pytest.fixture(scope="module")
def real(tensorrt_rtx: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Path]]:
    """Engines that TensorRT-RTX builds now, by their archs, and the version that it says it has."""
    place = tmp_path_factory.mktemp("engines")
    paths = {archs: place / f"{archs or 'portable'}.engine" for archs in ARCHS}
    jobs = [f"{path}={archs}" for archs, path in paths.items()]
    done = subprocess.run(
        [sys.executable, "-c", BUILD, *jobs],
        env={**os.environ, "PYTHONPATH": str(tensorrt_rtx)},
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    version, size = done.stdout.split()
    assert size == "64"
    return version, paths


@pytest.mark.parametrize("archs", ARCHS)
def test_engines_of_tensorrt_rtx_say_what_they_were_built_with(
    archs: str, real: tuple[str, dict[str, Path]]
) -> None:
    version, paths = real
    header = read_plan_header(paths[archs])
    assert header is not None
    assert (header.flavor, header.tensorrt) == ("tensorrt-rtx", version)
    assert header.bytes == paths[archs].stat().st_size
    assert header.portable == (archs == "")
    assert header.archs == tuple(archs.split(",") if archs else ())


def test_a_truncated_engine_without_a_sidecar_is_told(
    real: tuple[str, dict[str, Path]], tmp_path: Path
) -> None:
    content = real[1]["sm86,sm89"].read_bytes()
    cut = tmp_path / "cut.engine"
    cut.write_bytes(content[: len(content) // 2])
    shown = show_engine(cut, host=HOST)
    assert f"cut off: {len(content) // 2} of {len(content)} bytes" in shown.problems[0]
    cut.write_bytes(content)
    assert not show_engine(cut, host=HOST).problems
    assert "sm86, sm89" in show_engine(cut, host=replace(HOST, arch="sm120")).problems[0]
    assert "here is 1.8.0" in show_engine(cut, host=replace(HOST, tensorrt="1.8.0")).problems[0]


# --- `inspect`, given an engine ----------------------------------------------------------------------------------


def test_inspect_says_of_an_engine_what_is_known_of_it_and_that_it_is_no_model(
    command: Any, tmp_path: Path
) -> None:
    """The first bytes as TensorRT-RTX 1.7.1 writes them; the sidecar is of this engine."""
    path = tmp_path / "net.engine"
    path.write_bytes(b"vtrt" + bytes(20) + bytes([1, 7, 1, 116]) + bytes(36))
    bare = command("inspect", path)
    assert bare.code == 2
    assert not bare.out
    assert "net.engine is no model but a serialized engine of TensorRT-RTX" in bare.err
    assert "built by  TensorRT-RTX 1.7.1.116" in bare.err
    assert "no sidecar beside it" in bare.err
    write_sidecar(path, record(path))
    told = command("inspect", path)
    assert told.code == 2
    for part in (
        "sm86, sm89",
        "fp16",
        "x: float32[n, 3]",
        "x=1x3,4x3,8x3",
        "libacme.so (to be loaded first)",
    ):
        assert part in told.err, part


def test_inspect_does_not_take_another_engine_s_sidecar_for_its_own(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "net.engine"
    path.write_bytes(b"vtrt" + bytes(20) + bytes([1, 7, 1, 116]) + bytes(36))
    write_sidecar(path, replace(record(path), sha256="ab" * 32))
    assert "would not run here: " in command("inspect", path).err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<!DOCTYPE html><title>Sign in</title>", "it is no engine but a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", "run `git lfs pull`"),
        (b"\x1f\x8b\x08" + bytes(40), "a gzip archive; unpack it first"),
        (onnx.helper.make_model(onnx.helper.make_graph([], "a graph of some length", [], [])).SerializeToString(), "an ONNX model"),
    ],
)  # fmt: skip
def test_another_file_than_an_engine_is_told(
    command: Any, tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "net.engine"
    path.write_bytes(content)
    done = command("engine", "show", path)
    assert done.code == 1
    assert "would not run here: " in done.out
    assert words in done.out
