"""TensorRT-RTX 1.7 and TensorRT-lean 11.4 load what was built; exported models find their plugins, shapes and engines.

Neither needs a GPU for this. That the engines compute the right numbers is not checked here: it needs one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper

from deployops import export_model
from deployops.symbolic import registry
from deployops.symbolic.operator import Operator
from deployops.trt_plugins.fitted_nodes import fit_plugin_nodes
from deployops.trt_plugins.headers import Headers
from deployops.trt_plugins.library import PluginLibrary, compile_plugins

Run = Callable[[str, dict[str, Any]], dict[str, Any]]
PACK = (
    "Above",
    "AddAll",
    "Attributes",
    "Blend",
    "Cuts",
    "Parts",
    "Plus",
    "Positives",
    "RowSums",
    "Shift",
    "TileTo",
)
PACK_CREATORS = [["trtpack", name, "1"] for name in PACK]


def of_pack(result: dict[str, Any]) -> list[list[str]]:
    return [c for c in result["creators"] if c[0] == "trtpack"]


# --- loading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["tensorrt_rtx", "tensorrt_lean"])
def test_the_registry_loads_the_library(tensorrt: Run, pack_library: PluginLibrary, module: str) -> None:
    fields = {
        "count": 3,
        "scale": 0.5,
        "flag": 1,
        "mode": "max",
        "steps": [1, 2, 3],
        "weights": [0.5],
        "limit": 2.0,
    }
    wanted = {"name": "Attributes", "version": "1", "namespace": "trtpack"}
    create = [{**wanted, "fields": fields}, {**wanted, "fields": {"count": 0.5}}]
    result = tensorrt(module, {"library": str(pack_library.path), "create": create})
    assert result["loaded"]
    assert of_pack(result) == PACK_CREATORS
    assert [c["made"] for c in result["created"]] == [True, False]
    # neither gives a logger while no engine is built or run: the reason is on the standard error
    assert "trtpack::Attributes (node 'the_node'): attribute `count` is float32" in result["stderr"]


# --- the parser --------------------------------------------------------------------------------------------------


def model(
    path: Path,
    node: onnx.NodeProto,
    inputs: dict[str, tuple[int, list[Any]]],
    outputs: dict[str, int],
    library: PluginLibrary | None = None,
) -> str:
    """A model of one node, in a file; with `library`, fitted to what TensorRT's parser takes."""
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(node.domain, 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    if library is not None:
        fit_plugin_nodes(made, json.loads(library.manifest.read_text())["plugins"])
    onnx.save(made, path)
    return str(path)


def test_every_kind_of_attribute_comes_through_the_onnx_parser(
    tensorrt: Run, pack_library: PluginLibrary, tmp_path: Path
) -> None:
    f32 = TensorProto.FLOAT
    values = {
        "count": 3,
        "scale": 0.5,
        "flag": 0,
        "mode": "max",
        "steps": [4, 5],
        "weights": [0.5, 2.0],
        "limit": 8.0,
    }
    node = helper.make_node("Attributes", ["x"], ["y"], name="the_node", domain="trtpack", **values)
    bad = helper.make_node("Attributes", ["x"], ["y"], name="bad", domain="trtpack", count="three")
    absent = helper.make_node("Attributes", ["x"], ["y"], name="absent", domain="trtpack", scale=0.5)
    inputs = {"x": (f32, ["n", 4])}
    profile = {"x": [[1, 4], [8, 4], [16, 4]]}
    jobs = [
        {"path": model(tmp_path / f"{n.name}.onnx", n, inputs, {"y": f32}), "profile": profile}
        for n in (node, bad, absent)
    ]
    result = tensorrt(
        "tensorrt_rtx", {"library": str(pack_library.path), "models": jobs, "archs": ["SM80", "SM89"]}
    )
    good, *refused = result["models"]
    assert good["parsed"], good["errors"]
    assert good["outputs"] == {"y": [[-1, 4], "DataType.FLOAT"]}
    assert good["engine_bytes"] > 0
    assert [r["parsed"] for r in refused] == [False, False]
    assert "node 'bad'): attribute `count` is a string; expected integers" in result["stderr"]
    assert "node 'absent'): attribute `count` is missing" in result["stderr"]


@pytest.mark.parametrize(
    ("onnx_type", "name"),
    [(TensorProto.FLOAT, "FLOAT"), (TensorProto.FLOAT16, "HALF"), (TensorProto.BFLOAT16, "BF16")],
)
def test_two_outputs_with_shapes_by_formulas_in_each_dtype(
    tensorrt: Run, pack_library: PluginLibrary, tmp_path: Path, onnx_type: int, name: str
) -> None:
    node = helper.make_node("Parts", ["x"], ["left", "right"], domain="trtpack")
    path = model(
        tmp_path / "m.onnx", node, {"x": (onnx_type, ["n", 7])}, {"left": onnx_type, "right": onnx_type}
    )
    job = {"path": path, "profile": {"x": [[1, 7], [8, 7], [16, 7]]}}
    result = tensorrt(
        "tensorrt_rtx", {"library": str(pack_library.path), "models": [job], "archs": ["SM80", "SM89"]}
    )
    [found] = result["models"]
    assert found["parsed"], found["errors"]
    assert found["outputs"] == {"left": [[-1, 3], f"DataType.{name}"], "right": [[4, -1], f"DataType.{name}"]}
    assert found["engine_bytes"] > 0


def test_a_list_of_tensors_and_an_argument_that_is_written_into(
    tensorrt: Run, pack_library: PluginLibrary, tmp_path: Path
) -> None:
    f32 = TensorProto.FLOAT
    tensors = {name: (f32, ["n", 4]) for name in ("x", "b", "p", "q")}
    profile = [[1, 4], [8, 4], [16, 4]]
    jobs = []
    for op_type, names in (("AddAll", ("x", "b", "p", "q")), ("Shift", ("x", "b"))):
        node = helper.make_node(op_type, names, ["y"], domain="trtpack")
        path = model(tmp_path / f"{op_type}.onnx", node, {n: tensors[n] for n in names}, {"y": f32})
        jobs.append({"path": path, "profile": dict.fromkeys(names, profile)})
    job = {"library": str(pack_library.path), "models": jobs, "archs": ["SM80", "SM89"]}
    for found in tensorrt("tensorrt_rtx", job)["models"]:
        assert found["parsed"], found["errors"]
        assert found["outputs"] == {"y": [[-1, 4], "DataType.FLOAT"]}
        assert found["engine_bytes"] > 0


def test_a_dtype_without_kernels_is_refused_with_those_that_there_are(
    tensorrt: Run, pack_library: PluginLibrary, tmp_path: Path
) -> None:
    node = helper.make_node("Parts", ["x"], ["left", "right"], name="ints", domain="trtpack")
    i32 = TensorProto.INT32
    path = model(tmp_path / "m.onnx", node, {"x": (i32, ["n", 7])}, {"left": i32, "right": i32})
    job = {"library": str(pack_library.path), "models": [{"path": path, "profile": {}}], "archs": ["SM80"]}
    result = tensorrt("tensorrt_rtx", job)
    assert not result["models"][0]["parsed"]
    reason = "the inputs are int32; there are kernels for: float32; float16; bfloat16"
    assert f"trtpack::Parts (node 'ints'): {reason}" in result["stderr"]


F32 = TensorProto.FLOAT
ROWS_OF_4 = {"x": (F32, ["n", 4])}
PROFILE = [[1, 4], [8, 4], [16, 4]]


def built(
    tensorrt: Run,
    library: PluginLibrary,
    jobs: list[dict[str, Any]],
    environment: dict[str, str] | None = None,
) -> list[dict[str, Any]]:
    """What TensorRT-RTX makes of models, for two architectures."""
    job = {"library": str(library.path), "models": jobs, "archs": ["SM80", "SM89"]}
    found: list[dict[str, Any]] = tensorrt("tensorrt_rtx", job | {"environment": environment or {}})["models"]
    return found


def test_sizes_that_the_data_decides(tensorrt: Run, pack_library: PluginLibrary, tmp_path: Path) -> None:
    positives = helper.make_node("Positives", ["x"], ["y"], domain="trtpack")
    above = helper.make_node("Above", ["x", "limit"], ["rows", "values", "rest"], domain="trtpack", most=5)
    i32 = TensorProto.INT32
    outputs = {"rows": i32, "values": F32, "rest": i32}
    limit = {"limit": (F32, ["n"])}
    one, several = built(
        tensorrt,
        pack_library,
        [
            {
                "path": model(tmp_path / "1.onnx", positives, ROWS_OF_4, {"y": F32}, pack_library),
                "profile": {"x": PROFILE},
            },
            {
                "path": model(tmp_path / "2.onnx", above, ROWS_OF_4 | limit, outputs, pack_library),
                "profile": {"x": PROFILE, "limit": [[1], [8], [16]]},
            },
        ],
    )
    assert one["parsed"], one["errors"]
    assert one["outputs"] == {"y": [[-1], "DataType.FLOAT"]}
    assert several["parsed"], several["errors"]
    assert [shape for shape, _ in several["outputs"].values()] == [[2, -1], [-1], [-1]]
    assert one["engine_bytes"] > 0
    assert several["engine_bytes"] > 0


def test_a_workspace_is_asked_for_at_the_largest_shape_and_goes_with_the_engine(
    tensorrt: Run, pack_library: PluginLibrary, tmp_path: Path
) -> None:
    node = helper.make_node("RowSums", ["x"], ["y"], domain="trtpack")
    path = model(tmp_path / "m.onnx", node, {"x": (F32, ["n", "c"])}, {"y": F32}, pack_library)
    profile = {"x": [[1, 4], [8, 4], [16, 1000]]}
    [found] = built(
        tensorrt, pack_library, [{"path": path, "profile": profile, "engine": str(tmp_path / "e")}]
    )
    assert found["parsed"], found["errors"]
    assert found["outputs"] == {"y": [[-1], "DataType.FLOAT"]}
    assert found["engine_bytes"] > 0
    engine = (tmp_path / "e").read_bytes()
    assert b"deployops_workspace" in engine
    # 16 rows, each of 4 parts, each a float32; the other dtypes are never asked for
    assert struct.pack("<3q", 16 * 4 * 4, -1, -1) in engine


def test_a_shape_input_as_a_constant_and_as_an_input(
    tensorrt: Run, pack_library: PluginLibrary, tmp_path: Path
) -> None:
    node = helper.make_node(
        "TileTo", ["x", "s"], ["y"], domain="trtpack", tensorrt_plugin_shape_input_indices=[1]
    )
    sizes = {"s": (TensorProto.INT64, [2])}
    given = model(tmp_path / "given.onnx", node, ROWS_OF_4 | sizes, {"y": F32})
    constant = onnx.load(given)
    del constant.graph.input[1]
    constant.graph.initializer.append(helper.make_tensor("s", TensorProto.INT64, [2], [5, 6]))
    onnx.save(constant, tmp_path / "constant.onnx")
    jobs = [
        {"path": given, "profile": {"x": PROFILE}, "values": {"s": [[1, 1], [4, 4], [8, 8]]}},
        {"path": str(tmp_path / "constant.onnx"), "profile": {"x": PROFILE}},
    ]
    for found, shape in zip(built(tensorrt, pack_library, jobs), ([-1, -1], [5, 6]), strict=True):
        assert found["parsed"], found["errors"]
        assert found["outputs"] == {"y": [shape, "DataType.FLOAT"]}
        assert found["engine_bytes"] > 0


def test_an_absent_input_before_one_that_is_given(
    tensorrt: Run, pack_library: PluginLibrary, tmp_path: Path
) -> None:
    node = helper.make_node("Blend", ["x", "", "m"], ["y"], domain="trtpack")
    tensors = ROWS_OF_4 | {"m": (TensorProto.BOOL, ["n", 4])}
    profile = {"x": PROFILE, "m": PROFILE}
    plain, fitted = built(
        tensorrt,
        pack_library,
        [
            {"path": model(tmp_path / "plain.onnx", node, tensors, {"y": F32}), "profile": profile},
            {
                "path": model(tmp_path / "fitted.onnx", node, tensors, {"y": F32}, pack_library),
                "profile": profile,
            },
        ],
    )
    assert not plain["parsed"]  # docs/tensorrt.md tells of it
    assert "(input) != nullptr" in plain["errors"][0]
    assert fitted["parsed"], fitted["errors"]
    assert fitted["outputs"] == {"y": [[-1, 4], "DataType.FLOAT"]}
    assert fitted["engine_bytes"] > 0


def test_outputs_in_place_are_built_where_they_are_asked_for_on_both_sides(
    tensorrt: Run, pack_library: PluginLibrary, tmp_path: Path
) -> None:
    node = helper.make_node("Shift", ["x", "b"], ["y"], domain="trtpack")
    path = model(tmp_path / "m.onnx", node, ROWS_OF_4 | {"b": (F32, ["n", 4])}, {"y": F32})
    job = {"path": path, "profile": {"x": PROFILE, "b": PROFILE}}
    jobs = [job, job | {"aliases": True}]
    copied = built(tensorrt, pack_library, jobs)
    assert all(found["engine_bytes"] > 0 for found in copied)  # the flag alone changes nothing
    refused, aliased = built(tensorrt, pack_library, jobs, {"DEPLOYOPS_IN_PLACE": "1"})
    assert refused["engine_bytes"] == 0
    assert any("kALIASED_PLUGIN_IO_10_03 not enabled" in text for text in refused["said"])
    assert aliased["engine_bytes"] > 0


def test_exported_models_with_all_of_this(
    tensorrt: Run, pack: dict[str, Operator], pack_library: PluginLibrary, tmp_path: Path
) -> None:
    class Positives(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return pack["positives"](x)

    class Masked(torch.nn.Module):
        def forward(self, x: torch.Tensor, m: torch.Tensor) -> Any:
            return pack["blend"](x, None, m)

    class Tiled(torch.nn.Module):
        def forward(self, x: torch.Tensor, s: torch.Tensor) -> Any:
            return pack["tile_to"](x, s)

    x = "x:float32[n=1..16,4]"
    cases: list[tuple[torch.nn.Module, list[str], dict[str, Any], list[int]]] = [
        (Positives(), [x], {"profile": {"x": PROFILE}}, [-1]),
        (Masked(), [x, "m:bool[n,4]"], {"profile": {"x": PROFILE, "m": PROFILE}}, [-1, 4]),
        (
            Tiled(),
            [x, "s:int64[2]"],
            {"profile": {"x": PROFILE}, "values": {"s": [[1, 1], [4, 4], [8, 8]]}},
            [-1, -1],
        ),
    ]
    jobs = []
    for k, (net, inputs, profile, _) in enumerate(cases):
        path = tmp_path / f"{k}.onnx"
        export_model(net, inputs, out=path, custom_ops="node")
        exported = onnx.load(path)
        fit_plugin_nodes(exported, json.loads(pack_library.manifest.read_text())["plugins"])
        onnx.save(exported, path)
        jobs.append({"path": str(path), **profile})
    for (_, _, _, shape), found in zip(cases, built(tensorrt, pack_library, jobs), strict=True):
        assert found["parsed"], found["errors"]
        assert [s for s, _ in found["outputs"].values()] == [shape]
        assert found["engine_bytes"] > 0
        # nothing is said of an attribute that is not there
        assert not [text for text in found["said"] if "not found in plugin node" in text]


# --- exported models of every shipped operator -------------------------------------------------------------------

# For each operator: the model's inputs, those that reach the operator by name, its other arguments, and the shapes of
# the outputs, −1 where they vary.
ROWS, VECTOR = "x:float32[n=1..64,5,16]", "float32[16]"
SHIPPED: dict[str, tuple[list[str], dict[str, Any], list[list[int]]]] = {
    "add_relu": ([ROWS, "y:float32[n=1..64,1,16]"], {}, [[-1, 5, 16]]),
    "add_rms_norm": (
        [ROWS, "residual:float32[n,5,16]", f"weight:{VECTOR}"],
        {"eps": 1e-5},
        [[-1, 5, 16]] * 2,
    ),
    "attention": (
        ["q:float32[n=1..8,4,s=1..32,8]", "k:float32[n,2,t=1..32,8]", "v:float32[n,2,t,6]"],
        {"is_causal": True},
        [[-1, 4, -1, 6]],
    ),
    "cube_root": ([ROWS], {}, [[-1, 5, 16]]),
    "layer_norm": ([ROWS, f"weight:{VECTOR}", f"bias:{VECTOR}"], {"eps": 1e-4}, [[-1, 5, 16]]),
    "mean_pool": (["x:float32[n=1..64,5,h=2..32,w=2..32]"], {}, [[-1, 5]]),
    "relu": ([ROWS], {}, [[-1, 5, 16]]),
    "rms_norm": ([ROWS, f"weight:{VECTOR}"], {"eps": 1e-5}, [[-1, 5, 16]]),
    "scale_bias_act": (
        [ROWS, "scale:float32[5]", "bias:float32[5]"],
        {"activation": "leaky_relu", "slope": 0.2},
        [[-1, 5, 16]],
    ),
    "sigmoid": ([ROWS], {}, [[-1, 5, 16]]),
    "softmax": ([ROWS], {"dim": 1}, [[-1, 5, 16]]),
    "swish": ([ROWS, "beta:float32[5]"], {}, [[-1, 5, 16]]),
}
SIZES = {"n": (1, 4, 8), "s": (1, 8, 32), "t": (1, 8, 32), "h": (2, 4, 32), "w": (2, 4, 32)}


def shipped(name: str) -> Operator:
    registry.load_builtin()
    return next(op for op in registry.all_operators() if op.name == f"deployops::{name}")


def module(name: str, arguments: dict[str, Any], inputs: list[str]) -> torch.nn.Module:
    """A model that calls one operator with its inputs by name."""
    names = [spec.partition(":")[0] for spec in inputs]
    namespace: dict[str, Any] = {"op": shipped(name), "arguments": arguments}
    listed = ", ".join(names)
    given = ", ".join(f"{n}={n}" for n in names)
    exec(f"def forward(self, {listed}):\n    return op({given}, **arguments)", namespace)
    made: torch.nn.Module = type("Model", (torch.nn.Module,), {"forward": namespace["forward"]})()
    return made


def profile_of(inputs: list[str]) -> dict[str, list[list[int]]]:
    profile = {}
    for spec in inputs:
        name, _, rest = spec.partition(":")
        dims = [d.partition("=")[0] for d in rest[rest.index("[") + 1 : -1].split(",")]
        if any(not d.isdecimal() for d in dims):
            profile[name] = [[int(d) if d.isdecimal() else SIZES[d][k] for d in dims] for k in range(3)]
    return profile


@pytest.fixture(scope="module")
def shipped_library(
    wheels: Path, headers: Headers, tmp_path_factory: pytest.TempPathFactory
) -> PluginLibrary:
    """The plugins of all shipped operators, from the CUDA compiler of the PyPI wheels, whatever other one is here."""
    return compile_plugins(
        archs=[80, 89],
        out=tmp_path_factory.mktemp("shipped"),
        nvcc=str(next(wheels.glob("nvidia/cu*/bin/nvcc"))),
        tensorrt_root=headers.folder,
    )


@pytest.mark.slow
def test_every_shipped_operator_is_tried(shipped_library: PluginLibrary) -> None:
    names = {shipped(name).onnx_name for name in SHIPPED}
    assert names == set(shipped_library.operators)
    assert list(shipped_library.archs) == [80, 89]


@pytest.mark.slow
def test_exported_models_find_their_plugins_shapes_and_engines(
    shipped_library: PluginLibrary, tensorrt: Run, tmp_path: Path
) -> None:
    jobs = []
    for name, (inputs, arguments, _) in SHIPPED.items():
        path = tmp_path / f"{name}.onnx"
        export_model(module(name, arguments, inputs), inputs, out=path, custom_ops="node")
        jobs.append({"path": str(path), "profile": profile_of(inputs)})
    job = {"library": str(shipped_library.path), "models": jobs, "archs": ["SM80", "SM89"]}
    result = tensorrt("tensorrt_rtx", job)
    for (name, (_, _, shapes)), found in zip(SHIPPED.items(), result["models"], strict=True):
        assert found["parsed"], (name, found["errors"])
        assert found["plugins"] == 1, name
        assert [shape for shape, _ in found["outputs"].values()] == shapes, name
        assert {dtype for _, dtype in found["outputs"].values()} == {"DataType.FLOAT"}, name
        assert found["engine_bytes"] > 0, (name, found["said"])


@pytest.mark.slow
def test_tensorrt_11_loads_the_shipped_plugins(shipped_library: PluginLibrary, tensorrt: Run) -> None:
    result = tensorrt("tensorrt_lean", {"library": str(shipped_library.path)})
    assert result["version"].startswith("11.4")
    ours = {f"{namespace}::{name}" for namespace, name, _ in result["creators"] if namespace == "deployops"}
    assert ours == set(shipped_library.operators)
