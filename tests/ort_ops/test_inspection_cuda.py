"""`deployops inspect --ort-library` with kernels for CUDA: judged for a session on CUDA, and said what one on the CPU lacks."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from deployops import inspect_model
from deployops.errors import UsageError
from deployops.ort_ops.inspection import providers
from deployops.ort_ops.inspection.check import Checked

NEWEST = "onnxruntime==1.32.0"
ORT_TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "float64": TensorProto.DOUBLE}

Make = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """A library by its manifest alone, which holds operators of one input and their element types."""

    def make(target: str, operators: dict[str, Sequence[str]], name: str | None = None) -> Path:
        library = tmp_path / f"{name or target}.so"
        library.write_bytes(b"never loaded")
        content: dict[str, Any] = {
            "format": 1,
            "library": library.name,
            "sha256": hashlib.sha256(b"never loaded").hexdigest(),
            "target": target,
            "platform": f"{sys.platform}-{platform.machine()}",
            "compiler": {},
            "flags": [],
            "levels": [],
            "operators": [
                {
                    "domain": title.partition("::")[0],
                    "op_type": title.partition("::")[2],
                    "version": 1,
                    "name": title.lower(),
                    "inputs": [{"name": "x", "form": "single", "type": "T"}],
                    "outputs": [{"name": "y", "form": "single", "type": "T"}],
                    "signatures": [{"inputs": {"x": d}, "outputs": {"y": d}} for d in dtypes],
                    "attributes": [],
                }
                for title, dtypes in operators.items()
            ],
        }
        library.with_suffix(".json").write_text(json.dumps(content))
        return library

    return make


def saved(folder: Path, titles: Sequence[str], dtype: str = "float32", body: bool = False) -> Path:
    """A chain of custom nodes, `n0`, `n1`, …; `body`: each has one."""
    values = ["x", *(f"t{k}" for k in range(len(titles) - 1)), "y"]
    nodes = [
        helper.make_node(
            t.partition("::")[2], [values[k]], [values[k + 1]], f"n{k}", domain=t.partition("::")[0]
        )
        for k, t in enumerate(titles)
    ]
    standard = helper.make_opsetid("", 18)
    functions = [
        helper.make_function(
            t.partition("::")[0],
            t.partition("::")[2],
            ["x"],
            ["y"],
            [helper.make_node("Neg", ["x"], ["y"])],
            [standard],
        )
        for t in (dict.fromkeys(titles) if body else ())
    ]
    kind = ORT_TYPES[dtype]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, [2, 3])],
        [helper.make_tensor_value_info("y", kind, [2, 3])],
        value_info=[helper.make_tensor_value_info(v, kind, [2, 3]) for v in values[1:-1]],
    )
    opsets = [standard, *(helper.make_opsetid(d, 1) for d in sorted({t.partition("::")[0] for t in titles}))]
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=opsets, functions=functions), path)
    return path


def found(checked: Checked | None, severity: str) -> list[tuple[str, str, str]]:
    assert checked is not None
    return [(f.kind, f.where, f.what) for f in checked.findings if f.severity == severity]


def test_a_library_for_cuda_is_judged_for_cuda_alone(made: Make, tmp_path: Path) -> None:
    model = saved(tmp_path, ["acme::A"])
    inspected = inspect_model(model, runtime=NEWEST, libraries=[made("ort-cuda", {"acme::A": ["float32"]})])
    assert inspected.checked is None
    assert found(inspected.cuda, "would fail") == []
    assert inspected.exit_code == 0
    data = inspected.to_dict()
    assert data["onnxruntime"] is None
    assert data["onnxruntime_cuda"]["runtime"]["provider"] == "CUDAExecutionProvider"
    assert data["onnxruntime_cuda"]["libraries"][0]["target"] == "ort-cuda"
    assert data["onnxruntime_cuda"]["operators"][0]["by_provider"] == {"CUDA": 1}
    text = inspected.summary()
    assert "ONNX Runtime 1.32.0, CUDA:" in text
    assert "1 × acme::A v1 (not of deployops, no body, with a CUDA kernel in ort-cuda.so)" in text
    assert ", CPU:" not in text


def test_what_a_session_on_the_cpu_would_not_find_is_said(made: Make, tmp_path: Path) -> None:
    library = made("ort-cuda", {"acme::A": ["float32"]})
    [(_, _, what)] = found(
        inspect_model(saved(tmp_path, ["acme::A", "acme::A"]), runtime=NEWEST, libraries=[library]).cuda,
        "note",
    )
    assert "a session on the CPU finds none of the kernels of ort-cuda.so" in what
    assert "2 of 2 nodes have no body either, and fail" in what
    model = saved(tmp_path, ["acme::A"], body=True)
    [(_, _, what)] = found(inspect_model(model, runtime=NEWEST, libraries=[library]).cuda, "note")
    assert "the nodes run as their bodies" in what


def test_the_dtypes_are_those_of_the_cuda_kernels(made: Make, tmp_path: Path) -> None:
    model = saved(tmp_path, ["acme::A"], "float64")
    cuda = made("ort-cuda", {"acme::A": ["float32", "float16"]})
    cpu = made("ort-cpu", {"acme::A": ["float32", "float64"]})
    inspected = inspect_model(model, runtime=NEWEST, libraries=[cuda, cpu])
    assert found(inspected.checked, "would fail") == []
    [(kind, where, what)] = found(inspected.cuda, "would fail")
    assert (kind, where) == ("dtype", "'n0'")
    assert "has no CUDA kernel for (x: float64); there are (x: float32), (x: float16)" in what
    assert "ort-cpu.so has a CPU kernel of it, and no session has two libraries of a domain" in what
    assert inspected.exit_code == 1
    text = inspected.summary()
    assert "ONNX Runtime 1.32.0, CPU: nothing found" in text
    assert "ONNX Runtime 1.32.0, CUDA: 1 would fail" in text


def test_a_kernel_for_the_cpu_alone_and_how_to_get_one_for_cuda(made: Make, tmp_path: Path) -> None:
    model = saved(tmp_path, ["acme::A", "acme::B"])
    cuda, cpu = (
        made("ort-cuda", {"acme::A": ["float32"]}),
        made("ort-cpu", {f"acme::{n}": ["float32"] for n in "AB"}),
    )
    checked = inspect_model(model, runtime=NEWEST, libraries=[cpu, cuda]).cuda
    [(kind, where, what)] = found(checked, "would fail")
    assert (kind, where) == ("operator-missing", "'n1'")
    assert "ort-cuda.so has no acme::B" in what
    assert "ort-cpu.so has a CPU kernel of it" in what
    assert checked is not None
    [advice] = [f.advice for f in checked.findings if f.severity == "would fail"]
    assert "write b.cuh beside b.h" in advice
    assert "deployops compile --target ort-cuda" in advice
    assert "--custom-ops function" in advice


def test_a_node_of_another_domain_falls_back_to_the_cpu(made: Make, tmp_path: Path) -> None:
    model = saved(tmp_path, ["acme::A", "other::B", "acme::A"])
    cuda, cpu = made("ort-cuda", {"acme::A": ["float32"]}), made("ort-cpu", {"other::B": ["float32"]})
    inspected = inspect_model(model, runtime=NEWEST, libraries=[cuda, cpu])
    assert found(inspected.cuda, "would fail") == []
    [(kind, where, what)] = found(inspected.cuda, "hurts")
    assert (kind, where) == ("cpu-fallback", "'n1'")
    assert "other::B runs on the CPU in a session on CUDA: ort-cpu.so has a CPU kernel" in what
    assert inspected.cuda is not None
    of = {o.op_type: o.by_provider for o in inspected.cuda.operators}
    assert of == {"A": {"CUDA": 2}, "B": {"CPU": 1}}
    assert (
        "1 × other::B v1 (not of deployops, no body, with a CPU kernel in ort-cpu.so)" in inspected.summary()
    )
    # on the CPU the two nodes of the library for CUDA have nothing
    assert [w for _, w, _ in found(inspected.checked, "would fail")] == ["'n0'", "'n2'"]


def test_what_was_measured_on_the_cpu_is_not_claimed_of_cuda(made: Make, tmp_path: Path) -> None:
    """Erf of float64 has no kernel on the CPU."""
    path = saved(tmp_path, ["acme::A"], "float64")
    model = onnx.load(path)
    model.graph.node.add(op_type="Erf", input=["y"], output=["z"], name="erf")
    model.graph.output[0].name = "z"
    onnx.save(model, path)
    cuda, cpu = made("ort-cuda", {"acme::A": ["float64"]}), made("ort-cpu", {"acme::A": ["float64"]})
    inspected = inspect_model(path, runtime=NEWEST, libraries=[cuda, cpu])
    assert [k for k, _, _ in found(inspected.checked, "would fail")] == ["no-kernel"]
    assert found(inspected.cuda, "would fail") == []
    assert inspected.cuda is not None
    told = " / ".join(inspected.cuda.not_checked)
    assert "whether the CUDA provider has the kernel" in told
    assert "Erf of opset 18 with float64 (1 node)" in told
    assert "which standard nodes the CUDA provider leaves to the CPU" in told


def test_an_installed_runtime_without_cuda_is_said(
    made: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = made("ort-cuda", {"acme::A": ["float32"]})
    for there in (False, True):
        monkeypatch.setattr(providers, "installed_with_cuda", lambda there=there: there)
        notes = found(inspect_model(saved(tmp_path, ["acme::A"]), libraries=[library]).cuda, "note")
        assert ("provider-missing" in [k for k, _, _ in notes]) is not there


def test_two_libraries_of_one_domain(made: Make, tmp_path: Path) -> None:
    a, b = made("ort-cpu", {"acme::A": ["float32"]}, "a"), made("ort-cpu", {"acme::B": ["float32"]}, "b")
    checked = inspect_model(saved(tmp_path, ["acme::A"]), runtime=NEWEST, libraries=[a, b]).checked
    [(kind, _, what)] = found(checked, "would fail")
    assert kind == "domain-shared"
    assert "a.so and b.so both have operators of the domain 'acme'" in what


def _native(folder: Path, provider: str) -> Path:
    """acme::Twice of version 3 for a provider; without nvcc, as it is opened and not run."""
    source = (Path(__file__).with_name("twice.cc")).read_text()
    of = "GetExecutionProviderType = [](const Op*) -> const char* { return %s; }"
    changed = source.replace(of % "nullptr", of % f'"{provider}"')
    file = folder / f"{provider}.cc"
    file.write_text(changed)
    assert provider in changed
    command = ["g++", "-std=c++17", "-fPIC", "-shared", "-o", str(file.with_suffix(".so")), str(file)]
    subprocess.run(command, check=True)
    return file.with_suffix(".so")


def test_onnxruntime_itself_does_what_the_verdicts_rest_on(tmp_path: Path) -> None:
    """A session on the CPU has no use for kernels of CUDA, and takes a domain from one library."""
    node = helper.make_node("Twice", ["x"], ["y"], domain="acme")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y")]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 3)]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, ir_version=9, opset_imports=opsets).SerializeToString()

    def opened(*libraries: Path) -> str:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            for library in libraries:
                options.register_custom_ops_library(str(library))
            onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            return str(error)
        return "opened"

    cpu, cuda = _native(tmp_path, "CPUExecutionProvider"), _native(tmp_path, "CUDAExecutionProvider")
    assert opened(cpu) == "opened"
    assert "Could not find an implementation for Twice" in opened(cuda)
    assert "Domain already set in registry" in opened(cpu, cuda)


def test_a_library_of_the_other_kind_is_said_in_one_line(command: Any, made: Make, tmp_path: Path) -> None:
    model = saved(tmp_path, ["acme::A"])
    ours = made("ort-cuda", {"acme::A": ["float32"]})
    plugins = tmp_path / "plugins.so"
    plugins.write_bytes(b"never loaded")
    sha256 = hashlib.sha256(b"never loaded").hexdigest()
    plugins.with_suffix(".json").write_text(
        json.dumps(
            {"format": 1, "target": "tensorrt", "sha256": sha256, "plugins": [], "archs": [80], "ptx": 80}
        )
    )
    done = command("inspect", model, "--ort-library", plugins)
    assert done.code == 2
    [line] = done.err.strip().splitlines()
    assert (
        "plugins.so is a library of TensorRT plugins, and none for ONNX Runtime: give it with --plugins"
        in line
    )
    done = command("inspect", model, "--tensorrt", "10.8", "--plugins", ours)
    assert done.code == 2
    [line] = done.err.strip().splitlines()
    assert (
        "ort-cuda.so is a library for ONNX Runtime, and none of TensorRT plugins: give it with --ort-library"
        in line
    )
    with pytest.raises(UsageError, match="folder"):
        inspect_model(model, libraries=[tmp_path])
