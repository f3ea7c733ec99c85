"""`compile_library("ort-cuda")` without a GPU: what is in the library, where it loads, and what users are told there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from deployops import compile_library, ort_library
from deployops.errors import DeclarationError, NotCheckedError, UsageError
from deployops.native.compilers import find_cxx
from deployops.native.diagnostics import CompileError
from deployops.ort_ops import Library, session
from deployops.ort_ops.library import shipped_library
from deployops.ort_ops.library_manifest import manifest_path, read_manifest
from deployops.symbolic import registry
from deployops.symbolic.operator import Operator
from deployops.validation.backends import BACKENDS, Request

from .fake_ort import FakeRuntime, built
from .packs import SAME, written

ROOT = Path(__file__).resolve().parents[2]
PACK = ROOT / "tests" / "ort_ops" / "cuda_pack" / "cuda_pack.py"
GPU_RUNTIME = "onnxruntime-gpu-1.31.1"  # 256 MB, so that it is installed only where asked for
CUDA = "CUDAExecutionProvider"

KERNEL = """#pragma once
#include "deployops/cuda/launch.h"

namespace deployops {{
template <class T>
__global__ void {name}_kernel(const T* x, int64_t n, T* y) {{
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = {value};
}}

inline cudaError_t {name}(Stream stream, In<float> x, Out<float> y) {{
  return launch({name}_kernel<float>, blocks_for(x.numel(), 128), 128, 0, stream, x.data, x.numel(), y.data);
}}
}}  // namespace deployops
"""


@pytest.fixture(scope="session")
def pack_ops() -> list[Operator]:
    return registry.load([str(PACK)])


@pytest.fixture(scope="session")
def library(nvcc: str, tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The pack's, for two architectures."""
    return compile_library(
        "ort-cuda", [str(PACK)], archs=[80, 90], out=tmp_path_factory.mktemp("cuda"), nvcc=nvcc
    )


def symbols(path: Path, which: str) -> set[str]:
    done = subprocess.run(["nm", "-D", which, str(path)], capture_output=True, text=True, check=True)
    return {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines() if line.strip()}


def test_only_the_entry_point_is_visible(library: Library) -> None:
    assert library.path.name == "libdeployops_ort_cuda.so"
    assert symbols(library.path, "--defined-only") == {"RegisterCustomOps"}


def test_neither_the_driver_nor_onnxruntime_is_needed(library: Library) -> None:
    undefined = symbols(library.path, "--undefined-only")
    assert "dlopen" in undefined  # the static CUDA runtime looks for the driver itself
    assert not [s for s in undefined if re.match(r"cu[A-Z]|cuda|Ort", s)]
    done = subprocess.run(["readelf", "-d", str(library.path)], capture_output=True, text=True, check=True)
    needed = re.findall(r"NEEDED.*\[(.*)\]", done.stdout)
    assert "libstdc++.so.6" in needed
    assert not [name for name in needed if re.match(r"libcuda|libcudart|libnv|libonnxruntime", name)]


def test_no_path_of_the_machine_is_in_it(library: Library) -> None:
    content = library.path.read_bytes()
    for text in (str(ROOT), "/tmp/", "tmpxft"):
        assert text.encode() not in content


def test_the_manifest_says_what_is_in_it(library: Library, pack_ops: list[Operator]) -> None:
    written_down = json.loads(library.manifest.read_text())
    assert written_down["sha256"] == sha256(library.path.read_bytes()).hexdigest()
    assert (written_down["target"], written_down["archs"], written_down["ptx"]) == ("ort-cuda", [80, 90], 80)
    read = read_manifest(library.path)
    assert {o.name for o in read.operators} == {op.name for op in pack_ops}
    [two] = [o for o in written_down["operators"] if o["op_type"] == "Two"]
    assert {k["arch"] for k in two["kernels"]} == {80, 90}
    assert any("two_kernel<float>" in k["name"] and k["registers"] > 0 for k in two["kernels"])
    assert two["kernel"]["file"] == "two.cuh"
    assert library.to_dict()["archs"] == [80, 90]
    assert "sm_80, sm_90" in library.summary()


def test_what_did_not_change_is_not_compiled_again(library: Library, nvcc: str, tmp_path: Path) -> None:
    again = compile_library("ort-cuda", [str(PACK)], archs=[80, 90], out=tmp_path, nvcc=nvcc)
    assert again.compiled == 0
    assert again.path.read_bytes() == library.path.read_bytes()


