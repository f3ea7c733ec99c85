"""Verdicts from a library's manifest alone are those of TensorRT-RTX with the library loaded; no GPU is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from deployops import export_model, inspect_model
from deployops.native.nvcc import Nvcc
from deployops.trt_plugins.headers import Headers
from deployops.trt_plugins.library import PluginLibrary, compile_plugins

from ..test_tensorrt import SHIPPED, module, profile_of

Run = Callable[[str, dict[str, Any]], dict[str, Any]]
F32, F16, I32, F64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.DOUBLE
ALL = {"count": 3, "scale": 0.5, "flag": 0, "mode": "max", "steps": [4], "weights": [0.5], "limit": 8.0}


def made(
    op: str, inputs: list[str], outputs: list[str], dtype: int = F32, **attributes: Any
) -> onnx.ModelProto:
    node = helper.make_node(op, inputs, outputs, domain="trtpack", name="the_node", **attributes)
    given = [helper.make_tensor_value_info(n, dtype, [2, 6]) for n in dict.fromkeys(inputs) if n]
    results = [helper.make_tensor_value_info(n, dtype, None) for n in outputs]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("trtpack", 1)]
    return helper.make_model(
        helper.make_graph([node], "g", given, results), opset_imports=opsets, ir_version=8
    )


# name -> model, what inspect finds that would fail or hurts
MODELS: dict[str, tuple[onnx.ModelProto, set[str]]] = {
    "every attribute": (made("Attributes", ["x"], ["y"], **ALL), set()),
    "defaults": (made("Attributes", ["x"], ["y"], count=3), set()),
    "lists of one": (
        made("Attributes", ["x"], ["y"], **{**ALL, "count": [3], "steps": 4}),
        {"attribute-type"},
    ),
    "a list of two": (made("Attributes", ["x"], ["y"], **{**ALL, "count": [3, 4]}), {"attribute-type"}),
    "an empty list": (
        made("Attributes", ["x"], ["y"], **{k: v for k, v in ALL.items() if k != "weights"}),
        set(),
    ),
    "text for a number": (made("Attributes", ["x"], ["y"], **{**ALL, "count": "three"}), {"attribute-type"}),
    "float for a number": (made("Attributes", ["x"], ["y"], **{**ALL, "count": 3.0}), {"attribute-type"}),
    "number for a text": (made("Attributes", ["x"], ["y"], **{**ALL, "mode": 1}), {"attribute-type"}),
    "one that is required": (made("Attributes", ["x"], ["y"], scale=0.5), {"attribute-missing"}),
    "two outputs": (made("Parts", ["x"], ["left", "right"]), set()),
    "one of two outputs": (made("Parts", ["x"], ["left"]), set()),
    "two inputs for one": (made("Parts", ["x", "x"], ["left", "right"]), {"inputs"}),
    "half": (made("Parts", ["x"], ["left", "right"], F16), set()),
    "integers": (made("Parts", ["x"], ["left", "right"], I32), {"dtype"}),
    "double": (made("Parts", ["x"], ["left", "right"], F64), {"float64-as-float32"}),
    "a list of tensors": (made("AddAll", ["x", "b", "p", "q"], ["y"]), set()),
    "an absent input": (made("AddAll", ["x", "", "p"], ["y"]), {"absent-input"}),
    "another version": (made("Parts", ["x"], ["left", "right"], plugin_version="2"), {"plugin-version"}),
}


def test_the_manifest_tells_what_tensorrt_does(
    tensorrt: Run, pack_library: PluginLibrary, tmp_path: Path
) -> None:
    jobs = []
    for k, (model, _) in enumerate(MODELS.values()):
        onnx.save(model, tmp_path / f"{k}.onnx")
        jobs.append({"path": str(tmp_path / f"{k}.onnx"), "profile": {}})
    job = {"library": str(pack_library.path), "models": jobs, "archs": ["SM80"]}
    results = tensorrt("tensorrt_rtx", job)["models"]
    for k, ((name, (_, kinds)), found) in enumerate(zip(MODELS.items(), results, strict=True)):
        checked = inspect_model(
            tmp_path / f"{k}.onnx", tensorrt_rtx="1.7", plugins=[pack_library.path], archs=[80]
        ).tensorrt
        assert checked is not None
        assert {f.kind for f in checked.findings if f.severity != "note"} == kinds, name
        if (
            name == "one of two outputs"
        ):  # `engine build` names the other: a note, though the parser refuses the file
            assert [f.kind for f in checked.findings] == ["outputs"]
            assert not found["parsed"]
            continue
        assert (checked.verdict != "would fail") == bool(found["parsed"] and found["engine_bytes"]), name


@pytest.mark.slow
def test_exported_models_of_every_shipped_operator_pass(
    nvcc: Nvcc, headers: Headers, tensorrt: Run, tmp_path: Path
) -> None:
    library = compile_plugins(archs=[80], out=tmp_path, nvcc=str(nvcc.path), tensorrt_root=headers.folder)
    jobs = []
    for name, (inputs, arguments, _) in SHIPPED.items():
        path = tmp_path / f"{name}.onnx"
        export_model(module(name, arguments, inputs), inputs, out=path, custom_ops="node")
        jobs.append({"path": str(path), "profile": profile_of(inputs)})
        for version in (
            "10.0",
            "10.8",
            "10.10",
            "11.4",
        ):  # named on the node, so that every TensorRT finds them
            found = inspect_model(path, tensorrt=version, plugins=[library.path], archs=[80]).tensorrt
            assert found is not None
            assert found.verdict == "nothing found", (name, version, found.findings)
            assert found.operators[0].plugins == found.operators[0].nodes
    results = tensorrt("tensorrt_rtx", {"library": str(library.path), "models": jobs, "archs": ["SM80"]})
    assert all(found["parsed"] and found["engine_bytes"] for found in results["models"])
