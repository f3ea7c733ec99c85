"""Our operators in ONNX Runtime: attributes, inputs, outputs, errors, threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from deployops import export_model
from deployops.ort_ops import Library
from deployops.ort_ops.session import session
from deployops.symbolic.operator import Operator

from .conftest import model, opened, pack_node

ROWS_AND_INDEX = {"x": TensorProto.FLOAT, "i": TensorProto.INT64}


def test_an_attribute_of_the_wrong_type_is_refused_when_the_model_is_opened(pack_library: Library) -> None:
    with pytest.raises(Exception, match="the attribute `low` is of type INT; expected FLOAT"):
        opened(pack_library.path, model([pack_node("Limit", "x", low=1)], {"x": TensorProto.FLOAT}))


def test_a_missing_attribute_has_its_default(pack_library: Library) -> None:
    x = np.array([-5, 0, 5], np.float32)
    [y] = opened(pack_library.path, model([pack_node("Limit", "x")], {"x": TensorProto.FLOAT})).run(
        None, {"x": x}
    )
    np.testing.assert_array_equal(y, [-1, 0, 5])


def test_a_missing_attribute_without_a_default_is_refused(pack_library: Library) -> None:
    with pytest.raises(Exception, match="the attribute `ys_count` \\(INT\\) is missing"):
        opened(pack_library.path, model([pack_node("JoinRows", "x", xs_count=1)], {"x": TensorProto.FLOAT}))


def test_a_float_attribute_is_the_number_that_was_meant(pack_library: Library) -> None:
    # 0.1 as float32 is 0.100000001490116
    x = np.array([0.5], np.float64)
    [y] = opened(
        pack_library.path, model([pack_node("Limit", "x", high=0.1)], {"x": TensorProto.DOUBLE})
    ).run(None, {"x": x})
    assert y[0] == 0.1


def test_what_a_kernel_throws_on_a_worker_is_an_error_in_python(pack_library: Library) -> None:
    opened_session = opened(
        pack_library.path, model([pack_node("Picky", "x", message="väl")], {"x": TensorProto.FLOAT})
    )
    x = np.ones(100_000, np.float32)
    x[[5_000, 77_777]] = -1
    with pytest.raises(
        Exception, match=r"pack::Picky \(float32, node 'the_node'\): väl: number (5000|77777)"
    ):
        opened_session.run(None, {"x": x})
    np.testing.assert_array_equal(opened_session.run(None, {"x": np.abs(x)})[0], np.abs(x))


def test_so_is_what_is_no_exception_of_the_standard_library(pack_library: Library) -> None:
    opened_session = opened(
        pack_library.path, model([pack_node("Picky", "x", fail_on=99_999)], {"x": TensorProto.FLOAT})
    )
    with pytest.raises(Exception, match=r"threw something that is no std::exception"):
        opened_session.run(None, {"x": np.ones(100_000, np.float32)})


def test_wrong_inputs_are_told_with_what_was_expected(pack_library: Library) -> None:
    opened_session = opened(
        pack_library.path,
        model([pack_node("GatherRows", "x", "i")], {"x": TensorProto.FLOAT, "i": TensorProto.INT64}),
    )
    with pytest.raises(Exception, match=r"index\[0\] is 7; x has 2 rows"):
        opened_session.run(None, {"x": np.ones((2, 3), np.float32), "i": np.array([7])})


def test_ranks_that_the_shape_rule_does_not_know_are_refused(pack_library: Library) -> None:
    opened_session = opened(
        pack_library.path, model([pack_node("StridedPairs", "x")], {"x": TensorProto.FLOAT})
    )
    with pytest.raises(Exception, match="known are x 2"):
        opened_session.run(None, {"x": np.ones(4, np.float32)})


def test_an_output_that_the_model_leaves_out(pack_library: Library) -> None:
    opened_session = opened(
        pack_library.path,
        model([pack_node("GatherRows", "x", "i")], {"x": TensorProto.FLOAT, "i": TensorProto.INT32}),
    )
    [rows] = opened_session.run(
        None, {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "i": np.array([1, -1], np.int32)}
    )
    np.testing.assert_array_equal(rows, [[3, 4, 5], [0, 0, 0]])


def test_registered_twice(pack_library: Library) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(str(pack_library.path))
    options.register_custom_ops_library(str(pack_library.path))
    with pytest.raises(Exception, match="already set"):
        onnxruntime.InferenceSession(
            helper.make_model(helper.make_graph([], "g", [], [])).SerializeToString(), options
        )


def test_many_sessions_at_once(pack_library: Library) -> None:
    from concurrent.futures import ThreadPoolExecutor

    x = np.linspace(-3, 3, 20_000, dtype=np.float32)

    def work(k: int) -> bool:
        low = -1.0 - k / 10
        [y] = opened(
            pack_library.path, model([pack_node("Limit", "x", low=low)], {"x": TensorProto.FLOAT})
        ).run(None, {"x": x})
        return bool(np.allclose(y, np.maximum(x, np.float32(low))))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(40)))


def test_the_level_can_be_chosen(pack_library: Library) -> None:
    """DEPLOYOPS_CPU_LEVEL names the kernels' instruction set; an unknown one is refused."""
    code = (
        "import onnxruntime as ort, sys\n"
        "o = ort.SessionOptions(); o.log_severity_level = 4\n"
        "o.register_custom_ops_library(sys.argv[1])\n"
    )
    for name, words in (("portable", ""), ("nonsense", "there are no kernels of level `nonsense`")):
        done = subprocess.run(
            [sys.executable, "-c", code, str(pack_library.path)],
            env=os.environ | {"DEPLOYOPS_CPU_LEVEL": name},
            capture_output=True,
            text=True,
        )
        assert (done.returncode == 0) == (not words)
        assert words in done.stderr


