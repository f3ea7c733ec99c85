"""A compiled plugin library: what it shows, what it needs, what its manifest says; errors at the user's line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

from deployops.errors import DeclarationError, DeployOpsError, UsageError
from deployops.native.diagnostics import CompileError
from deployops.native.nvcc import Nvcc
from deployops.symbolic import registry
from deployops.symbolic.operator import Operator
from deployops.trt_plugins.carried import carried_by_tensorrt, plugin_shapes
from deployops.trt_plugins.headers import Headers
from deployops.trt_plugins.library import PluginLibrary, compile_plugins


def symbols(library: Path, which: str) -> set[str]:
    done = subprocess.run(["nm", "-D", which, str(library)], capture_output=True, text=True, check=True)
    return {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines() if line.strip()}


def test_only_what_tensorrt_looks_up_is_shown(pack_library: PluginLibrary) -> None:
    assert symbols(pack_library.path, "--defined-only") == {"getCreators", "setLoggerFinder"}


def test_nothing_of_the_driver_or_of_tensorrt_is_needed(pack_library: PluginLibrary) -> None:
    undefined = symbols(pack_library.path, "--undefined-only")
    assert "dlopen" in undefined  # the static CUDA runtime looks for the driver itself
    assert not [
        s for s in undefined if re.match(r"cu[A-Z]|cuda|nv|_ZN8nvinfer1|createInfer|getPluginRegistry", s)
    ]
    needed = subprocess.run(
        ["readelf", "-d", str(pack_library.path)], capture_output=True, text=True, check=True
    )
    libraries = re.findall(r"NEEDED.*\[(.*)\]", needed.stdout)
    assert "libstdc++.so.6" in libraries
    assert not [name for name in libraries if re.match(r"libcuda|libcudart|libnv|libtensorrt", name)]


def test_no_path_of_the_machine_is_in_it(pack_library: PluginLibrary) -> None:
    content = pack_library.path.read_bytes()
    for text in (str(Path(__file__).resolve().parents[2]), "/tmp/", "tmpxft"):
        assert text.encode() not in content


def test_what_did_not_change_is_not_compiled_again(
    pack_library: PluginLibrary, pack: dict[str, Operator], nvcc: Nvcc, headers: Headers, tmp_path: Path
) -> None:
    again = compile_plugins(
        list(pack.values()), archs=[80], out=tmp_path, nvcc=str(nvcc.path), tensorrt_root=headers.folder
    )
    assert again.compiled == 0
    assert again.path.read_bytes() == pack_library.path.read_bytes()
    assert again.kernels == pack_library.kernels  # what ptxas said is kept with the object


def test_the_manifest_says_what_is_in_it(pack_library: PluginLibrary, nvcc: Nvcc, headers: Headers) -> None:
    manifest = json.loads(pack_library.manifest.read_text())
    assert (manifest["target"], manifest["archs"], manifest["ptx"]) == ("tensorrt", [80], 80)
    assert (manifest["nvcc"], manifest["tensorrt_headers"]) == (nvcc.version, headers.version)
    plugins = {p["plugin_name"]: p for p in manifest["plugins"]}
    names = "Attributes Parts Cuts AddAll Shift Plus Positives Above TileTo Blend RowSums"
    assert plugins.keys() == set(names.split())
    attributes = plugins["Attributes"]
    assert (attributes["plugin_namespace"], attributes["plugin_version"]) == ("trtpack", "1")
    assert attributes["signatures"] == [
        {"inputs": {"x": t}, "outputs": {"y": t}} for t in ("float32", "int32")
    ]  # declared with float64 too, which no tensor of TensorRT is
    assert [(a["name"], a["type"], a["required"]) for a in attributes["attributes"][:2]] == [
        ("count", "INT", True),
        ("scale", "FLOAT", False),
    ]
    assert {k["arch"] for k in attributes["kernels"]} == {80}
    assert any("attributes_kernel<float>" in k["name"] for k in attributes["kernels"])
    assert all(0 < k["registers"] <= 255 for p in plugins.values() for k in p["kernels"])


def test_left_out_dtypes_are_said(pack_library: PluginLibrary) -> None:
    assert pack_library.warnings[:1] == (
        "without float64, which TensorRT's tensors cannot be: trtpack::attributes",
    )
    assert "without float64" in pack_library.summary()


# --- a user's mistakes -------------------------------------------------------------------------------------------

DECLARATION = """
    import torch
    from torch import Tensor
    from deployops import operator

    @operator("{name}::twice", dtypes=("float32",))
    def twice(x: Tensor) -> Tensor:
        return x * 2

    @twice.fake
    def _(x):
        return torch.empty_like(x)

    @twice.samples
    def _(draw):
        yield (draw(3, 5),)
