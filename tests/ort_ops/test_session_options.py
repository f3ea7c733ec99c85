"""SessionOptions of the caller's: used as they are, libraries registered once, and nothing said twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, save

from deployops.errors import UsageError
from deployops.ort_ops import session

from .twice_library import compiled

X = np.arange(6, dtype=np.float32).reshape(2, 3)
CPU = ["CPUExecutionProvider"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in ("x", "y")]
    graph = helper.make_graph(
        [helper.make_node("Twice", ["x"], ["y"], domain="acme")], "g", ends[:1], ends[1:]
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 3)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(tmp_path / "m.onnx"))
    return tmp_path / "m.onnx"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("library"))


def test_they_are_the_sessions_and_are_not_changed(path: Path, library: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 3
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    opened = session(path, libraries=[library], options=options)
    assert (opened.run(None, {"x": X})[0] == 2 * X).all()
    for seen in (options, opened.get_session_options()):
        assert seen.intra_op_num_threads == 3
        assert seen.log_severity_level == 3
        assert seen.graph_optimization_level.name == "ORT_ENABLE_BASIC"
    with pytest.raises(Exception, match=r"not found|does not exist|spinning"):
        options.get_session_config_entry("session.intra_op.allow_spinning")


def test_a_library_is_registered_once_to_options_that_are_used_again(path: Path, library: Path) -> None:
    options = onnxruntime.SessionOptions()
    for _ in range(3):
        opened = session(path, libraries=[library], options=options)
        assert (opened.run(None, {"x": X})[0] == 2 * X).all()
    fresh = onnxruntime.SessionOptions()  # another object knows nothing of it
    assert (session(path, libraries=[library], options=fresh).run(None, {"x": X})[0] == 2 * X).all()
    plain = onnxruntime.InferenceSession(str(path), options, providers=CPU)
    assert (plain.run(None, {"x": X})[0] == 2 * X).all()


def test_one_that_the_caller_registered_too_is_told(path: Path, library: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library))
    with pytest.raises(UsageError, match="leave it to `session` to register libraries"):
        session(path, libraries=[library], options=options)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"threads": 2}, "set options.intra_op_num_threads instead of threads"),
        ({"optimize": False}, "set options.graph_optimization_level instead of optimize"),
        ({"profile": "p"}, "instead of profile"),
    ],
)
def test_what_both_say_is_refused(path: Path, other: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        session(path, options=onnxruntime.SessionOptions(), **other)
    assert words in str(caught.value)


def test_other_objects_are_refused(path: Path) -> None:
    with pytest.raises(UsageError, match=r"options is dict; expected onnxruntime\.SessionOptions"):
        session(path, options={"threads": 2})  # type: ignore[arg-type]


def test_providers_in_the_options_are_refused(path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.add_provider("CPUExecutionProvider", {})
    with pytest.raises(UsageError, match="providers of its own"):
        session(path, options=options)
