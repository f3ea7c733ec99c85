"""What TensorRT refuses is told by node, with the reason and with what to do; what crashes it is told as a crash of its."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper

from deployops import export_model
from deployops.errors import ModelFileError, NotCheckedError, UsageError
from deployops.native.compilers import find_cxx
from deployops.trt_plugins.engines.build import BuildError, build_engine
from deployops.trt_plugins.engines.gpu import gpu
from deployops.trt_plugins.library import PluginLibrary

F32 = TensorProto.FLOAT
Tensors = dict[str, tuple[int, Any]]


def save(
    path: Path,
    nodes: list[Any],
    inputs: Tensors,
    outputs: Tensors,
    domains: tuple[str, ...] = (),
    functions: tuple[Any, ...] = (),
) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, t, d) for n, (t, d) in inputs.items()],
        [helper.make_tensor_value_info(n, t, d) for n, (t, d) in outputs.items()],
    )
    opsets = [helper.make_opsetid("", 20), *(helper.make_opsetid(d, 1) for d in domains)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions), path)
    return path


def custom(path: Path, op_type: str, domain: str = "acme", **attributes: Any) -> Path:
    node = helper.make_node(op_type, ["x"], ["y"], name="/blur/0", domain=domain, **attributes)
    return save(path, [node], {"x": (F32, [2, 4])}, {"y": (F32, None)}, (domain,))


def refusal(model: Path, **options: Any) -> str:
    with pytest.raises(BuildError) as caught:
        build_engine(model, out=model.with_suffix(".engine"), **options)
    assert not model.with_suffix(".engine").exists()
    assert caught.value.exit_code == 1
    return str(caught.value)


# --- plugins that are not found ----------------------------------------------------------------------------------


def test_a_plugin_that_is_not_given_is_named_with_version_and_namespace(rtx: Path, tmp_path: Path) -> None:
    text = refusal(custom(tmp_path / "m.onnx", "Blur", plugin_version="2", plugin_namespace="vision"))
    assert "node '/blur/0' (acme::Blur)" in text
    assert "no plugin is called Blur, version 2, in namespace 'vision': no library was given" in text
    assert "deployops compile --target tensorrt" in text
    assert "creator &&" not in text


def test_a_near_plugin_is_shown(rtx: Path, engine_library: PluginLibrary, tmp_path: Path) -> None:
    model = custom(tmp_path / "m.onnx", "Scaled", "enginepack", factor=2.0, plugin_version="3")
    text = refusal(model, plugins=[engine_library.path])
    wanted = "no plugin is called Scaled, version 3, in namespace 'enginepack'"
    assert f"{wanted}; there is Scaled, version 1, in 'enginepack'" in text


def test_a_library_without_the_plugin_is_named(
    rtx: Path, engine_library: PluginLibrary, tmp_path: Path
) -> None:
    text = refusal(custom(tmp_path / "m.onnx", "Blur"), plugins=[engine_library.path])
    assert "in namespace 'acme': libdeployops_trt.so has none" in text


def test_a_plugin_missing_in_a_function_s_body_is_told_with_the_function(rtx: Path, tmp_path: Path) -> None:
    inner = helper.make_node("Inner", ["a"], ["b"], name="inside", domain="acme")
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("acme", 1)]
    body = helper.make_function("acme", "Outer", ["a"], ["b"], [inner], imports)
    node = helper.make_node("Outer", ["x"], ["y"], name="call", domain="acme")
    model = save(tmp_path / "m.onnx", [node], {"x": (F32, [2])}, {"y": (F32, None)}, ("acme",), (body,))
    assert "node 'inside' (acme::Inner) in the body of call (Outer)" in refusal(model)


def test_what_a_plugin_says_is_told_at_its_node(
    rtx: Path, engine_library: PluginLibrary, tmp_path: Path
) -> None:
    node = helper.make_node("Scaled", ["x"], ["y"], name="ints", domain="enginepack", factor=2.0)
    types: Tensors = {"x": (TensorProto.INT32, [2])}
    model = save(tmp_path / "m.onnx", [node], types, {"y": (TensorProto.INT32, None)}, ("enginepack",))
    assert "node 'ints' (enginepack::Scaled)" in refusal(model, plugins=[engine_library.path])


def test_an_operator_of_onnx_runtime_is_not_taken_for_onnx_s_of_that_name(rtx: Path, tmp_path: Path) -> None:
    """com.microsoft::RotaryEmbedding has its inputs in another order than ONNX's of opset 23."""
    nodes = [
        helper.make_node("RotaryEmbedding", ["x", "p", "c", "s"], ["r"], name="rope", domain="com.microsoft"),
        helper.make_node("Gelu", ["r"], ["y"], domain="com.microsoft"),
    ]
    f, i = (F32, [2, 3, 4, 8]), (TensorProto.INT64, [2, 4])
    inputs: Tensors = {"x": f, "p": i, "c": (F32, [16, 4]), "s": (F32, [16, 4])}
    model = save(tmp_path / "m.onnx", nodes, inputs, {"y": (F32, None)}, ("com.microsoft",))
    text = refusal(model)
    assert "'rope': com.microsoft::RotaryEmbedding is taken for the standard operator" in text
    assert "Gelu" not in text


