"""`deployops compile --target ptx|cubin`: files that a driver would load, and a manifest from which one could launch them."""

from __future__ import annotations

import json
import re
import struct
import textwrap
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from deployops.cli.compile import compile_command
from deployops.errors import UsageError
from deployops.native.diagnostics import CompileError
from deployops.native.nvcc import Nvcc
from deployops.trt_plugins.device_code import DeviceCode, compile_device_code

PACK = """
    import torch
    from torch import Tensor
    from deployops import operator

    number = 0

    def declare(name):
        @operator(f"devicecode{number}::{name}", dtypes=("float32", "float16"))
        def op(x: Tensor, by: float) -> Tensor:
            return x * by
        @op.fake
        def _(x, by):
            return torch.empty_like(x)
        @op.samples
        def _(draw):
            yield draw(5), 2.0

    for name in ("scaled", "other"):
        declare(name)
"""

KERNEL = """
    #pragma once
    #include "deployops/cuda/launch.h"
    namespace deployops {
    namespace NAME_detail {
    struct By { double value; unsigned char odd; };
    template <class T>
    __global__ void __launch_bounds__(128) kernel(const T* x, int count, By by, T* y) {
      __shared__ float part[128];
      const int i = int(blockIdx.x) * 128 + int(threadIdx.x);
      part[threadIdx.x] = i < count ? float(widen(x[i])) : 0.f;
      __syncthreads();
      if (i < count) y[i] = narrow<T>(wide_t<T>(part[threadIdx.x]) * wide_t<T>(by.value));
    }
    }  // namespace NAME_detail
    template <class T>
    cudaError_t NAME(Stream stream, In<T> x, double by, Out<T> y) {
      return launch(NAME_detail::kernel<T>, 1, 128, 0, stream, x.data, int(x.numel()), NAME_detail::By{by, 0}, y.data);
    }
    }  // namespace deployops
"""
_packs = 0


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """Two operators in one file, with kernels of known parameters."""
    global _packs
    _packs += 1
    text = textwrap.dedent(PACK).replace(
        "number = 0", f"number = {_packs}"
    )  # names are declared once in a process
    (tmp_path / "pack.py").write_text(text)
    for name in ("scaled", "other"):
        (tmp_path / f"{name}.cuh").write_text(textwrap.dedent(KERNEL).replace("NAME", name))
    return tmp_path / "pack.py"


def build(pack: Path, nvcc: Nvcc, target: Any, **more: Any) -> DeviceCode:
    return compile_device_code(
        [f"{pack}::scaled"], target=target, out=pack.parent / "out", nvcc=str(nvcc.path), **more
    )


def entry(code: DeviceCode) -> dict[str, Any]:
    [operator] = json.loads(code.manifest.read_text())["operators"]
    return dict(operator)


def test_a_cubin_for_each_arch(pack: Path, nvcc: Nvcc) -> None:
    code = build(pack, nvcc, "cubin", archs=[80, 90])
    assert [f.name for f in code.files] == ["scaled.sm_80.cubin", "scaled.sm_90.cubin"]
    for file in code.files:
        head = file.read_bytes()[:20]
        assert head[:4] == b"\x7fELF"
        assert struct.unpack_from("<H", head, 18)[0] == 190  # EM_CUDA
    operator = entry(code)
    assert {r["arch"] for k in operator["kernels"] for r in k["resources"]} == {80, 90}
    assert operator["files"].keys() == {"80", "90"}


def test_ptx_has_the_kernels_under_the_names_of_the_manifest(pack: Path, nvcc: Nvcc) -> None:
    code = build(pack, nvcc, "ptx")
    [file] = code.files
    assert file.name == "scaled.ptx"
    text = file.read_text()
    assert ".target sm_80" in text
    assert str(pack.parent) not in text
    names = {k["name"] for k in entry(code)["kernels"]}
    assert len(names) == 2
    assert all(f".entry {name}(" in text for name in names)


def test_the_manifest_says_how_a_kernel_is_launched(pack: Path, nvcc: Nvcc) -> None:
    """`kernel(const T* x, int count, By by, T* y)`: by the alignment of C++, 0, 8, 16 and 32."""
    kernels = {k["readable"]: k for k in entry(build(pack, nvcc, "ptx"))["kernels"]}
    [single] = [k for name, k in kernels.items() if "<float>" in name]
    assert single["max_threads"] == 128
    assert [(p["offset"], p["size"]) for p in single["parameters"]] == [(0, 8), (8, 4), (16, 16), (32, 8)]
    assert [p["type"] for p in single["parameters"]] == [
        "float const*", "int", "deployops::scaled_detail::By", "float*",
    ]  # fmt: skip
    [need] = single["resources"]
    assert (need["shared"], need["barriers"], need["spill_stores"], need["stack"]) == (512, 1, 0, 0)
    assert 1 <= need["registers"] <= 255
    # 16 warps of 4 make 64: nothing else limits a kernel of few registers
    assert need["occupancy"]["threads"] == 128
    assert (need["occupancy"]["blocks"], need["occupancy"]["fraction"]) == (16, 1.0)


def test_what_did_not_change_is_not_compiled_again(pack: Path, nvcc: Nvcc) -> None:
    first = build(pack, nvcc, "cubin")
    before = [f.read_bytes() for f in first.files], first.manifest.read_bytes()
    again = build(pack, nvcc, "cubin")
    assert again.compiled == 0
    assert ([f.read_bytes() for f in again.files], again.manifest.read_bytes()) == before