"""
KERNEL = """
    #pragma once
    #include "deployops/cuda/launch.h"

    namespace deployops {
    namespace detail {
    template <class T>
    __global__ void twice_kernel(const T* x, int64_t n, T* y) {
      const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
      if (i < n) y[i] = x[i] * T(2);
    }
    }  // namespace detail
    template <class T>
    cudaError_t twice(Stream stream, In<T> x, Out<T> y) {
      return launch(detail::twice_kernel<T>, blocks_for(x.numel(), 128), 128, 0, stream, x.data, x.numel(), y.data);
    }
    }  // namespace deployops
"""
# 64 numbers at places that are known only when it runs: they cannot be in registers.
LOCAL_MEMORY = """T sums[64] = {};
      for (int k = 0; k < 64; ++k) sums[int(x[k]) & 63] += x[k];
      if (i < n) y[i] = sums[i & 63];"""

_packs = iter(range(1000))


def build(folder: Path, nvcc: Nvcc, headers: Headers, kernel: str | None, **more: Any) -> PluginLibrary:
    name = f"trtuser{next(_packs)}"
    (folder / "pack.py").write_text(textwrap.dedent(DECLARATION.format(name=name)))
    if kernel is not None:
        (folder / "twice.cuh").write_text(textwrap.dedent(kernel))
    return compile_plugins(
        [str(folder / "pack.py")],
        archs=[80],
        out=folder / "lib",
        nvcc=str(nvcc.path),
        tensorrt_root=headers.folder,
        **more,
    )


@pytest.mark.parametrize(
    ("written", "instead", "line", "message"),
    [
        ("y[i] = x[i] * T(2);", "y[i] = x[i] * two;", 10, 'identifier "two" is undefined'),
        ("stream, x.data", "stream, x.nothing", 15, 'has no member "nothing"'),
    ],
)
def test_compiler_errors_are_told_at_the_users_line(
    tmp_path: Path, nvcc: Nvcc, headers: Headers, written: str, instead: str, line: int, message: str
) -> None:
    with pytest.raises(CompileError) as caught:
        build(tmp_path, nvcc, headers, KERNEL.replace(written, instead))
    text = str(caught.value)
    assert re.search(rf"twice\.cuh:{line}\b.*error: .*{re.escape(message)}", text)
    assert instead in text  # the source line
    if "nothing" in instead:  # found when the template is used
        assert re.search(r"while compiling trtuser\d+::twice for float32", text)


def test_a_kernel_with_another_signature_is_shown_the_one_to_write(
    tmp_path: Path, nvcc: Nvcc, headers: Headers
) -> None:
    with pytest.raises(CompileError) as caught:
        build(tmp_path, nvcc, headers, KERNEL.replace("In<T> x, Out<T> y", "In<T> x, double by, Out<T> y"))
    assert "cudaError_t twice(Stream stream, In<float> x, Out<float> y)" in str(caught.value)


def test_warnings_about_the_users_lines_are_shown(tmp_path: Path, nvcc: Nvcc, headers: Headers) -> None:
    library = build(
        tmp_path, nvcc, headers, KERNEL.replace("T(2);", "T(2); const unsigned u = -1; if (u < i) return;")
    )
    [warning] = [w for w in library.warnings if "twice.cuh:10" in w]
    assert "sign" in warning
    assert warning in library.summary()


def test_a_missing_kernel_is_refused_with_its_places(tmp_path: Path, nvcc: Nvcc, headers: Headers) -> None:
    with pytest.raises(UsageError, match=r"twice\.cuh"):
        build(tmp_path, nvcc, headers, None)


def test_local_memory_fails_the_build_where_the_budget_is_kept(
    tmp_path: Path, nvcc: Nvcc, headers: Headers
) -> None:
    kernel = KERNEL.replace("if (i < n) y[i] = x[i] * T(2);", LOCAL_MEMORY)
    library = build(tmp_path, nvcc, headers, kernel)
    assert [k.stack for k in library.over_budget] == [64 * 4]
    assert "spill registers or use local memory" in library.summary()
    shutil.rmtree(tmp_path / "lib")
    with pytest.raises(CompileError, match=r"twice_kernel.*sm_80: 256 bytes of local memory"):
        compile_plugins(
            [str(tmp_path / "pack.py")],
            archs=[80],
            out=tmp_path / "lib",
            nvcc=str(nvcc.path),
            tensorrt_root=headers.folder,
            budget=True,
        )
    assert not (tmp_path / "lib").exists()


def test_archs_that_nvcc_does_not_know_are_refused(
    pack: dict[str, Operator], nvcc: Nvcc, headers: Headers
) -> None:
    with pytest.raises(UsageError, match=r"not for 81"):
        compile_plugins([pack["parts"]], archs=[81], nvcc=str(nvcc.path), tensorrt_root=headers.folder)
    with pytest.raises(UsageError, match="compute capabilities are expected"):
        compile_plugins([pack["parts"]], archs=[], nvcc=str(nvcc.path), tensorrt_root=headers.folder)


# --- what no plugin can carry ------------------------------------------------------------------------------------

REFUSED = """
    import torch
    from torch import Tensor
    from deployops import operator

    @operator("trtrefused::doubles", dtypes=("float64",))
    def doubles(x: Tensor) -> Tensor:
        return x * 2
    @doubles.fake
    def _(x):
        return torch.empty_like(x)
    @doubles.samples
    def _(draw):
        yield (draw(3),)

    @operator("trtrefused::labelled", dtypes=("float32",))
    def labelled(x: Tensor, names: list[str]) -> Tensor:
        return x * 2
    @labelled.fake
    def _(x, names):
        return torch.empty_like(x)
    @labelled.samples
    def _(draw):
        yield draw(3), ["a"]

    @operator("trtrefused::repeated", dtypes=("float32",))
    def repeated(x: Tensor, times: int) -> Tensor:
        return x.repeat(times)
    @repeated.fake
    def _(x, times):
        return x.new_empty(x.shape[0] * times)
    @repeated.samples
    def _(draw):
        yield draw(3), 2
        yield draw(4), 3

    @operator("trtrefused::positive", dtypes=("float32",))
    def positive(x: Tensor) -> Tensor:
        return x[x > 0]
    @positive.fake
    def _(x):
        return x.new_empty(torch.library.get_ctx().new_dynamic_size())
    @positive.samples
    def _(draw):
        yield (draw(5),)

    @operator("trtrefused::scores", dtypes=("float32",))
    def scores(x: Tensor) -> Tensor:
        return x.double()
    @scores.fake
    def _(x):
        return torch.empty_like(x, dtype=torch.float64)
    @scores.samples
    def _(draw):
        yield (draw(5),)
"""


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Operator]:
    file = tmp_path_factory.mktemp("refused") / "trtrefused.py"
    file.write_text(textwrap.dedent(REFUSED))
    return {op.name.partition("::")[2]: op for op in registry.load([str(file)])}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("doubles", r"`x` is float64, and TensorRT's tensors are float32"),
        ("labelled", r"`names` is a list of texts"),
        ("repeated", r"depends on the attribute `times`"),
        (
            "positive",
            r"the data decides a size of an output, and how large it can be is not declared: @op\.bound",
        ),
        ("scores", r"output `y` is float64"),
    ],
)
def test_what_no_plugin_can_carry_is_refused_with_the_reason(
    refused: dict[str, Operator], name: str, reason: str
) -> None:
    with pytest.raises(DeclarationError, match=reason):
        plugin_shapes(carried_by_tensorrt(refused[name]))


def test_an_integer_beyond_32_bits_is_refused(pack: dict[str, Operator]) -> None:
    import torch

    with pytest.raises(DeployOpsError, match="32 bits"):
        pack["attributes"].interface.bind((torch.ones(3), 2**40), {})
    assert pack["attributes"].interface.bind((torch.ones(3), 2**31 - 1), {}).attributes["count"] == 2**31 - 1