def test_a_custom_node_that_would_be_taken_for_a_standard_operator_is_refused(
    rtx: Path, tmp_path: Path
) -> None:
    text = refusal(custom(tmp_path / "m.onnx", "Relu"))
    assert "'/blur/0': acme::Relu is taken for the standard operator Relu" in text
    assert "Give the operator another ONNX name" in text


# --- nodes -------------------------------------------------------------------------------------------------------


def test_an_operator_that_tensorrt_lacks_is_named(rtx: Path, tmp_path: Path) -> None:
    node = helper.make_node("Det", ["x"], ["y"], name="/det")
    text = refusal(save(tmp_path / "m.onnx", [node], {"x": (F32, [4, 4])}, {"y": (F32, None)}))
    assert "node '/det' (Det): TensorRT-RTX 1.7.1.116 does not have this operator of ONNX" in text


def test_a_node_without_a_name_is_known_by_its_output(rtx: Path, tmp_path: Path) -> None:
    node = helper.make_node("Det", ["x"], ["y"])
    text = refusal(save(tmp_path / "m.onnx", [node], {"x": (F32, [4, 4])}, {"y": (F32, None)}))
    assert "node '-> y' (Det)" in text


def test_shapes_that_do_not_go_together_are_told_in_tensorrt_s_words_without_its_places(
    rtx: Path, tmp_path: Path
) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="/mm")
    model = save(tmp_path / "m.onnx", [node], {"x": (F32, [4, 8]), "w": (F32, [4, 8])}, {"y": (F32, None)})
    [line] = refusal(model).splitlines()[1:]
    assert line.startswith(
        "  node '/mm' (MatMul): last dimension of input0 = 8 and second to last dimension of input1 = 4"
    )
    assert ".cpp" not in line
    assert "cuda" not in line.lower()


def test_types_that_do_not_go_together_are_told_with_what_to_do(rtx: Path, tmp_path: Path) -> None:
    node = helper.make_node("Add", ["x", "h"], ["y"], name="/add")
    model = save(
        tmp_path / "m.onnx", [node], {"x": (F32, [4]), "h": (TensorProto.FLOAT16, [4])}, {"y": (F32, None)}
    )
    text = refusal(model)
    assert "node '/add' (Add): ElementWiseOperation SUM must have same input types" in text
    assert "put a Cast before the node" in text


def test_a_type_that_tensorrt_lacks_is_told_at_its_input(rtx: Path, tmp_path: Path) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    tensors: Tensors = {"x": (TensorProto.UINT16, [4])}
    text = refusal(save(tmp_path / "m.onnx", [node], tensors, {"y": (TensorProto.UINT16, [4])}))
    assert "input `x` (uint16)" in text
    assert "cast it to one of these" in text


