"""The runner of TensorRT engines: against a stand-in that keeps to the rules of the API, and, on a GPU, against TensorRT.

The stand-in runs on the memory of this process, so that shapes, addresses, profiles and the order of calls are checked;
what TensorRT computes is not.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
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
from deployops.validation.backends.cuda_memory import tensor_of
from deployops.validation.backends.tensorrt_engine import TensorRtEngine
from deployops.validation.backends.tensorrt_profiles import fitting_profile

from ..packages import installed_tensorrt_rtx


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

    def adopt(self, value: Any) -> Any:
        """A torch tensor on the CPU stands in for one on the GPU."""
        if not hasattr(value, "data_ptr"):
            return None
        self.calls.append("adopt")
        return SimpleNamespace(
            tensor=value, address=value.data_ptr(), size=value.numel() * value.element_size()
        )

    def begin(self) -> None:
        self.calls.append("begin")

    def end(self) -> None:
        self.calls.append("end")

    def tensor(self, place: Any, dtype: str, shape: tuple[int, ...]) -> Any:
        import torch

        if isinstance(place, HostBuffer):
            place = SimpleNamespace(tensor=torch.from_numpy(place.raw))
        return tensor_of(torch, place, dtype, shape, "cpu", None)


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

    class IProfiler:
        pass

    def __init__(self, dtype: str = "FLOAT", kind: Any = np.float32, loads: bool = True) -> None:
        self.dtype, self.kind, self.loads = dtype, np.dtype(kind), loads
        self.engine = Engine

    def get_plugin_registry(self) -> Any:
        return SimpleNamespace(load_library=lambda path: None if "bad" in path else object())

    def Runtime(self, logger: Any) -> Any:
        def deserialize(content: bytes) -> Any:
            if not self.loads:
                logger.log(1, "Version tag does not match")
                return None
            return self.engine(self)

        self.runtime = SimpleNamespace(deserialize_cuda_engine=deserialize, engine_host_code_allowed=False)
        return self.runtime


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

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return (-1, 3)

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
        self.profiler: Any = None
        self.enqueue_emits_profile = True
        self.launched = False

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
        self.launched = True
        return True

    def report_to_profiler(self) -> bool:
        """The layers of the launch before it, once."""
        assert self.profiler is not None
        assert not self.enqueue_emits_profile
        found, self.launched = self.launched, False
        if found:
            self.profiler.report_layer_time("double + /net/relu", 0.5)
            self.profiler.report_layer_time("keep", 0.25)
        return found


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


def test_what_the_engine_carries_is_run_only_where_that_is_asked_for(engine_file: Path) -> None:
    trt = StandIn()
    TensorRtEngine(trt, engine_file, (), HostDevice())
    assert trt.runtime.engine_host_code_allowed is False
    engine = TensorRtEngine(trt, engine_file, (), HostDevice(), host_code=True)
    assert trt.runtime.engine_host_code_allowed is True
    assert any("libraries of its own" in note for note in engine.notes)


def test_outputs_in_the_memory_of_inputs_are_not_guessed(engine_file: Path) -> None:
    with pytest.raises(NotCheckedError, match="does not tell which"):
        TensorRtEngine(StandIn(), engine_file, (), HostDevice(), in_place=True)


def test_an_array_of_another_type_is_not_read_as_the_engine_s(engine_file: Path) -> None:
    engine = TensorRtEngine(StandIn("HALF", np.float16), engine_file, (), HostDevice())
    with pytest.raises(EngineError, match="x takes float16, and was given float32"):
        engine.run({"x": np.zeros((2, 3), np.float32)})


def test_tensors_stay_where_they_are(engine_file: Path) -> None:
    """The input's own address goes to TensorRT, nothing is downloaded, and the caller's stream is joined on both sides."""
    import torch

    device = HostDevice()
    engine = TensorRtEngine(StandIn(), engine_file, (), device)
    x = torch.arange(6.0).reshape(2, 3) - 2
    y, kept = engine.run_tensors({"x": x})
    assert engine._context.addresses["x"] == x.data_ptr()
    assert torch.equal(y, 2 * x)
    assert torch.equal(kept, x[x > 0])
    assert device.calls[0] == "begin"
    assert device.calls[-1] == "end"
    assert "synchronize" not in device.calls
    _, none = engine.run_tensors({"x": -torch.ones(1, 3)})
    assert none.shape == (0,)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "bool", "float8_e4m3fn"])
def test_a_buffer_as_a_tensor(dtype: str) -> None:
    """The bytes of a value in a larger buffer are that value."""
    import torch

    wanted = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).to(getattr(torch, dtype))
    raw = torch.zeros(64, dtype=torch.uint8)
    raw[: wanted.numel() * wanted.element_size()] = wanted.reshape(-1).view(torch.uint8)
    found = tensor_of(torch, SimpleNamespace(tensor=raw), dtype, (2, 2), "cpu", None)
    assert found.dtype == wanted.dtype
    assert found.data_ptr() == raw.data_ptr()
    assert torch.equal(found.float(), wanted.float())
    shared = tensor_of(torch, SimpleNamespace(tensor=wanted), dtype, (2, 2), "cpu", None)
    assert shared.data_ptr() == wanted.data_ptr()


def test_the_profile_is_a_trace_that_the_latency_report_reads(engine_file: Path) -> None:
    from deployops.validation.latency.runtime_trace import read_trace

    engine = TensorRtEngine(StandIn(), engine_file, (), HostDevice())
    with pytest.raises(EngineError, match="nothing to profile before the first run"):
        engine.profile(3)
    engine.run(
        {"x": np.ones((5, 3), np.float32)}
    )  # in the second profile, which the new context has to take too
    before = engine._context
    trace = read_trace(engine.profile(3))
    assert trace.runs == 3
    assert trace.total == pytest.approx(1.25)
    assert {n.name: n.time for n in trace.nodes} == pytest.approx({"double + /net/relu": 0.5, "keep": 0.25})
    assert engine._context is before
    assert before.profiler is None
    assert engine.time() == 1.25
    (y, _) = engine.run({"x": np.ones((5, 3), np.float32)})
    assert (y == 2).all()


def test_layers_that_take_longer_than_the_run_stretch_it() -> None:
    from deployops.validation.backends.tensorrt_callbacks import layer_trace
    from deployops.validation.latency.runtime_trace import read_trace

    trace = read_trace(layer_trace([(9.0, [("a", 9.0)]), (0.5, [("a", 0.5), ("b", 0.5)])]))
    assert trace.total == pytest.approx(1.0)
    assert [n.name for n in trace.nodes] == ["a", "b"]


def test_an_allocator_without_memory_raises_nothing_into_cpp(engine_file: Path) -> None:
    class Full(HostDevice):
        def empty(self, size: int) -> HostBuffer:
            raise MemoryError("no")

    from deployops.validation.backends.tensorrt_callbacks import allocator_type

    allocator = allocator_type(StandIn())(Full())
    assert allocator.reallocate_output_async("kept", 0, 1000, 256, 77) is None
    assert allocator.error == "no memory for kept, 1,000 bytes: no"


class SizesEngine(Engine):
    """One more input, `size`, on the host: two numbers."""

    num_io_tensors = 4

    def get_tensor_name(self, index: int) -> str:
        return ("x", "size", "y", "kept")[index]

    def get_tensor_mode(self, name: str) -> int:
        return 1 if name in ("x", "size") else 2

    def get_tensor_dtype(self, name: str) -> Any:
        return SimpleNamespace(name="INT64" if name == "size" else self.trt.dtype)

    def get_tensor_location(self, name: str) -> int:
        return int(name == "size")

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return (2,) if name == "size" else (-1, 3)

    def get_tensor_profile_values(self, index: int, name: str) -> list[list[int]]:
        if not (isinstance(index, int) and isinstance(name, str)):
            raise TypeError("incompatible function arguments")
        return [[1, 1], [8, 8], [64, 64]]

    def create_execution_context(self) -> Any:
        return SizesContext(self.trt)


class SizesContext(Context):
    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        assert name != "size", "its shape is fixed, and its values are what TensorRT reads"
        return super().set_input_shape(name, shape)

    def infer_shapes(self) -> list[str]:
        self.sizes = at(self.addresses["size"], np.int64, (2,)).tolist()
        if 13 in self.sizes:
            raise RuntimeError("shape inference failed")
        return super().infer_shapes()


def sizes_engine(engine_file: Path) -> TensorRtEngine:
    trt = StandIn()
    trt.engine = SizesEngine  # type: ignore[assignment]
    return TensorRtEngine(trt, engine_file, (), HostDevice())


def test_an_input_that_holds_sizes_is_read_on_the_host(engine_file: Path) -> None:
    engine = sizes_engine(engine_file)
    engine.run({"x": np.ones((2, 3), np.float32), "size": np.array([5, 7])})
    assert engine._context.sizes == [5, 7]
    with pytest.raises(
        NotCheckedError, match=r"not built for x \[2, 3\], size \[5, 65\].*size from \[1, 1\] to \[64, 64\]"
    ):
        engine.run({"x": np.ones((2, 3), np.float32), "size": np.array([5, 65])})
    with pytest.raises(EngineError, match="cannot infer the shapes: shape inference failed"):
        engine.run({"x": np.ones((2, 3), np.float32), "size": np.array([13, 1])})


def test_an_output_in_the_memory_of_its_input(engine_file: Path) -> None:
    engine = TensorRtEngine(StandIn(), engine_file, (), HostDevice())
    engine._engine.get_aliased_input_tensor = lambda name: "x" if name == "y" else None
    y, _ = engine.run({"x": np.ones((2, 3), np.float32)})
    assert engine._context.addresses["x"] == engine._context.addresses["y"]
    assert (y == 2).all()


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


def folder_of(package: str) -> str:
    """Where the package can be imported from: TensorRT-RTX comes from PyPI, TensorRT does not."""
    if importlib.util.find_spec(package) is not None:
        return ""
    if package == "tensorrt":
        pytest.skip("not checked: tensorrt is not installed")
    return str(installed_tensorrt_rtx())


def with_package(package: str, code: str) -> str:
    """What the code prints, in a process of its own: the package's libraries stay loaded."""
    paths = os.pathsep.join(p for p in (folder_of(package), os.environ.get("PYTHONPATH", "")) if p)
    done = subprocess.run(
        [sys.executable, "-c", f"import {package} as trt\n{code}"],
        text=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("package", ["tensorrt", "tensorrt_rtx"])
def test_the_api_has_what_is_called(package: str) -> None:
    code = """
names = {
    trt: "get_plugin_registry Runtime ILogger IOutputAllocator IProfiler TensorIOMode TensorLocation",
    trt.Runtime: "deserialize_cuda_engine engine_host_code_allowed",
    trt.IPluginRegistry: "load_library",
    trt.ICudaEngine: "num_io_tensors get_tensor_name get_tensor_mode get_tensor_dtype get_tensor_location "
        "num_optimization_profiles get_tensor_shape get_tensor_profile_shape get_tensor_profile_values "
        "create_execution_context",
    trt.IExecutionContext: "set_optimization_profile_async set_input_shape infer_shapes get_tensor_shape "
        "set_tensor_address set_output_allocator execute_async_v3 profiler enqueue_emits_profile report_to_profiler",
}
print([n for where, text in names.items() for n in text.split() if not hasattr(where, n)])
print(*sorted(trt.DataType.__members__))
"""
    missing, types = with_package(package, code).splitlines()
    assert missing == "[]"
    assert {"FLOAT", "HALF", "BF16", "INT64", "BOOL"} <= set(types.split())


@pytest.mark.parametrize("package", ["tensorrt", "tensorrt_rtx"])
def test_what_is_called_back_fits_the_package(package: str) -> None:
    """Classes derived from the package's own are made, and take what it would call them with."""
    code = """
from deployops.validation.backends.tensorrt_callbacks import allocator_type, logger, profiler
from types import SimpleNamespace
log, times = logger(trt), profiler(trt)
S = trt.ILogger.Severity
for severity, text in ((S.INTERNAL_ERROR, "a"), (S.ERROR, "b"), (S.WARNING, "c"), (S.INFO, "d")):
    log.log(severity, text)
times.report_layer_time("layer", 0.5)
allocator = allocator_type(trt)(SimpleNamespace(empty=lambda size: SimpleNamespace(address=4096, size=size)))
address = allocator.reallocate_output_async("y", None, 16, 256, 0)
allocator.notify_shape("y", trt.Dims([2, 2]))
print(log.lines, times.layers, address, allocator.shapes)
assert trt.Runtime(log) is not None
"""
    printed = with_package(package, code).splitlines()[0]
    assert printed == "['a', 'b'] [('layer', 0.5)] 4096 {'y': (2, 2)}"


def test_a_real_engine_without_a_gpu_is_not_checked_in_a_line() -> None:
    """TensorRT-RTX builds an engine here and cannot load it: its own words are in the reason."""
    if not driver_missing():
        pytest.skip("not checked: this machine has a GPU, where the engine loads")
    code = """
import tempfile
from pathlib import Path
from types import SimpleNamespace
from deployops.errors import NotCheckedError
from deployops.validation.backends.tensorrt_engine import TensorRtEngine
log = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(log)
network = builder.create_network(0)
x = network.add_input("x", trt.float32, (4, 3))
network.mark_output(network.add_elementwise(x, x, trt.ElementWiseOperation.SUM).get_output(0))
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "net.engine"
    path.write_bytes(builder.build_serialized_network(network, builder.create_builder_config()))
    device = SimpleNamespace(name="no GPU", stream=0, synchronize=lambda: None)
    try:
        TensorRtEngine(trt, path, (), device)
    except NotCheckedError as error:
        print(error)
"""
    [line] = with_package("tensorrt_rtx", code).splitlines()
    assert line.startswith("net.engine cannot be loaded by tensorrt_rtx 1.7.1.116 on no GPU: ")
    assert "CUDA" in line.upper()


# --- before anything is loaded -----------------------------------------------------------------------------------


def sidecar(engine: Path, **changes: Any) -> None:
    from deployops.trt_plugins.engines.host import platform_name
    from deployops.trt_plugins.engines.record import EngineRecord
    from deployops.trt_plugins.engines.sidecar import engine_file, write_sidecar

    file = engine_file(engine)
    plain: dict[str, Any] = {
        "engine": engine.name, "sha256": file.sha256, "bytes": file.bytes, "flavor": "tensorrt", "tensorrt": "10.13.3",
        "platform": platform_name(), "archs": ("sm86",), "gpu": "RTX 3080", "hardware_compatible": "",
        "version_compatible": False, "model": "net.onnx", "model_sha256": "ab" * 32, "plugins": (), "precision": "fp16",
        "kept_float32": (), "profiles": (), "inputs": (), "outputs": (), "workspace": None, "build_seconds": 1.0,
        "warnings": (),
        "in_place": False,
    }  # fmt: skip
    write_sidecar(engine, EngineRecord(**{**plain, **changes}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"flavor": "tensorrt-rtx", "tensorrt": "1.7.1"}, "built by TensorRT-RTX, not TensorRT"),
        ({"platform": "plan9-mips"}, "built for plan9-mips, here is"),
        ({"bytes": 9000}, "cut off: 6 of 9000 bytes"),
        (
            {"plugins": (("libacme.so", "cd" * 32, False),)},
            "plugin library missing: libacme.so (given: none): give it with --plugins",
        ),
        ({"plugins": (("libacme.so", "cd" * 32, True),)}, ""),
        ({}, ""),
    ],
)
def test_the_sidecar_is_read_first(engine_file: Path, changes: dict[str, Any], reason: str) -> None:
    from deployops.trt_plugins.engines.record import PluginFile

    if "plugins" in changes:
        changes = {"plugins": tuple(PluginFile(*p) for p in changes["plugins"])}
    sidecar(engine_file, **changes)
    found = BACKENDS["tensorrt"].missing(Request(engine=engine_file))
    assert reason in found
    if not reason and driver_missing():  # else the GPU here and that of the record are compared
        assert "built" not in found
        assert "engine" not in found
    assert "\n" not in found


