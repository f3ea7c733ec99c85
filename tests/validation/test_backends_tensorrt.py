"""The runner of TensorRT engines: against a stand-in that keeps to the rules of the API, and, on a GPU, against TensorRT.

The stand-in runs on the memory of this process, so that shapes, addresses, profiles and the order of calls are checked;
what TensorRT computes is not.
"""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from deployops.errors import NotCheckedError
from deployops.ort_ops.engine import EngineError
from deployops.validation.backends import BACKENDS, Request
from deployops.validation.backends.cuda import driver_missing
from deployops.validation.backends.tensorrt_engine import TensorRtEngine, fitting_profile


class HostBuffer:
    def __init__(self, size: int) -> None:
        self.raw = np.zeros(max(size, 1), np.uint8)
        self.address, self.size = int(self.raw.ctypes.data), size


class HostDevice:
    """`cuda_memory.Device` on this process's memory."""

    name, stream = "a stand-in", 77

    def __init__(self) -> None:
        self.calls: list[str] = []

    def empty(self, size: int) -> HostBuffer:
        return HostBuffer(size)

    def upload(self, array: Any) -> HostBuffer:
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        buffer = HostBuffer(raw.size)
        buffer.raw[: raw.size] = raw
        return buffer

    def download(self, buffer: Any, size: int) -> Any:
        assert self.calls[-1] == "synchronize"
        return buffer.raw[:size].copy()

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def timed(self, call: Callable[[], object]) -> float:
        call()
        return 1.25


def at(address: int, dtype: Any, shape: tuple[int, ...]) -> Any:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)).view(dtype).reshape(shape)


class StandIn:
    """Enough of the package `tensorrt`: y = 2 x, and `kept`, the positive elements of x (a size that depends on the data)."""

    __name__, __version__ = "tensorrt", "0.0-stand-in"
    TensorIOMode = SimpleNamespace(INPUT=1, OUTPUT=2)
    TensorLocation = SimpleNamespace(DEVICE=0, HOST=1)

    class ILogger:
        Severity = SimpleNamespace(ERROR=1, WARNING=2)

    class IOutputAllocator:
        pass

    def __init__(self, dtype: str = "FLOAT", kind: Any = np.float32, loads: bool = True) -> None:
        self.dtype, self.kind, self.loads = dtype, np.dtype(kind), loads

    def get_plugin_registry(self) -> Any:
        return SimpleNamespace(load_library=lambda path: None if "bad" in path else object())

    def Runtime(self, logger: Any) -> Any:
        def deserialize(content: bytes) -> Any:
            if not self.loads:
                logger.log(1, "Version tag does not match")
                return None
            return Engine(self)

        return SimpleNamespace(deserialize_cuda_engine=deserialize)


class Engine:
    num_io_tensors, num_optimization_profiles = 3, 2

    def __init__(self, trt: StandIn) -> None:
        self.trt = trt

    def get_tensor_name(self, index: int) -> str:
        return ("x", "y", "kept")[index]

    def get_tensor_mode(self, name: str) -> int:
        return 1 if name == "x" else 2

    def get_tensor_dtype(self, name: str) -> Any:
        return SimpleNamespace(name=self.trt.dtype)

    def get_tensor_location(self, name: str) -> int:
        return 0

    def get_tensor_profile_shape(self, name: str, index: int) -> list[list[int]]:
        return [[1, 3], [2, 3], [2, 3]] if index == 0 else [[3, 3], [4, 3], [8, 3]]

    def create_execution_context(self) -> Any:
        return Context(self.trt)


class Context:
    """Refuses what the API's rules forbid."""

    def __init__(self, trt: StandIn) -> None:
        self.trt, self.profile, self.shape = trt, 0, None
        self.addresses: dict[str, int] = {}
        self.allocator: Any = None

    def set_optimization_profile_async(self, index: int, stream: int) -> bool:
        self.profile, self.shape, self.addresses = index, None, {}
        return stream == 77

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        low, high = ((1, 2), (3, 8))[self.profile]
        self.shape = shape
        return low <= shape[0] <= high

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return address != 0

    def set_output_allocator(self, name: str, allocator: Any) -> bool:
        self.allocator = allocator
        return name == "kept"

    def infer_shapes(self) -> list[str]:
        return [] if self.shape is not None else ["x"]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        assert self.shape is not None
        return (-1,) if name == "kept" else self.shape

    def execute_async_v3(self, stream: int) -> bool:
        assert self.shape is not None
        x = at(self.addresses["x"], self.trt.kind, self.shape)
        at(self.addresses["y"], self.trt.kind, self.shape)[...] = x * self.trt.kind.type(2)
        kept = x[x > 0]
        address = self.allocator.reallocate_output_async("kept", 0, kept.nbytes, 256, stream)
        at(address, self.trt.kind, kept.shape)[...] = kept
        self.allocator.notify_shape("kept", kept.shape)
        return True