def test_what_the_builder_refuses_for_a_gpu_is_told_at_its_node(rtx: Path, tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="mm")
    model = save(tmp_path / "m.onnx", [node], {"x": (F32, [4, 8]), "w": (F32, [8, 4])}, {"y": (F32, None)})
    text = refusal(model, archs=["sm75"])
    assert "FP32 GEMM is not supported [node 'mm' (MatMul)]" in text
    assert "leave this compute capability out of --arch" in text


def test_a_workspace_that_is_too_small_is_told_with_what_to_do(rtx: Path, tmp_path: Path) -> None:
    """Measured: TensorRT-RTX 1.7.1 wants more than 1 KiB for this convolution."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", pads=[1, 1, 1, 1])
    tensors: Tensors = {"x": (F32, [1, 64, 500, 500])}
    model = save(tmp_path / "m.onnx", [node], tensors, {"y": (F32, None)})
    proto = onnx.load(model)
    proto.graph.initializer.append(helper.make_tensor("w", F32, [64, 64, 3, 3], [0.0] * (64 * 64 * 9)))
    model.write_bytes(proto.SerializeToString())
    assert "--workspace of 1.0 kB may be too small" in refusal(model, workspace="1KiB", archs=["sm89"])
    built = build_engine(model, out=tmp_path / "m.engine", archs=["sm89"])
    assert built.record.workspace is None


# --- damaged models ----------------------------------------------------------------------------------------------


def test_a_model_edited_after_the_export_is_refused(rtx: Path, exported: Path, tmp_path: Path) -> None:
    content = bytearray(exported.read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "net.onnx").write_bytes(bytes(content))
    with pytest.raises(ModelFileError, match="damaged"):
        build_engine(tmp_path / "net.onnx", out=tmp_path / "net.engine")


def test_a_side_file_that_changed_after_the_export_is_refused(tmp_path: Path) -> None:
    result = export_model(
        torch.nn.Linear(16, 16), ["input:float32[4,16]"], out=tmp_path / "m.onnx", external_data=True
    )
    side = result.files[1]
    content = bytearray(side.read_bytes())
    content[0] ^= 1
    side.write_bytes(bytes(content))
    with pytest.raises(ModelFileError, match=r"content does not match the digest in m\.onnx"):
        build_engine(tmp_path / "m.onnx", out=tmp_path / "m.engine")


def test_a_manifest_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for text in ("[", "[1]", '{"inputs": 3}', "[" * 100_000):
        model = custom(tmp_path / "m.onnx", "Blur")
        proto = onnx.load(model)
        proto.metadata_props.add(key="deployops.manifest", value=text)
        model.write_bytes(proto.SerializeToString())
        with pytest.raises(ModelFileError, match="its manifest cannot be read"):
            build_engine(model, out=tmp_path / "m.engine")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file"),
        (b"PK\x03\x04 no model", "a zip archive that is damaged"),
        (b"\x08\x0a", "damaged"),
    ],
)
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(ModelFileError, match=words):
        build_engine(tmp_path / "m.onnx", out=tmp_path / "m.engine")


@pytest.mark.parametrize(
    ("location", "size", "reason"),
    [
        ("w.data", None, "its weights are missing"),
        ("w.data", 60, "60 bytes, but m.onnx needs 64"),
        ("../w.data", 64, "weights outside its folder"),
        ("/etc/hostname", None, "weights outside its folder"),
    ],
)
def test_side_files_must_be_there_whole_and_in_the_folder(
    tmp_path: Path, location: str, size: int | None, reason: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    if size is not None:
        (folder / location).write_bytes(bytes(size))
    weight = onnx.TensorProto(name="w", data_type=F32, dims=[4, 4], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", location), ("length", "64")):
        weight.external_data.add(key=key, value=value)
    model = save(
        folder / "m.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": (F32, [2, 4])},
        {"y": (F32, None)},
    )
    proto = onnx.load(model)
    proto.graph.initializer.append(weight)
    model.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelFileError, match=reason):
        build_engine(model, out=folder / "m.engine")


# --- what is written ---------------------------------------------------------------------------------------------


def test_nothing_that_is_read_is_written_over(rtx: Path, exported: Path, tmp_path: Path) -> None:
    model = tmp_path / "net.plan"  # a name that an engine may have
    model.write_bytes(exported.read_bytes())
    with pytest.raises(UsageError, match="would be written over"):
        build_engine(model, out=model)
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(UsageError, match="does not look like an engine"):
        build_engine(exported, out=notes)
    assert notes.read_text() == "mine"
    with pytest.raises(UsageError, match="does not exist"):
        build_engine(exported, out=tmp_path / "none" / "net.engine")


# --- processes that end ------------------------------------------------------------------------------------------


def library(folder: Path, source: str) -> Path:
    (folder / "lib.cpp").write_text(source)
    made = folder / "libstranger.so"
    subprocess.run(
        [str(find_cxx().path), "-shared", "-fPIC", str(folder / "lib.cpp"), "-o", str(made)], check=True
    )
    return made


def test_a_library_that_crashes_when_it_is_loaded_is_told_with_its_last_words(
    rtx: Path, exported: Path, tmp_path: Path
) -> None:
    crashing = library(
        tmp_path,
        "#include <cstdio>\n#include <cstdlib>\n"
        '__attribute__((constructor)) static void start() { fputs("no license\\n", stderr); abort(); }\n',
    )
    with pytest.raises(BuildError) as caught:
        build_engine(exported, out=tmp_path / "net.engine", plugins=[crashing])
    text = str(caught.value)
    assert "ended while loading the plugins of libstranger.so: SIGABRT" in text
    assert "Its last words: no license" in text
    assert "\n" not in text
    assert not (tmp_path / "net.engine").exists()


def test_a_library_that_does_not_load_or_has_no_plugins_is_refused(
    rtx: Path, exported: Path, tmp_path: Path
) -> None:
    undefined = library(tmp_path, "extern int nowhere();\nint used = nowhere();\n")
    with pytest.raises(UsageError, match=r"libstranger\.so does not load: .*undefined symbol"):
        build_engine(exported, out=tmp_path / "net.engine", plugins=[undefined])
    empty = library(tmp_path, "int nothing;\n")
    with pytest.raises(UsageError, match="is no library of plugins: it has no `getCreators`"):
        build_engine(exported, out=tmp_path / "net.engine", plugins=[empty])


def package(folder: Path, name: str, content: str) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(content)
    return folder


def test_where_no_tensorrt_is_installed_it_is_said_with_what_to_do(
    exported: Path, tmp_path: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [p for p in sys.path if "tensorrt" not in p])
    with pytest.raises(UsageError, match="has no input `z`"):  # what is wrong anyway is said first
        build_engine(exported, out=tmp_path / "net.engine", profiles=["z=1"])
    for flavor in (None, "tensorrt-rtx", "tensorrt"):
        with pytest.raises(NotCheckedError, match="pip install"):
            build_engine(exported, out=tmp_path / "net.engine", flavor=flavor)  # type: ignore[arg-type]
    done = command("engine", "build", exported, "-o", tmp_path / "net.engine")
    assert done.code == 3


def test_tensorrt_without_a_gpu_is_not_checked(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorRT itself is not to be had here: a package in its place, of which no more is used before that is said."""
    monkeypatch.syspath_prepend(str(package(tmp_path / "site", "tensorrt", "__version__ = '10.13.3'")))
    monkeypatch.setenv("DEPLOYOPS_CACHE", str(tmp_path / "cache"))
    if gpu() is not None:
        pytest.skip("there is a GPU")
    with pytest.raises(
        NotCheckedError, match="builds for the GPU of the machine that it runs on, and there is none here"
    ):
        build_engine(exported, out=tmp_path / "net.engine")