def described(code: DeviceCode) -> dict[str, str]:
    """By file: its sha256, as the manifest says."""
    operators = json.loads(code.manifest.read_text())["operators"]
    files = [f for o in operators for f in o["files"].values()]
    assert len({f["file"] for f in files}) == len(files)
    return {f["file"]: f["sha256"] for f in files}


def digests(folder: Path, *names: str) -> dict[str, str]:
    return {name: sha256((folder / name).read_bytes()).hexdigest() for name in names}


def test_the_manifest_describes_what_earlier_runs_wrote(pack: Path, nvcc: Nvcc) -> None:
    out = pack.parent / "out"
    build(pack, nvcc, "cubin", archs=[80, 90])
    code = build(pack, nvcc, "ptx", archs=[80])
    assert described(code) == digests(out, "scaled.sm_80.cubin", "scaled.sm_90.cubin", "scaled.ptx")
    operators = json.loads(code.manifest.read_text())["operators"]
    assert [(o["target"], o["archs"]) for o in operators] == [("cubin", [80, 90]), ("ptx", [80])]


def test_the_manifest_describes_no_file_that_is_another_by_now(pack: Path, nvcc: Nvcc) -> None:
    out, kernel = pack.parent / "out", pack.parent / "scaled.cuh"
    build(pack, nvcc, "cubin", archs=[80, 90])
    kernel.write_text(kernel.read_text().replace("* wide_t<T>(by.value)", "+ wide_t<T>(by.value)"))
    code = build(pack, nvcc, "cubin", archs=[90])  # the other one is still made of the old kernel
    assert described(code) == digests(out, "scaled.sm_80.cubin", "scaled.sm_90.cubin")
    old, new = json.loads(code.manifest.read_text())["operators"]
    assert old["kernel"]["sha256"] != new["kernel"]["sha256"]
    assert new["kernel"]["sha256"] == sha256(kernel.read_bytes()).hexdigest()
    assert {r["arch"] for k in old["kernels"] for r in k["resources"]} == {80} == set(old["archs"])
    (out / "scaled.sm_80.cubin").write_bytes(b"another tool's")
    assert described(build(pack, nvcc, "cubin", archs=[90])) == digests(out, "scaled.sm_90.cubin")


@pytest.mark.parametrize(
    "content",
    [
        "[",
        "[]",
        '{"format": 1, "operators": [{"name": "a::b"}]}',
        '{"format": 2, "operators": 3}',
        '{"format": 2, "operators": [null, 1, {"name": "a::b", "files": [], "target": "ptx"}]}',
        '{"format": 2, "operators": [{"name": "a::b", "files": {"80": {"file": "../pack.py", "sha256": ""}}, "target": "ptx"}]}',
        '{"format": 2, "operators": [{"name": "a::b", "files": {"80": {"file": "gone.ptx", "sha256": ""}}, "target": "ptx"}]}',
    ],
)
def test_a_manifest_that_is_damaged_is_written_anew(pack: Path, nvcc: Nvcc, content: str) -> None:
    (pack.parent / "out").mkdir()
    (pack.parent / "out" / "kernels.json").write_text(content)
    code = build(pack, nvcc, "ptx")
    assert described(code) == digests(pack.parent / "out", "scaled.ptx")


def test_a_file_of_another_operator_is_not_written_over(pack: Path, nvcc: Nvcc) -> None:
    build(pack, nvcc, "ptx")
    manifest = pack.parent / "out" / "kernels.json"
    other = re.sub(r'"devicecode\d+::scaled"', '"somebody::scaled"', manifest.read_text())
    assert "somebody" in other
    manifest.write_text(other)
    with pytest.raises(
        UsageError, match=r"scaled\.ptx is of somebody::scaled, and devicecode\d+::scaled would be"
    ):
        build(pack, nvcc, "ptx")
    assert manifest.read_text() == other


def test_an_error_is_at_the_users_line(pack: Path, nvcc: Nvcc) -> None:
    kernel = pack.parent / "scaled.cuh"
    kernel.write_text(kernel.read_text().replace("__syncthreads();", "__syncthreds();"))
    line = 1 + next(k for k, text in enumerate(kernel.read_text().split("\n")) if "__syncthreds" in text)
    with pytest.raises(CompileError, match=rf"scaled\.cuh:{line}\b.*__syncthreds"):
        build(pack, nvcc, "ptx")


def test_an_operator_that_the_file_lacks_is_named_with_those_it_has(pack: Path, nvcc: Nvcc) -> None:
    with pytest.raises(UsageError, match=r"declares no operator `scald`; it has scaled, other"):
        compile_device_code([f"{pack}::scald"], target="ptx", nvcc=str(nvcc.path))


def test_the_command(pack: Path, nvcc: Nvcc, tmp_path: Path) -> None:
    command = ["--target", "cubin", "--ops", f"{pack}::other", "--arch", "86", "--nvcc", str(nvcc.path)]
    done = CliRunner().invoke(compile_command, [*command, "-o", str(tmp_path / "kernels"), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert [Path(f).name for f in told["files"]] == ["other.sm_86.cubin"]
    assert Path(told["manifest"]).name == "kernels.json"
    refused = CliRunner().invoke(compile_command, ["--target", "ptx", "--tensorrt-root", "x"])
    assert isinstance(refused.exception, UsageError)
    assert "--tensorrt-root is an option of --target tensorrt" in str(refused.exception)