def test_a_damaged_sidecar_is_a_reason(engine_file: Path) -> None:
    engine_file.with_name("net.engine.json").write_text("{")
    assert "net.engine.json does not describe an engine" in BACKENDS["tensorrt"].missing(
        Request(engine=engine_file)
    )


def test_an_engine_of_another_model(engine_file: Path, tmp_path: Path) -> None:
    import onnx
    from onnx import parser

    from deployops.errors import UsageError
    from deployops.trt_plugins.engines.source_model import read_source_model
    from deployops.validation.backends.engine_checks import expect_engine_of

    model = tmp_path / "mine.onnx"
    onnx.save(
        parser.parse_model(
            '<ir_version: 9, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { y = Abs(x) }'
        ),
        model,
    )
    expect_engine_of(engine_file, model)  # without a sidecar nothing is known
    sidecar(engine_file)
    assert "built from another ONNX" in BACKENDS["tensorrt"].missing(Request(engine=engine_file, onnx=model))
    with pytest.raises(
        UsageError, match=r"net\.engine was not built from mine\.onnx: its sidecar names net\.onnx"
    ):
        expect_engine_of(engine_file, model)
    sidecar(engine_file, model_sha256=read_source_model(model).sha256)
    expect_engine_of(engine_file, model)
    assert "another ONNX" not in BACKENDS["tensorrt"].missing(Request(engine=engine_file, onnx=model))


