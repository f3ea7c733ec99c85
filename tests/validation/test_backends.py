"""The matrix of backends: what each is, why it is missing, and that what it runs is what it says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from deployops.errors import NotCheckedError, UsageError
from deployops.validation.backends import BACKENDS, Request, Runner, available, chosen
from deployops.validation.backends.cuda import driver_missing

SOURCE = Path(__file__).parents[1] / "ort_ops" / "twice.cc"
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def twice(build: Callable[..., Path]) -> Callable[[bool], Path]:
    """y = acme::Twice(x), with a body (that takes x three times, to be told from the library) or without."""

    def make(body: bool) -> Path:
        node = helper.make_node("Twice", ["x"], ["y"], domain="acme")
        triple = helper.make_function(
            "acme", "Twice", ["x"], ["y"], [helper.make_node("Sum", ["x", "x", "x"], ["y"])],
            [helper.make_opsetid("", 20)],
        )  # fmt: skip
        value = ("float", ["n", 3])
        functions = [triple] if body else []
        return build([node], [("x", *value)], [("y", *value)], domains={"acme": 3}, functions=functions)

    return make


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++")
    if compiler is None or sys.platform != "linux":
        pytest.skip("not checked: no g++ to build a custom-operator library with")
    path = tmp_path_factory.mktemp("library") / "twice.so"
    subprocess.run([compiler, "-std=c++17", "-fPIC", "-shared", "-o", str(path), str(SOURCE)], check=True)
    return path


@pytest.fixture
def opened() -> Iterator[Callable[[str, Request], Runner]]:
    runners: list[Runner] = []

    def run(name: str, request: Request) -> Runner:
        assert BACKENDS[name].missing(request) == ""
        runners.append(BACKENDS[name].open(request))
        return runners[-1]

    yield run
    for runner in runners:
        runner.close()


Open = Callable[[str, Request], Runner]


def test_the_names_and_their_order() -> None:
    assert list(BACKENDS) == [
        "pytorch",
        "torch.compile",
        "onnxruntime",
        "onnxruntime, optimiser off",
        "onnxruntime+library",
        "onnxruntime-cuda",
        "tensorrt",
        "tensorrt-rtx",
        "emulated",
    ]
    assert all(kind.about for kind in BACKENDS.values())


def test_nothing_is_available_for_nothing_and_each_says_why() -> None:
    assert all(available(Request()).values())


def test_unknown_names_are_refused() -> None:
    assert [kind.name for kind in chosen(["tensorrt", "pytorch", "pytorch"])] == ["pytorch", "tensorrt"]
    with pytest.raises(UsageError, match="no backend 'tensorrtx'; there are 'pytorch'"):
        chosen(["tensorrtx"])


def test_bodies_and_library_are_two_backends(
    twice: Callable[[bool], Path], library: Path, opened: Open
) -> None:
    request = Request(onnx=twice(True), libraries=(library,), threads=1)
    for name, factor in (("onnxruntime", 3), ("onnxruntime, optimiser off", 3), ("onnxruntime+library", 2)):
        runner = opened(name, request)
        assert runner.name == name
        assert runner.outputs == ("y",)
        assert (runner.run([("x", X)])[0] == factor * X).all(), name
        assert runner.versions == {
            "onnxruntime": onnxruntime.__version__,
            "provider": "CPUExecutionProvider",
            "spinning": "off",
        }
        assert runner.pools == {"onnxruntime intra-op": 1}
    assert opened("onnxruntime+library", request).files == (library,)
    assert opened("onnxruntime", request).files == ()


def test_a_file_without_bodies_needs_the_library(
    twice: Callable[[bool], Path], library: Path, opened: Open
) -> None:
    path = twice(False)
    missing = available(Request(onnx=path))
    assert "no body for acme::Twice" in missing["onnxruntime"]
    assert "no body for acme::Twice" in missing["onnxruntime, optimiser off"]
    assert "no custom-operator library with acme::Twice is given" in missing["onnxruntime+library"]
    request = Request(onnx=path, libraries=(library,), threads=1)
    assert "no body for acme::Twice" in BACKENDS["onnxruntime"].missing(request)
    for name in ("onnxruntime, optimiser off", "onnxruntime+library"):
        assert (opened(name, request).run([("x", X)])[0] == 2 * X).all()


def test_standard_models_have_no_library_to_be_run_with(build: Callable[..., Path]) -> None:
    path = build([helper.make_node("Relu", ["x"], ["y"])], [("x", "float", [3])], [("y", "float", [3])])
    missing = available(Request(onnx=path))
    assert missing["onnxruntime"] == ""
    assert "no operator that comes with deployops" in missing["onnxruntime+library"]


def test_custom_nodes_in_a_subgraph_are_seen(build: Callable[..., Path]) -> None:
    value = helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, [3])
    inner = helper.make_graph([helper.make_node("Twice", ["x"], ["b"], domain="acme")], "inner", [], [value])
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    path = build([node], [("c", "bool", []), ("x", "float", [3])], [("y", "float", [3])], domains={"acme": 1})
    assert "acme::Twice" in BACKENDS["onnxruntime"].missing(Request(onnx=path))


def test_shipped_operators_run_by_the_shipped_library(
    build: Callable[..., Path], shipped_library: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relu of small integers is exact. The library is that of the whole suite."""
    from deployops.validation.backends import onnxruntime as kinds

    monkeypatch.setattr(kinds, "ort_library", lambda: shipped_library)
    node = helper.make_node("RectifiedLinear", ["x"], ["y"], domain="deployops")
    path = build([node], [("x", "float", [2, 3])], [("y", "float", [2, 3])], domains={"deployops": 1})
    runner = opened("onnxruntime+library", Request(onnx=path, threads=1))
    (got,) = runner.run([("x", X - 3)])
    assert (got == np.maximum(X - 3, 0)).all()
    assert [f.name for f in runner.files] == [Path(shipped_library).name]