def test_what_nvcc_compiled_runs_up_to_the_driver_and_tells_its_error(
    library: Library, pack_ops: list[Operator]
) -> None:
    """Under the fake ONNX Runtime: the errors of the real CUDA runtime are statuses, and the process goes on."""
    ops = {op.name.partition("::")[2]: op for op in pack_ops}
    runtime = FakeRuntime(built([ops["two"]]), library.path)
    assert {name for _, name, *_ in runtime.operators} == {op.op_type for op in pack_ops}
    for _ in range(2):
        reply = runtime.run(ops["two"], [torch.ones(4)], {}, [torch.float32] * 2)
        if "error" not in reply:
            pytest.skip("there is a driver")
        assert re.match(r"1 cudapack::Two \(float32, node 'the_node'\): cudaError\w+: ", reply["error"])
        assert (reply["live"], reply["statuses"]) == (0, 0)
    reply = runtime.run(ops["refuses"], [torch.ones(4)], {}, [torch.float32])
    assert "x is (4,); expected a matrix" in reply["error"]
    runtime.close()


# --- what is refused ---------------------------------------------------------------------------------------------


def test_arguments_of_the_other_target(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="for the target ort-cuda"):
        compile_library("ort-cpu", [str(PACK)], archs=[80], out=tmp_path)
    with pytest.raises(UsageError, match="for the target ort-cpu"):
        compile_library("ort-cuda", [str(PACK)], flags=["-g"], out=tmp_path)
    with pytest.raises(UsageError, match="known are ort-cpu, ort-cuda"):
        ort_library("ort-rocm")


def test_an_architecture_that_nvcc_does_not_know(nvcc: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not for 999"):
        compile_library("ort-cuda", [str(PACK)], archs=[80, 999], out=tmp_path, nvcc=nvcc)


def test_an_error_in_the_kernel_is_shown_at_its_line(nvcc: str, tmp_path: Path) -> None:
    place = written(tmp_path, SAME.format("askew"), None, "askew")
    (tmp_path / "askew.cuh").write_text(KERNEL.format(name="askew", value="x[i] + nothing"))
    with pytest.raises(CompileError, match=r"askew\.cuh:8") as e:
        compile_library("ort-cuda", [place], archs=[80], out=tmp_path / "lib", nvcc=nvcc)
    assert "nothing" in str(e.value)
    assert not (tmp_path / "lib").exists()


def test_an_operator_with_a_kernel_for_the_cpu_alone(nvcc: str, tmp_path: Path) -> None:
    place = written(tmp_path, SAME.format("cpuonly"), "#pragma once\n", "cpuonly")
    with pytest.raises(UsageError, match=r"has no kernel: there is no .*cpuonly\.cuh") as e:
        compile_library("ort-cuda", [place], archs=[80], out=tmp_path / "lib", nvcc=nvcc)
    assert "cudaError_t cpuonly(Stream stream, In<float> x, Out<float> y)" in str(e.value)


def test_kernels_beyond_the_budget(nvcc: str, tmp_path: Path) -> None:
    place = written(tmp_path, SAME.format("roomy"), None, "roomy")
    text = KERNEL.format(name="roomy", value="many[i % 64]")
    text = text.replace("  if (i < n)", "  volatile float many[64];\n  many[n % 64] = x[i];\n  if (i < n)")
    (tmp_path / "roomy.cuh").write_text(text)
    with pytest.raises(CompileError, match=r"roomy_kernel<float>.* on sm_80: \d+ bytes of local memory"):
        compile_library("ort-cuda", [place], archs=[80], out=tmp_path / "lib", nvcc=nvcc, budget=True)
    library = compile_library("ort-cuda", [place], archs=[80], out=tmp_path / "lib", nvcc=nvcc)
    assert [k.arch for k in library.over_budget] == [80]
    assert "1 of 1 kernels spill registers or use local memory" in library.summary()


def test_a_size_that_only_the_kernel_knows(nvcc: str, tmp_path: Path) -> None:
    text = """
def kept(x: Tensor) -> Tensor:
    return x[x > 0]

@kept.fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())

@kept.samples
def _(draw):
    yield (draw(5),)
"""
    place = written(tmp_path, text, None, "kept")
    (tmp_path / "kept.cuh").write_text(KERNEL.format(name="kept", value="x[i]"))
    with pytest.raises(DeclarationError, match="known only after the kernel ran"):
        compile_library("ort-cuda", [place], archs=[80], out=tmp_path / "lib", nvcc=nvcc)


# --- sessions ----------------------------------------------------------------------------------------------------


def saved(folder: Path, domain: str, op_type: str) -> Path:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("x", "y")]
    node = helper.make_node(op_type, ["x"], ["y"], domain=domain)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    made = helper.make_model(
        helper.make_graph([node], "g", ends[:1], ends[1:]), opset_imports=opsets, ir_version=8
    )
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_it_loads_in_a_runtime_without_cuda(library: Library, tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(str(library.path))
    path = saved(tmp_path, "cudapack", "Refuses")
    # ONNX Runtime knows the operator now, and has no kernel of it for the CPU
    with pytest.raises(Exception, match=r"Could not find an implementation for Refuses"):
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def test_the_functions_for_cuda_are_at_these_indices_of_the_real_runtime(tmp_path: Path) -> None:
    probe = tmp_path / "libprobe.so"
    folders = [f"-I{ROOT / 'ort_ops' / 'cpp'}", f"-I{ROOT / 'kernels' / 'include'}"]
    source = ROOT / "tests" / "ort_ops" / "probe_slots.cpp"
    command = [str(find_cxx().path), "-std=c++17", "-Wall", "-Wextra", "-fPIC", "-shared", *folders]
    subprocess.run([*command, str(source), "-o", str(probe)], check=True)
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(probe))
    opened = onnxruntime.InferenceSession(
        str(saved(tmp_path, "probe", "Probe")), options, providers=["CPUExecutionProvider"]
    )
    [y] = opened.run(None, {"x": np.zeros(3, np.float32)})
    assert y.tolist() == [1.0]