def test_what_the_engine_carries_is_told_from_its_sidecar(engine_file: Path) -> None:
    from deployops.trt_plugins.engines.record import PluginFile
    from deployops.validation.backends.engine_checks import engine_record, runs_host_code

    assert not runs_host_code(engine_record(engine_file))
    for changes, expected in (
        ({}, False),
        ({"plugins": (PluginFile("libacme.so", "cd" * 32, False),)}, False),
        ({"plugins": (PluginFile("libacme.so", "cd" * 32, True),)}, True),
        ({"version_compatible": True}, True),
    ):
        sidecar(engine_file, **changes)
        assert runs_host_code(engine_record(engine_file)) == expected


def built_engine(package: str, path: Path) -> None:
    """y = x + x, with a profile of 1 to 8 rows."""
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
    path.write_bytes(builder.build_serialized_network(network, config))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["tensorrt", "tensorrt-rtx"])
def test_an_engine_on_a_gpu(name: str, tmp_path: Path) -> None:
    from deployops.validation.latency.runtime_trace import read_trace

    built_engine(name.replace("-", "_"), tmp_path / "net.engine")
    runner = BACKENDS[name].open(Request(engine=tmp_path / "net.engine"))
    try:
        for rows in (1, 5, 8):
            values = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
            (y,) = runner.run([("x", values)])
            assert (y == 2 * values).all()
            assert runner.time() > 0
        trace = read_trace(runner.profile(3))
        assert trace.nodes
        assert trace.runs == 3
        with pytest.raises(NotCheckedError, match="not built for"):
            runner.run([("x", np.zeros((9, 3), np.float32))])
    finally:
        runner.close()


@pytest.mark.gpu
@pytest.mark.parametrize("package", ["tensorrt", "tensorrt_rtx"])
def test_tensors_on_a_gpu_stay_there(package: str, tmp_path: Path) -> None:
    import torch

    from deployops.validation.backends.tensorrt_engine import open_engine

    built_engine(package, tmp_path / "net.engine")
    if not torch.cuda.is_available():
        pytest.skip("not checked: this torch has no CUDA")
    engine = open_engine(package, str(tmp_path / "net.engine"), ())
    try:
        x = torch.randn(3, 5, device="cuda").t()  # strided: copied on the GPU
        for value in (x, x.contiguous(), x[:1]):
            (y,) = engine.run_tensors({"x": value})
            assert y.is_cuda
            assert torch.equal(y, value + value)
    finally:
        engine.close()