def test_an_absent_input_before_an_empty_list_is_exported_so_that_the_runtime_takes_it(
    pack: dict[str, Operator], pack_library: Library, tmp_path: Path
) -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch_op = torch.ops.pack.add_all
            return torch_op(torch_op(x, None, []), x, [])  # type: ignore[no-any-return]

    path = tmp_path / "twice.onnx"
    export_model(Twice(), ["x:float32[n,3]"], out=path, custom_ops="node")
    x = np.array([[1, 2, 3]], np.float32)
    [y] = session(path, libraries=[pack_library.path]).run(None, {"x": x})
    np.testing.assert_array_equal(y, 2 * x)


@pytest.mark.parametrize("value", [1, 1.0, "a", [1]])
def test_a_list_of_another_type_is_refused(value: Any, pack_library: Library) -> None:
    # ONNX Runtime itself reads it as an empty list (and a list of texts cannot be told from one: a session can)
    with pytest.raises(Exception, match=r"the attribute `weights` (is of type|\(FLOATS\) is missing)"):
        opened(
            pack_library.path, model([pack_node("WeightedSum", "x", weights=value)], {"x": TensorProto.FLOAT})
        )


def shipped_node(op_type: str, *inputs: str, output: str = "y") -> Any:
    return helper.make_node(op_type, list(inputs), [output], domain="deployops")


@pytest.mark.parametrize("op_type", ["CubeRoot", "StableSigmoid", "RectifiedLinear", "StableSoftmax"])
@pytest.mark.parametrize("count", [1003, 5_000_000])
def test_an_output_bound_over_its_input_or_at_any_address(
    op_type: str, count: int, shipped_library: str
) -> None:
    opened_session = opened(shipped_library, model([shipped_node(op_type, "x")]))
    x = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    [want] = opened_session.run(None, {"x": x})
    memory = np.zeros(4 * count + 8, np.uint8)
    for offset in (0, 1, 2, 4):
        binding = opened_session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_output("y", "cpu", 0, np.float32, [count], memory.ctypes.data + offset)
        opened_session.run_with_iobinding(binding)
        np.testing.assert_array_equal(
            np.frombuffer(memory[offset : offset + 4 * count].tobytes(), np.float32), want
        )
    both = x.copy()
    binding = opened_session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, [count], both.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, [count], both.ctypes.data)
    opened_session.run_with_iobinding(binding)
    np.testing.assert_array_equal(both, want)