def test_a_session_says_that_the_kernels_are_for_cuda(library: Library, tmp_path: Path) -> None:
    path = saved(tmp_path, "cudapack", "Refuses")
    with pytest.raises(
        UsageError, match=r"has kernels for CUDAExecutionProvider, and the session is to run on CPU"
    ):
        session(path, libraries=[library.path])


@pytest.mark.skipif(CUDA in onnxruntime.get_available_providers(), reason="this ONNX Runtime has CUDA")
def test_a_session_says_that_this_runtime_has_no_cuda(library: Library, tmp_path: Path) -> None:
    path = saved(tmp_path, "cudapack", "Refuses")
    with pytest.raises(NotCheckedError, match="this build of ONNX Runtime has no CUDAExecutionProvider"):
        session(path, libraries=[library.path], providers=[CUDA])


def test_libraries_for_cpu_and_cuda_of_the_same_operators(nvcc: str, tmp_path: Path) -> None:
    from deployops.ort_ops.coverage import check_coverage
    from deployops.ort_ops.diagnosis import parsed

    place = written(tmp_path, SAME.format("both"), None, "both")
    (tmp_path / "both.h").write_text(
        '#pragma once\n#include "deployops/parallel.h"\n#include "deployops/tensor.h"\nnamespace deployops {\n'
        "inline void both(const Parallel&, In<float> x, Out<float> y) {\n"
        "  for (int64_t i = 0; i < x.numel(); ++i) y[i] = x[i];\n}\n}\n"
    )
    (tmp_path / "both.cuh").write_text(KERNEL.format(name="both", value="x[i]"))
    cpu = compile_library("ort-cpu", [place], out=tmp_path / "lib")
    cuda = compile_library("ort-cuda", [place], archs=[80], out=tmp_path / "lib", nvcc=nvcc)
    assert cpu.path.parent == cuda.path.parent
    [op] = registry.load([place])
    model = parsed(saved(tmp_path, op.domain, op.op_type))
    with pytest.raises(UsageError, match="One is for the CPU, the other for CUDA"):
        check_coverage("model.onnx", model, [cpu.path, cuda.path])