def test_a_tensorrt_with_another_interface_is_said_and_no_traceback_is_shown(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = package(tmp_path / "site", "tensorrt_rtx", "__version__ = '9.0'")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("DEPLOYOPS_CACHE", str(tmp_path / "cache"))
    with pytest.raises(
        BuildError, match=r"TensorRT-RTX is not as deployops knows it; while .*: AttributeError"
    ):
        build_engine(exported, out=tmp_path / "net.engine", flavor="tensorrt-rtx")


def test_a_tensorrt_that_cannot_be_imported_is_said_with_the_reason(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = package(tmp_path / "site", "tensorrt_rtx", "raise OSError('libcudart.so.13: cannot open')")
    monkeypatch.syspath_prepend(str(site))
    with pytest.raises(NotCheckedError, match=r"cannot be loaded: OSError: libcudart\.so\.13"):
        build_engine(exported, out=tmp_path / "net.engine", flavor="tensorrt-rtx")


def test_an_interrupted_build_leaves_no_process_and_no_file(
    rtx: Path, exported: Path, tmp_path: Path
) -> None:
    def interrupt(step: str) -> None:
        if step.startswith("Building"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_engine(exported, out=tmp_path / "net.engine", progress=interrupt)
    assert not (tmp_path / "net.engine").exists()
    assert not list((tmp_path / "cache" / "tmp").iterdir())
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert f"{tmp_path}" not in listed


def test_a_build_whose_parent_is_killed_ends_with_it(rtx: Path, exported: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    hanging = library(
        tmp_path,
        "#include <cstdio>\n#include <unistd.h>\n__attribute__((constructor)) static void start() {\n"
        f'  FILE* out = fopen("{pid}", "w"); fprintf(out, "%d\\n", getpid()); fclose(out); sleep(100);\n}}\n',
    )
    code = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1])\n"
        "from deployops.trt_plugins.engines.build import build_engine\n"
        "build_engine(sys.argv[2], out=sys.argv[3], plugins=[sys.argv[4]])"
    )
    arguments = [json.dumps(sys.path), str(exported), str(tmp_path / "net.engine"), str(hanging)]
    parent = subprocess.Popen([sys.executable, "-c", code, *arguments])
    try:
        until(lambda: pid.exists() and pid.read_text().endswith("\n"))
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not running(int(pid.read_text())))


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_preflight_sees_the_model_before_anything_is_built(rtx: Path, exported: Path, tmp_path: Path) -> None:
    def refuse(model: Any) -> None:
        assert [i.name for i in model.inputs] == ["x"]
        raise UsageError("not this one")

    with pytest.raises(UsageError, match="not this one"):
        build_engine(exported, out=tmp_path / "net.engine", preflight=refuse)


def test_json_of_a_failure_is_on_the_standard_error_alone(
    rtx: Path, tmp_path: Path, command: Callable[..., Any]
) -> None:
    model = custom(tmp_path / "m.onnx", "Blur")
    done = command("engine", "build", model, "-o", tmp_path / "m.engine", "--json")
    assert (done.code, done.out) == (1, "")
    assert "no plugin is called Blur" in done.err
    with pytest.raises(ValueError):
        json.loads(done.err)


MISSING_FILE = """
class ILogger:
    def __init__(self): pass
def get_plugin_registry():
    raise FileNotFoundError(2, "No such file or directory", "share/kernels.bin")
__version__ = "1.7.1"
"""


def test_a_file_that_tensorrt_misses_is_named_and_no_fault_of_the_cache(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(package(tmp_path / "site", "tensorrt_rtx", MISSING_FILE)))
    with pytest.raises(UsageError, match=r"No such file or directory: 'share/kernels\.bin'") as caught:
        build_engine(exported, out=tmp_path / "m.engine", flavor="tensorrt-rtx", cache=False)
    assert "cache" not in str(caught.value)