@pytest.mark.parametrize("start", [0, 3])
def test_an_output_that_the_kernel_allocates_is_bound_over_its_input(
    start: int, pack_library: Library
) -> None:
    opened_session = opened(
        pack_library.path, model([pack_node("RepeatLast", "x", times=2)], {"x": TensorProto.FLOAT})
    )
    x = np.arange(1, 9, dtype=np.float32).reshape(2, 4)
    memory = np.zeros(32, np.float32)
    memory[start : start + 8] = x.ravel()
    binding = opened_session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, memory[start:].ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, [2, 8], memory.ctypes.data)
    opened_session.run_with_iobinding(binding)
    np.testing.assert_array_equal(memory[:16].reshape(2, 8), np.repeat(x, 2, -1))


# A cache of 256 MiB, bound as input and output of an operator that writes into it; there is memory for no second one.
BOUND_CACHE = """
import resource, sys
import numpy as np
import onnx
import onnxruntime
library, path = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.enable_cpu_mem_arena = False
options.register_custom_ops_library(library)
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
rows, n = 1 << 16, 1 << 10
cache = np.ones((rows, n), np.float32)
by, y = np.full((rows, n), 2, np.float32), np.empty(rows, np.float32)
binding = session.io_binding()
binding.bind_input("x", "cpu", 0, np.float32, cache.shape, cache.ctypes.data)
binding.bind_cpu_input("by", by)
binding.bind_output("x_out", "cpu", 0, np.float32, cache.shape, cache.ctypes.data)
binding.bind_output("y", "cpu", 0, np.float32, [rows], y.ctypes.data)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 27), resource.RLIM_INFINITY))
session.run_with_iobinding(binding)
assert (cache == 3).all()
"""


def test_a_cache_that_is_bound_as_input_and_output_is_not_copied(
    pack_library: Library, tmp_path: Path
) -> None:
    node = helper.make_node("Shift", ["x", "by"], ["y", "x_out"], domain="pack")
    inputs = {"x": TensorProto.FLOAT, "by": TensorProto.FLOAT}
    made = model([node], inputs, outputs={"y": TensorProto.FLOAT, "x_out": TensorProto.FLOAT})
    x, by = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 0.5, np.float32)
    opened_session = opened(pack_library.path, made)
    both = x.copy()
    binding = opened_session.io_binding()
    for name in ("x", "by"):  # what the kernel reads is what was there before it wrote
        binding.bind_input(name, "cpu", 0, np.float32, both.shape, both.ctypes.data)
    binding.bind_output("x_out", "cpu", 0, np.float32, both.shape, both.ctypes.data)
    binding.bind_output("y", "cpu")
    opened_session.run_with_iobinding(binding)
    np.testing.assert_array_equal(both, 2 * x)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[1], (2 * x).sum(1))
    np.testing.assert_array_equal(opened_session.run(["x_out"], {"x": x, "by": by})[0], x + by)

    onnx.save(made, tmp_path / "cache.onnx")
    command = [sys.executable, "-c", BOUND_CACHE, str(pack_library.path), str(tmp_path / "cache.onnx")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_dims_keep_their_names_through_custom_nodes(shipped_library: str) -> None:
    nodes = [
        shipped_node("StableSigmoid", "x", output="t"),
        shipped_node("AddRelu", "t", "b", output="y"),
        shipped_node("StableSigmoid", "t", output="z"),
    ]
    made = model(nodes, {"x": TensorProto.FLOAT, "b": TensorProto.FLOAT}, outputs={"y": 1, "z": 1})
    for value, dims in zip(
        (*made.graph.input, *made.graph.output),
        (("batch", 16), ("k", 16), (None, 16), (None, 16)),
        strict=True,
    ):
        value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, dims))
    y, z = opened(shipped_library, made).get_outputs()
    assert z.shape == ["batch", 16]
    assert y.shape[1] == 16
    assert y.shape[0] != -1  # which would be a size, not a name


def test_a_shape_written_by_the_kernel_may_overlap_nothing_either(
    pack_library: Library, pack: dict[str, Operator]
) -> None:
    from deployops.native.cpu_library import CpuLibrary

    x = torch.arange(6.0).reshape(2, 3)
    before = x.clone()
    [y, written] = CpuLibrary(pack_library.path).run(pack["shift_"], (x, x, 2))
    assert torch.equal(x, before * 3)
    assert torch.equal(written, before * 3)
    assert torch.equal(y, (before * 3).sum(-1))