@pytest.fixture
def engine_file(tmp_path: Path) -> Path:
    (tmp_path / "net.engine").write_bytes(b"engine")
    return tmp_path / "net.engine"


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [("FLOAT", np.float32), ("HALF", np.float16), ("BF16", ml_dtypes.bfloat16), ("INT64", np.int64)],
)
def test_shapes_profiles_and_sizes_that_depend_on_the_data(engine_file: Path, dtype: str, kind: Any) -> None:
    engine = TensorRtEngine(StandIn(dtype, kind), engine_file, (), HostDevice())
    for rows in (2, 8, 1, 3):  # from one profile to the other and back
        x = (np.arange(3 * rows).reshape(rows, 3) - 4).astype(kind)
        y, kept = engine.run({"x": x})
        assert y.dtype == kind
        assert (y.astype(float) == 2 * x.astype(float)).all()
        assert (kept.astype(float) == x[x > 0].astype(float)).all()
    assert engine.time() == 1.25
    engine.close()


def test_an_output_that_turns_out_empty(engine_file: Path) -> None:
    engine = TensorRtEngine(StandIn(), engine_file, (), HostDevice())
    _, kept = engine.run({"x": np.full((1, 3), -1, np.float32)})
    assert kept.shape == (0,)


def test_a_size_the_engine_was_not_built_for_is_not_checked(engine_file: Path) -> None:
    engine = TensorRtEngine(StandIn(), engine_file, (), HostDevice())
    with pytest.raises(
        NotCheckedError, match=r"not built for x \[9, 3\].*from \[1, 3\] to \[2, 3\]; x from \[3, 3\]"
    ):
        engine.run({"x": np.zeros((9, 3), np.float32)})


def test_an_engine_of_another_version_is_not_checked(engine_file: Path) -> None:
    with pytest.raises(NotCheckedError, match="Version tag does not match"):
        TensorRtEngine(StandIn(loads=False), engine_file, (), HostDevice())


def test_a_plugin_library_that_does_not_load(engine_file: Path) -> None:
    with pytest.raises(EngineError, match=r"plugin library bad\.so"):
        TensorRtEngine(StandIn(), engine_file, ("good.so", "bad.so"), HostDevice())


def test_a_type_that_no_array_can_hold(engine_file: Path) -> None:
    with pytest.raises(EngineError, match="FP4"):
        TensorRtEngine(StandIn("FP4"), engine_file, (), HostDevice())


def test_ranks_must_agree() -> None:
    with pytest.raises(NotCheckedError):
        fitting_profile([{"x": ((1, 3), (8, 3))}], {"x": (3,)})


@pytest.mark.parametrize(("name", "package"), [("tensorrt", "tensorrt"), ("tensorrt-rtx", "tensorrt_rtx")])
def test_what_is_missing_is_all_said_at_once(name: str, package: str, tmp_path: Path) -> None:
    reason = BACKENDS[name].missing(Request())
    assert "no engine is given" in reason
    assert (f"the package {package} is not installed" in reason) == (
        importlib.util.find_spec(package) is None
    )
    assert not driver_missing() or driver_missing() in reason
    assert "no engine file gone.engine" in BACKENDS[name].missing(Request(engine=tmp_path / "gone.engine"))


@pytest.mark.parametrize("package", ["tensorrt", "tensorrt_rtx"])
def test_the_api_has_what_is_called(package: str) -> None:
    """In a process of its own: the package's libraries stay loaded."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"not checked: {package} is not installed")
    code = f"""
import {package} as trt
names = {{
    trt: "get_plugin_registry Runtime ILogger IOutputAllocator TensorIOMode TensorLocation",
    trt.Runtime: "deserialize_cuda_engine",
    trt.ICudaEngine: "num_io_tensors get_tensor_name get_tensor_mode get_tensor_dtype get_tensor_location "
        "num_optimization_profiles get_tensor_profile_shape create_execution_context",
    trt.IExecutionContext: "set_optimization_profile_async set_input_shape infer_shapes get_tensor_shape "
        "set_tensor_address set_output_allocator execute_async_v3",
}}
print([n for where, text in names.items() for n in text.split() if not hasattr(where, n)])
print(sorted(trt.DataType.__members__))
"""
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    missing, types = done.stdout.splitlines()
    assert missing == "[]"
    assert {"FLOAT", "HALF", "BF16", "INT64", "BOOL"} <= set(eval(types))  # noqa: S307 - printed by the line above


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["tensorrt", "tensorrt-rtx"])
def test_an_engine_on_a_gpu(name: str, tmp_path: Path) -> None:
    """y = x + x, built with a profile of 1 to 8 rows, at three sizes."""
    package = name.replace("-", "_")
    if driver_missing() or importlib.util.find_spec(package) is None:
        pytest.skip(f"not checked: {driver_missing() or f'{package} is not installed'}")
    trt = pytest.importorskip(package)
    logger = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    x = network.add_input("x", trt.float32, (-1, 3))
    total = network.add_elementwise(x, x, trt.ElementWiseOperation.SUM)
    total.get_output(0).name = "y"
    network.mark_output(total.get_output(0))
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 3), (4, 3), (8, 3))
    config = builder.create_builder_config()
    config.add_optimization_profile(profile)
    (tmp_path / "net.engine").write_bytes(builder.build_serialized_network(network, config))
    runner = BACKENDS[name].open(Request(engine=tmp_path / "net.engine"))
    try:
        for rows in (1, 5, 8):
            values = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
            (y,) = runner.run([("x", values)])
            assert (y == 2 * values).all()
            assert runner.time() > 0
        with pytest.raises(NotCheckedError, match="not built for"):
            runner.run([("x", np.zeros((9, 3), np.float32))])
    finally:
        runner.close()
