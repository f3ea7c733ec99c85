"""Engines are built by TensorRT-RTX on a machine without a GPU, from what `deployops export` writes.

What an engine says of itself is read from its first bytes (`plan_header` says how they were found out): the tag, at 16 its
size, at 32 a bit for each of sm75, sm80, sm86, sm89, sm120, sm121. That engines run is not checked here.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from deployops.errors import UsageError
from deployops.symbolic.graph_inspection.file_kind import UNVERIFIED
from deployops.trt_plugins.engines.build import BuildError, build_engine
from deployops.trt_plugins.engines.sidecar import read_sidecar
from deployops.trt_plugins.library import PluginLibrary

BITS = {"sm75": 1, "sm80": 2, "sm86": 4, "sm89": 8, "sm120": 16, "sm121": 32}
F32 = TensorProto.FLOAT


def expect_engine(path: Path, archs: list[str]) -> bytes:
    content = path.read_bytes()
    assert content[:4] == b"vtrt"
    assert struct.unpack_from("<Q", content, 16)[0] == len(content)
    assert content[32] == sum(BITS[arch] for arch in archs)
    return content


def test_an_exported_model_becomes_an_engine_for_two_archs_with_its_recorded_ranges(
    rtx: Path, exported: Path, tmp_path: Path
) -> None:
    steps: list[str] = []
    out = tmp_path / "net.engine"
    engine = build_engine(exported, out=out, archs=["8.9", "sm_86"], progress=steps.append, workspace="1GiB")
    content = expect_engine(out, ["sm86", "sm89"])
    record = engine.record
    assert not engine.cached
    assert record == read_sidecar(out)
    assert (record.engine, record.sha256, record.bytes) == (
        "net.engine",
        sha256(content).hexdigest(),
        len(content),
    )
    assert (record.flavor, record.tensorrt, record.archs, record.gpu) == (
        "tensorrt-rtx",
        "1.7.1.116",
        ("sm86", "sm89"),
        None,
    )
    assert (record.model, record.model_sha256) == ("net.onnx", sha256(exported.read_bytes()).hexdigest())
    assert record.profiles == ({"x": ((1, 3, 8, 8), (8, 3, 16, 16), (64, 3, 64, 64))},)
    assert [(t.name, t.dtype, t.dims) for t in record.inputs] == [("x", "float32", ("n", 3, "h", "w"))]
    assert [(t.name, t.dtype, t.dims) for t in record.outputs] == [("output", "float32", ("n", 5))]
    assert (record.precision, record.workspace, record.warnings) == ("as exported", 2**30, ())
    assert record.build_seconds > 0
    assert "parsing net.onnx" in steps
    assert any(step.startswith("Building engine, ") for step in steps)  # TensorRT's own progress
    assert not list(tmp_path.glob(".*"))  # no temporary file is left


def test_without_archs_it_is_for_ampere_and_newer(rtx: Path, exported: Path, tmp_path: Path) -> None:
    engine = build_engine(exported, out=tmp_path / "net.engine")
    assert (engine.record.archs, engine.record.hardware_compatible) == ((), "ampere+")
    # all from 8.0 on, and one bit more than there are archs: for those to come
    assert engine.path.read_bytes()[32] == 2 + 4 + 8 + 16 + 32 + 64
    assert "8.0 and newer" in engine.summary()


def test_several_profiles_are_built_in_their_order(rtx: Path, exported: Path, tmp_path: Path) -> None:
    texts = ["x=1x3x8x8", "x=1x3x16x16,8x3x32x32,16x3x64x64"]
    engine = build_engine(exported, out=tmp_path / "net.engine", archs=["sm89"], profiles=texts)
    assert [list(p["x"]) for p in engine.record.profiles] == [
        [(1, 3, 8, 8)] * 3,
        [(1, 3, 16, 16), (8, 3, 32, 32), (16, 3, 64, 64)],
    ]
    one = build_engine(exported, out=tmp_path / "one.engine", archs=["sm89"], profiles=texts[:1])
    assert engine.record.bytes > one.record.bytes  # code for both


@pytest.mark.parametrize("embed", [False, True])
def test_a_model_with_a_plugin_is_built_for_two_archs(
    rtx: Path, exported_with_plugin: Path, engine_library: PluginLibrary, tmp_path: Path, embed: bool
) -> None:
    engine = build_engine(
        exported_with_plugin,
        out=tmp_path / "scaled.engine",
        archs=["sm80", "sm89"],
        plugins=[engine_library.path],
        embed_plugins=embed,
    )
    content = expect_engine(engine.path, ["sm80", "sm89"])
    [plugin] = engine.record.plugins
    library = engine_library.path.read_bytes()
    assert (plugin.name, plugin.embedded) == ("libdeployops_trt.so", embed)
    assert plugin.sha256 == sha256(library).hexdigest()
    assert (library[-4096:] in content) == embed
    assert engine.record.profiles == ({"x": ((1, 7), (4, 7), (16, 7))},)


def test_a_library_that_no_node_needs_is_told_and_not_recorded(
    rtx: Path, exported: Path, engine_library: PluginLibrary, tmp_path: Path
) -> None:
    engine = build_engine(exported, out=tmp_path / "m.engine", archs=["sm89"], plugins=[engine_library.path])
    assert engine.record.plugins == ()
    assert engine.record.warnings == ("no node needs a plugin: libdeployops_trt.so can be left out",)


def save(
    path: Path, nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], weights: Any = ()
) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, t, d) for n, (t, d) in inputs.items()],
        [helper.make_tensor_value_info(n, t, d) for n, (t, d) in outputs.items()],
        list(weights),
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


# --- types -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_cast_model_has_half_the_weights_and_the_same_inputs_and_outputs(
    rtx: Path, tmp_path: Path, precision: Any
) -> None:
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.standard_normal((1024, 1024), dtype=np.float32), "w")
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="mm")],
        {"x": (F32, ["n", 1024])},
        {"y": (F32, ["n", 1024])},
        [weight],
    )
    given = {"profiles": ["x=1x1024,4x1024,8x1024"], "archs": ["sm89"]}
    plain = build_engine(model, out=tmp_path / "plain.engine", **given)
    cast = build_engine(model, out=tmp_path / "cast.engine", precision=precision, **given)
    assert cast.record.precision == precision
    # 2 bytes less for each of 2**20 weights; the code of the casts is what is added
    assert 0.85 < (plain.record.bytes - cast.record.bytes) / (2 * 1024 * 1024) < 1.05
    assert [t.dtype for t in (*cast.record.inputs, *cast.record.outputs)] == ["float32", "float32"]


def test_what_stays_float32_is_in_the_record(rtx: Path, exported: Path, tmp_path: Path) -> None:
    engine = build_engine(
        exported, out=tmp_path / "net.engine", archs=["sm89"], precision="fp16", keep_float32=["Softmax"]
    )
    kept = {k.operator for k in engine.record.kept_float32}
    assert "Softmax" in kept
    assert "stay" in engine.summary()


def test_weights_that_do_not_fit_the_type_stay_float32_and_it_is_said(rtx: Path, tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.full((4, 4), 1e6, np.float32), "w")  # float16 ends at 65504
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="mm")],
        {"x": (F32, [2, 4])},
        {"y": (F32, [2, 4])},
        [weight],
    )
    engine = build_engine(model, out=tmp_path / "m.engine", precision="fp16")
    [kept] = engine.record.kept_float32
    assert (kept.node, kept.operator) == ("mm", "MatMul")
    assert "65,504" in kept.reason
    assert "1 node stays float32: MatMul" in engine.summary()


def test_fp32_is_asked_of_a_float32_model_alone(rtx: Path, exported: Path, tmp_path: Path) -> None:
    assert (
        build_engine(exported, out=tmp_path / "net.engine", precision="fp32", archs=["sm89"]).record.precision
        == "fp32"
    )
    half = save(
        tmp_path / "half.onnx",
        [helper.make_node("Relu", ["x"], ["y"])],
        {"x": (TensorProto.FLOAT16, [2])},
        {"y": (TensorProto.FLOAT16, [2])},
    )
    with pytest.raises(UsageError, match=r"half\.onnx is not float32: `x` is float16"):
        build_engine(half, out=tmp_path / "half.engine", precision="fp32")
    assert build_engine(half, out=tmp_path / "half.engine").record.inputs[0].dtype == "float16"


def test_a_quantised_model_is_built(rtx: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.integers(-127, 127, (64, 64), dtype=np.int8), "w"),
        numpy_helper.from_array(np.float32(0.1), "sx"),
        numpy_helper.from_array(np.float32(0.02), "sw"),
        numpy_helper.from_array(np.int8(0), "zero"),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zero"], ["qx"], name="q"),
        helper.make_node("DequantizeLinear", ["qx", "sx", "zero"], ["dx"], name="dq"),
        helper.make_node("DequantizeLinear", ["w", "sw", "zero"], ["dw"], name="dqw"),
        helper.make_node("MatMul", ["dx", "dw"], ["y"], name="mm"),
    ]
    model = save(tmp_path / "q.onnx", nodes, {"x": (F32, [8, 64])}, {"y": (F32, [8, 64])}, weights)
    expect_engine(build_engine(model, out=tmp_path / "q.engine", archs=["sm89"]).path, ["sm89"])


@pytest.mark.parametrize(("onnx_type", "name"), [(TensorProto.DOUBLE, "float64")])
def test_types_that_tensorrt_would_change_without_a_word_are_refused(
    rtx: Path, tmp_path: Path, onnx_type: int, name: str
) -> None:
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("Add", ["x", "x"], ["y"])],
        {"x": (onnx_type, [2])},
        {"y": (onnx_type, [2])},
    )
    with pytest.raises(BuildError) as caught:
        build_engine(model, out=tmp_path / "m.engine")
    assert f"`x` is {name} in the model, and float32 in the engine" in str(caught.value)
    assert not (tmp_path / "m.engine").exists()


def test_float64_inside_a_model_is_told(rtx: Path, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], name="up", to=TensorProto.DOUBLE),
        helper.make_node("Mul", ["wide", "w"], ["product"]),
        helper.make_node("Cast", ["product"], ["y"], name="down", to=F32),
    ]
    weight = numpy_helper.from_array(np.full(2, 1 / 3), "w")
    model = save(tmp_path / "m.onnx", nodes, {"x": (F32, [2])}, {"y": (F32, [2])}, [weight])
    [unverified, told] = build_engine(model, out=tmp_path / "m.engine").record.warnings
    assert unverified == UNVERIFIED
    assert told == (
        "TensorRT computes in float32 what is float64 in the model: the weight `w` is float64 and 1 more"
    )


def test_an_opset_that_nobody_knows_is_told(rtx: Path, tmp_path: Path) -> None:
    model = save(
        tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], {"x": (F32, [2])}, {"y": (F32, [2])}
    )
    proto = onnx.load(model)
    proto.opset_import[0].version = 99
    model.write_bytes(proto.SerializeToString())
    [_, told] = build_engine(model, out=tmp_path / "m.engine").record.warnings
    assert told.startswith("the model says opset 99, and onnx ")


# --- side files --------------------------------------------------------------------------------------------------


def large(tmp_path: Path) -> Path:
    weight = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": (F32, [2, 64])},
        {"y": (F32, [2, 64])},
        [weight],
    )
    proto = onnx.load(model)
    onnx.save_model(proto, model, save_as_external_data=True, location="m.data", size_threshold=0)
    return model


@pytest.mark.parametrize("precision", [None, "fp16"])
def test_weights_in_a_side_file_are_found(
    rtx: Path, tmp_path: Path, precision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = large(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    engine = build_engine(Path("..") / "m.onnx", out="m.engine", precision=precision)
    assert engine.record.bytes > 64 * 64 * 2
    assert engine.record.model_sha256 != sha256(model.read_bytes()).hexdigest()  # of both files


def test_a_change_of_the_side_file_is_another_model(rtx: Path, tmp_path: Path) -> None:
    model = large(tmp_path)
    first = build_engine(model, out=tmp_path / "m.engine")
    (tmp_path / "m.data").write_bytes(np.full((64, 64), 2.0, np.float32).tobytes())
    second = build_engine(model, out=tmp_path / "m.engine")
    assert not second.cached
    assert first.record.model_sha256 != second.record.model_sha256
    assert first.record.sha256 != second.record.sha256


# --- shape inputs ------------------------------------------------------------------------------------------------


def reshaped(tmp_path: Path) -> Path:
    return save(
        tmp_path / "m.onnx",
        [helper.make_node("Reshape", ["x", "size"], ["y"], name="reshape")],
        {"x": (F32, ["n", 8]), "size": (TensorProto.INT64, [2])},
        {"y": (F32, None)},
    )


def test_an_input_that_shapes_are_made_of_has_a_range_of_values(rtx: Path, tmp_path: Path) -> None:
    engine = build_engine(
        reshaped(tmp_path), out=tmp_path / "m.engine", profiles=["x=1x8,2x8,4x8; size=1x8,2x8,4x8"]
    )
    assert engine.record.profiles[0]["size"] == ((1, 8), (2, 8), (4, 8))


def test_without_it_the_error_says_what_to_write(rtx: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        build_engine(reshaped(tmp_path), out=tmp_path / "m.engine", profiles=["x=1x8,2x8,4x8"])
    assert "makes shapes of the values of `size`" in str(caught.value)
    assert "--profile 'size=1x1,8x8,32x32'" in str(caught.value)


# --- the command -------------------------------------------------------------------------------------------------


def test_the_command_builds_shows_and_prints_json(
    rtx: Path, exported: Path, tmp_path: Path, command: Callable[..., Any]
) -> None:
    out = tmp_path / "net.engine"
    done = command(
        "engine", "build", exported, "-o", out, "--flavor", "tensorrt-rtx", "--arch", "sm86,sm89", "--workspace", "2GiB",
        "--profile", "x=1x3x8x8,2x3x8x8,4x3x8x8",
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    assert "sm86, sm89" in done.out
    assert "x=1x3x8x8,2x3x8x8,4x3x8x8" in done.out
    assert "not checked: that it runs" in done.out
    again = command(
        "engine", "build", exported, "-o", out, "--arch", "86,89", "--workspace", "2GiB", "--json",
        "--profile", "x=1x3x8x8,2x3x8x8,4x3x8x8",
    )  # fmt: skip
    told = json.loads(again.out)
    assert (again.code, told["cached"], told["archs"]) == (0, True, ["sm86", "sm89"])
    assert told["path"] == str(out)
    shown = command("engine", "show", out)
    assert shown.code == 0
    assert "1.7.1" in shown.out


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            ["--arch", "sm89,"],
            "'' is no compute capability; expected such as 89, sm_89 or 8.9, with commas between",
        ),
        (["--arch", "ampere"], "'ampere' is no compute capability"),
        (["--arch", "sm90"], "does not build for sm90; it builds for sm75, sm80"),
        (["--workspace", "lots"], "expected a size such as 2GiB"),
        (["--embed-plugins"], "embed_plugins needs plugin libraries"),
        (["--plugins", "none.so"], "there is no such plugin library"),
        (["--keep-float32", "Softmax"], "keep_float32 names what the precisions fp16 and bf16 leave alone"),
        (["--timing-cache", "t.cache"], "times nothing while it builds"),
    ],
)
def test_wrong_use_is_exit_code_2(
    rtx: Path, exported: Path, tmp_path: Path, command: Callable[..., Any], options: list[str], reason: str
) -> None:
    done = command("engine", "build", exported, "-o", tmp_path / "m.engine", *options)
    assert done.code == 2
    assert reason in done.err
    assert not (tmp_path / "m.engine").exists()