def test_the_shipped_operators_without_a_library_for_cuda_say_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deployops.ort_ops import session as sessions

    monkeypatch.setenv("DEPLOYOPS_CACHE", str(tmp_path / "cache"))
    name = "model.onnx"
    chosen = sys.modules[sessions.__module__]._shipped  # type: ignore[attr-defined]
    assert chosen(name, [CUDA]) == ()
    cpu, cuda = shipped_library("ort-cpu"), shipped_library("ort-cuda")
    cpu.parent.mkdir(mode=0o700, parents=True)
    cpu.write_bytes(b"")
    with pytest.raises(UsageError, match="no manifest beside it"):
        chosen(name, [CUDA])
    manifest_path(cpu).write_text("{}")
    with pytest.warns(UserWarning, match="`deployops compile --target ort-cuda` builds it"):
        assert chosen(name, [CUDA]) == (cpu,)
    cuda.write_bytes(b"")
    manifest_path(cuda).write_text("{}")
    assert chosen(name, [CUDA]) == (cuda,)
    assert chosen(name, ["CPUExecutionProvider"]) == (cpu,)


def test_validate_says_what_is_missing_for_cuda(tmp_path: Path) -> None:
    path = saved(tmp_path, "stranger", "Nothing")
    reason = BACKENDS["onnxruntime-cuda"].missing(Request(onnx=path))
    if CUDA not in onnxruntime.get_available_providers():
        assert "this build of ONNX Runtime has no CUDAExecutionProvider" in reason
    assert "no custom-operator library with stranger::Nothing is given" in reason


def test_validate_on_cuda_needs_the_library_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def none(target: str) -> str:
        asked.append(target)
        raise NotCheckedError("no CUDA compiler (nvcc) will do")

    monkeypatch.setattr("deployops.validation.backends.onnxruntime.ort_library", none)
    request = Request(onnx=saved(tmp_path, "deployops", "CubeRoot"))
    with pytest.raises(NotCheckedError, match="shipped operators for CUDA is not built: no CUDA compiler"):
        BACKENDS["onnxruntime-cuda"].open(request)
    assert asked == ["ort-cuda"]


OPENED = """
import sys
import onnxruntime
assert "CUDAExecutionProvider" in onnxruntime.get_available_providers()
from deployops.ort_ops import session
try:
    opened = session(sys.argv[1], libraries=[sys.argv[2]], providers=["CUDAExecutionProvider"])
    print("opened", opened.get_providers())
except Exception as error:
    print(type(error).__name__, error)
"""


def test_the_gpu_build_of_onnxruntime_without_a_driver(library: Library, tmp_path: Path) -> None:
    """It would fall back to the CPU without a word, and then have no kernel: the session says which provider is missing."""
    folder = ROOT / ".build" / "runtimes" / GPU_RUNTIME
    if not folder.is_dir():
        pytest.skip(
            f"not checked: `pip install --no-deps --target {folder} onnxruntime-gpu==1.31.1` (256 MB)"
        )
    path = saved(tmp_path, "cudapack", "Refuses")
    done = subprocess.run(
        [sys.executable, "-c", OPENED, str(path), str(library.path)],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    if done.stdout.startswith("opened"):
        pytest.skip("there is a driver")
    assert done.stdout.startswith("NotCheckedError ONNX Runtime did not start CUDAExecutionProvider"), (
        done.stdout
    )


@pytest.mark.slow
def test_the_shipped_operators(nvcc: str, tmp_path: Path) -> None:
    """All of them, every dtype, from one C++ and one CUDA compiler: no GPU, no ONNX Runtime."""
    library = compile_library("ort-cuda", archs=[90], out=tmp_path, nvcc=nvcc)
    operators = read_manifest(library.path).operators
    assert {o.name for o in operators} == {
        op.name for op in registry.all_operators() if op.name.startswith("deployops::")
    }
    for operator in operators:
        held = {t for s in operator.signatures for t in s.inputs.values()}
        assert {"float16", "bfloat16", "float32", "float64"} <= held, operator.name
    assert library.path.stat().st_size < 4e6
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library.path))


def test_the_command(nvcc: str, command: Callable[..., Any], tmp_path: Path) -> None:
    done = command(
        "compile", "--target", "ort-cuda", "--ops", PACK, "--arch", "80,90", "--nvcc", nvcc, "-o", tmp_path, "--json"
    )  # fmt: skip
    assert done.code == 0, done.err
    assert json.loads(done.out)["archs"] == [80, 90]
    assert command("compile", "--target", "ort-cpu", "--arch", "80").code == 2