@pytest.mark.parametrize("isolate", [True, False])
def test_the_profile_names_the_nodes(build: Callable[..., Path], opened: Open, isolate: bool) -> None:
    node = helper.make_node("Erf", ["x"], ["y"], name="the_node")
    path = build([node], [("x", "float", [2, 3])], [("y", "float", [2, 3])])
    runner = opened("onnxruntime", Request(onnx=path, threads=1, isolate=isolate))
    with pytest.raises(NotCheckedError, match="before the first run"):
        runner.profile(1)
    runner.run([("x", X)])
    assert any("the_node" in event["name"] for event in json.loads(runner.profile(3)))


def test_cuda_is_missing_where_it_is(build: Callable[..., Path]) -> None:
    path = build([helper.make_node("Relu", ["x"], ["y"])], [("x", "float", [3])], [("y", "float", [3])])
    reason = BACKENDS["onnxruntime-cuda"].missing(Request(onnx=path))
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        assert "this build of ONNX Runtime has no CUDAExecutionProvider" in reason
        with pytest.raises(NotCheckedError, match="CUDAExecutionProvider"):
            BACKENDS["onnxruntime-cuda"].open(Request(onnx=path))
    if driver_missing():
        assert driver_missing() in reason


@pytest.mark.gpu
def test_cuda_on_a_gpu(build: Callable[..., Path], opened: Open) -> None:
    path = build([helper.make_node("Relu", ["x"], ["y"])], [("x", "float", [2, 3])], [("y", "float", [2, 3])])
    request = Request(onnx=path)
    if reason := BACKENDS["onnxruntime-cuda"].missing(request):
        pytest.skip(f"not checked: {reason}")
    runner = opened("onnxruntime-cuda", request)
    assert runner.versions["provider"] == "CUDAExecutionProvider"
    assert (runner.run([("x", X - 3)])[0] == np.maximum(X - 3, 0)).all()


def test_threads_default_to_the_cores_that_may_be_used(
    build: Callable[..., Path], opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deployops.validation.backends import onnxruntime as kinds

    monkeypatch.setattr(kinds, "usable_cores", lambda: 3)
    path = build([helper.make_node("Relu", ["x"], ["y"])], [("x", "float", [3])], [("y", "float", [3])])
    assert opened("onnxruntime", Request(onnx=path)).pools == {"onnxruntime intra-op": 3}


@pytest.mark.parametrize("name", ["onnxruntime", "onnxruntime, optimiser off"])
def test_a_bfloat16_model_without_kernels_says_what_can_be_done(tmp_path: Path, name: str) -> None:
    value = helper.make_tensor_value_info
    weights = helper.make_tensor("w", TensorProto.BFLOAT16, [3, 3], np.eye(3).ravel())
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [value("x", TensorProto.BFLOAT16, [2, 3])],
        [value("y", TensorProto.BFLOAT16, [2, 3])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, str(tmp_path / "net.onnx"))
    with pytest.raises(NotCheckedError, match=r"net\.onnx is a valid model") as caught:
        BACKENDS[name].open(Request(onnx=tmp_path / "net.onnx", threads=1))
    assert "export the model in float32 (or float16) and validate that" in str(caught.value)
