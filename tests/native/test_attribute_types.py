"""A kernel or launcher whose parameters have other types than the declaration's arguments does not compile, on any target.

C++ turns an int64_t into a double, and a double into a bool, without a word: two attributes in the wrong order would be taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from deployops.errors import DeployOpsError, NotCheckedError
from deployops.native.compilers import Compiler, find_cxx
from deployops.native.cuda_signature import cuda_entries, cuda_entries_symbol, cuda_signature
from deployops.native.diagnostics import CompileError, explained
from deployops.native.generated import entries_symbol, kernel_entries
from deployops.native.kernel_files import INCLUDE
from deployops.native.nvcc import Nvcc, find_nvcc
from deployops.native.nvcc_objects import CudaCache, CudaJob
from deployops.native.object_cache import Cache, CompileJob
from deployops.native.signature import signature
from deployops.symbolic import registry
from deployops.symbolic.operator import Operator
from deployops.trt_plugins.emulation import build as emulation

Side = Literal["cpu", "cuda"]

DECLARATION = """
import torch
from torch import Tensor
from deployops import operator

@operator("attributetypes::gain", dtypes=("float32", "float16"))
def gain(
    x: Tensor, axis: int, alpha: float, flag: bool, mode: str, sizes: list[int], scale: float | None = None
) -> Tensor:
    return x * alpha

@gain.fake
def _(x, axis, alpha, flag, mode, sizes, scale=None):
    return torch.empty_like(x)

@gain.samples
def _(draw):
    yield draw(2, 3), 1, 0.5, True, "add", [1, 2]
"""
PARAMETERS = (
    "In<T> x, int64_t axis, double alpha, bool flag, std::string_view mode, Span<int64_t> sizes, "
    "std::optional<double> scale, Out<T> y"
)
HEAD = {"cpu": "void gain(const Parallel& par, ", "cuda": "cudaError_t gain(Stream stream, "}
FILE = {"cpu": "gain.h", "cuda": "gain.cuh"}
INCLUDES = {
    "cpu": '#include "deployops/parallel.h"\n#include "deployops/tensor.h"\n',
    "cuda": '#include "deployops/cuda/launch.h"\n',
}
# Unused parameters are the user's to have; everything else that a compiler warns of in our own code is an error here.
STRICT = ("-std=c++17", "-O0", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")


def written(parameters: str, side: Side, template: str = "template <class T>") -> str:
    """The file of a kernel that does nothing."""
    body = "{}" if side == "cpu" else "{ return cudaSuccess; }"
    return (
        f"#pragma once\n#include <optional>\n#include <string>\n#include <string_view>\n{INCLUDES[side]}"
        f"namespace deployops {{\n{template}\n{HEAD[side]}{parameters}) {body}\n}}\n"
    )


@dataclass(frozen=True)
class Author:
    """Someone who writes the kernels of one operator, and compiles their generated entries."""

    op: Operator
    folder: Path
    cache: Cache

    def compile(self, text: str, side: Side, compiler: Compiler) -> None:
        (self.folder / FILE[side]).write_text(text)
        if side == "cpu":
            source = kernel_entries(self.op, FILE[side], "base", ())
            includes: tuple[Path, ...] = (INCLUDE, self.folder)
            keep = entries_symbol(self.op, "base")
        else:
            source = cuda_entries(self.op, FILE[side])
            includes = (Path(emulation.__file__).parent / "cpp" / "include", INCLUDE, self.folder)
            keep = cuda_entries_symbol(self.op)
        self._explained(
            self.cache, CompileJob(f"gain {side}", source, compiler, STRICT, includes, keep), side
        )

    def compile_with_nvcc(self, text: str, nvcc: Nvcc, compiler: Compiler) -> None:
        (self.folder / FILE["cuda"]).write_text(text)
        source = cuda_entries(self.op, FILE["cuda"])
        includes = (nvcc.include, INCLUDE, self.folder)
        flags = ("-Xcompiler=-Wall", "-Werror=all-warnings", "-arch=compute_80", "-std=c++17")
        job = CudaJob(
            name="gain",
            source=source,
            compiler=compiler,
            flags=(),
            include_dirs=includes,
            nvcc=nvcc,
            device_flags=flags,
            output="ptx",
        )
        self._explained(CudaCache(self.folder / "nvcc"), job, "cuda")

    def _explained(self, cache: Cache, job: CompileJob, side: Side) -> None:
        wanted = signature(self.op) if side == "cpu" else cuda_signature(self.op)
        try:
            cache.compile(job)
        except CompileError as e:
            raise explained(
                e, [self.folder], generated=job.source, kernel=self.op.name, signature=wanted
            ) from None


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Author]:
    folder = tmp_path_factory.mktemp("gain")
    (folder / "gain_ops.py").write_text(DECLARATION)
    (op,) = registry.load([str(folder / "gain_ops.py")])
    yield Author(op, folder, Cache(folder / "cache"))
    registry.remove(op)


@pytest.fixture
def nvcc() -> Nvcc:
    try:
        return find_nvcc(find_cxx())
    except NotCheckedError as e:
        pytest.skip(f"not checked: {e}")


def replaced(changes: dict[str, str]) -> str:
    text = PARAMETERS
    for right, wrong in changes.items():
        assert text.count(right) == 1
        text = text.replace(right, wrong)
    return text


# --- refused ---------------------------------------------------------------------------------------------------------

ATTRIBUTES = {
    "int and float swapped": {"int64_t axis, double alpha": "double alpha, int64_t axis"},
    "float and bool swapped": {"double alpha, bool flag": "bool flag, double alpha"},
    "all three in another order": {
        "int64_t axis, double alpha, bool flag": "double axis, bool alpha, int64_t flag"
    },
    "all three as float": {"int64_t axis, double alpha, bool flag": "float axis, float alpha, float flag"},
    "float for double": {"double alpha": "float alpha"},
    "a reference to float": {"double alpha": "const float& alpha"},
    "int for int64_t": {"int64_t axis": "int axis"},
    "long long for int64_t": {"int64_t axis": "long long axis"},
    "size_t for int64_t": {"int64_t axis": "size_t axis"},
    "bool for int64_t": {"int64_t axis": "bool axis"},
    "int64_t for bool": {"bool flag": "int64_t flag"},
    "int for bool": {"bool flag": "int flag"},
    "a string": {"std::string_view mode": "std::string mode"},
    "a reference to a string": {"std::string_view mode": "const std::string& mode"},
    "the address of a text": {"std::string_view mode": "const char* mode"},
    "a list of float": {"Span<int64_t> sizes": "Span<double> sizes"},
    "optional for certain": {"double alpha": "std::optional<double> alpha"},
    "certain for optional": {"std::optional<double> scale": "double scale"},
    "optional of int64_t": {"std::optional<double> scale": "std::optional<int64_t> scale"},
    "optional of float": {"std::optional<double> scale": "std::optional<float> scale"},
    "to be written": {"int64_t axis": "int64_t& axis"},
    "anything": {"int64_t axis, double alpha": "int64_t axis, auto alpha"},
}
TENSORS = {
    "Out for In": {"In<T> x": "Out<T> x"},
    "In for Out": {"Out<T> y": "In<T> y"},
    "In and Out swapped": {"In<T> x": "Out<T> x", "Out<T> y": "In<T> y"},
    "one dtype for the input": {"In<T> x": "In<float> x"},
    "one dtype for the output": {"Out<T> y": "Out<float> y"},
    "the address": {"In<T> x": "const T* x"},
    "a list of tensors": {"In<T> x": "InList<T> x"},
}
LAUNCHERS = (  # of them, those that are tried with launchers too: the arguments are written alike
    "all three in another order",
    "float for double",
    "int for bool",
    "optional for certain",
    "optional of float",
    "a string",
    "In and Out swapped",
    "one dtype for the input",
)


def expect_refusal(told: str, case: str, side: Side) -> None:
    lines = told.splitlines()
    assert lines[0] == (
        "there is no kernel `attributetypes::gain` with the signature that the declaration calls for. "
        "In namespace deployops, expected:"
    )
    assert lines[1:3] == ["    template <class T>", f"    {HEAD[side]}{PARAMETERS})"]
    assert any(line.startswith("  the compiler says: ") for line in lines[3:5])
    assert "detail::Attribute<" not in lines[4] or case == "anything", told
    # nvcc names no line where it found two conversions.
    assert re.search(
        rf"\b{re.escape(FILE[side])}:\d+|the kernel's file is {re.escape(FILE[side])}$", told, re.M
    ), told
    if case in ATTRIBUTES:
        assert lines[3] == "  (an attribute goes to a parameter of exactly its type: nothing is converted)"
    assert re.match(r"  while compiling attributetypes::gain for float(32|16)", lines[-1])


def made(case: str, side: Side) -> str:
    text = replaced((ATTRIBUTES | TENSORS)[case])
    if "auto " in text:
        return written(text.replace("auto ", "A "), side, "template <class T, class A>")
    return written(text, side)


@pytest.mark.parametrize(
    ("case", "side"), [*((c, "cpu") for c in ATTRIBUTES | TENSORS), *((c, "cuda") for c in LAUNCHERS)]
)
def test_other_types_are_refused_with_the_signature(
    case: str, side: Side, author: Author, compiler: Compiler
) -> None:
    with pytest.raises(CompileError) as caught:
        author.compile(made(case, side), side, compiler)
    expect_refusal(str(caught.value), case, side)


@pytest.mark.parametrize("case", LAUNCHERS)
def test_nvcc_refuses_them_too(case: str, author: Author, gcc: Compiler, nvcc: Nvcc) -> None:
    with pytest.raises(CompileError) as caught:
        author.compile_with_nvcc(made(case, "cuda"), nvcc, gcc)
    expect_refusal(str(caught.value), case, "cuda")
    assert (
        str(caught.value).count("there is no kernel") == 1
    )  # for both dtypes together, where both are wrong


def test_a_status_that_a_kernel_returns_would_be_dropped(author: Author, compiler: Compiler) -> None:
    text = written(PARAMETERS, "cpu").replace("void gain(", "int gain(").replace("{}", "{ return 1; }")
    with pytest.raises(CompileError) as caught:
        author.compile(text, "cpu", compiler)
    assert f"    {HEAD['cpu']}{PARAMETERS})" in str(caught.value).splitlines()


def test_the_workspace_function_is_held_to_its_own_signature(
    author: Author, compiler: Compiler, gcc: Compiler, nvcc: Nvcc
) -> None:
    right = written(PARAMETERS, "cuda")
    swapped = replaced({"double alpha, bool flag": "bool flag, double alpha"})
    function = f"template <class T>\nsize_t gain_workspace({swapped}) {{ return 4; }}\n}}\n"
    text = right.removesuffix("}\n") + function
    for compile in (
        lambda: author.compile(text, "cuda", compiler),
        lambda: author.compile_with_nvcc(text, nvcc, gcc),
    ):
        with pytest.raises(CompileError) as caught:
            compile()
        lines = str(caught.value).splitlines()
        assert lines[0] == (
            "the workspace function of `attributetypes::gain` does not have the signature that the declaration calls for. "
            "In namespace deployops, expected:"
        )
        assert lines[1:3] == ["    template <class T>", f"    size_t gain_workspace({PARAMETERS})"]
    author.compile(text.replace(swapped, PARAMETERS), "cuda", compiler)


# --- taken -----------------------------------------------------------------------------------------------------------

BY_DTYPE = "In<{0}> x, int64_t axis, double alpha, bool flag, std::string_view mode, Span<int64_t> sizes, {1}, Out<{0}> y"
TAKEN = {
    "as it is told to be written": PARAMETERS,
    "const": re.sub(r"(?<=, )(?!Out)|^", "const ", PARAMETERS),
    "const references": re.sub(r"([\w:]+(?:<\w+>)?) (\w+)", r"const \1& \2", PARAMETERS),
    "no names": re.sub(r" \w+(?=,|$)", "", PARAMETERS),
    "the same type by another name": PARAMETERS.replace("int64_t axis", "std::int64_t axis").replace(
        "std::string_view", "std::basic_string_view<char>"
    ),
    "default arguments": PARAMETERS.replace("Out<T> y", "Out<T> y, int more = 3"),
}


@pytest.mark.parametrize("side", ["cpu", "cuda"])
@pytest.mark.parametrize("case", TAKEN)
def test_what_the_documentation_allows_is_taken(
    case: str, side: Side, author: Author, compiler: Compiler
) -> None:
    author.compile(written(TAKEN[case], side), side, compiler)


def several(side: Side) -> str:
    """A function for each dtype, and others of the name that take other attributes."""
    half = "float16" if side == "cpu" else "__half"
    optional = "std::optional<double> scale"
    texts = [written(BY_DTYPE.format(t, optional), side, "inline") for t in ("float", half)]
    other = written(BY_DTYPE.format("float", optional).replace("int64_t axis", "double axis"), side, "inline")
    return "\n".join([*texts, other]).replace("#pragma once\n", "")


@pytest.mark.parametrize("side", ["cpu", "cuda"])
def test_overloads_are_told_apart(side: Side, author: Author, compiler: Compiler) -> None:
    author.compile(several(side), side, compiler)


def test_nvcc_takes_them_too(author: Author, gcc: Compiler, nvcc: Nvcc) -> None:
    for text in (
        *(written(TAKEN[case], "cuda") for case in ("const", "const references", "default arguments")),
        several("cuda"),
        written(PARAMETERS, "cuda").replace("Stream stream", "cudaStream_t stream"),
    ):
        author.compile_with_nvcc(text, nvcc, gcc)


# --- every target ----------------------------------------------------------------------------------------------------


def _build(target: str, author: Author, nvcc: str, out: Path) -> Any:
    declaration = str(author.folder / "gain_ops.py")
    if target == "ort-cpu":
        from deployops.ort_ops import compile_library

        return compile_library(ops=[declaration], out=out)
    if target == "ort-cuda":
        from deployops.ort_ops import compile_library

        return compile_library("ort-cuda", [declaration], archs=[80], out=out, nvcc=nvcc)
    if target == "tensorrt":
        from deployops.trt_plugins.library import compile_plugins

        return compile_plugins([declaration], archs=[80], out=out, nvcc=nvcc)
    if target in ("ptx", "cubin"):
        from deployops.trt_plugins.device_code import compile_device_code

        return compile_device_code([declaration], target=target, archs=[80], out=out, nvcc=nvcc)
    if target == "emulate":
        raise emulation.build([author.op]).failed[author.op.name]
    from deployops.trt_plugins.ptx.build import build

    raise build([author.op], nvcc=nvcc).failed[author.op.name]


@pytest.mark.parametrize(
    "target", ["ort-cpu", "ort-cuda", "tensorrt", "ptx", "cubin", "emulate", "emulate --ptx"]
)
def test_every_target_refuses_swapped_attributes(
    target: str, author: Author, nvcc: Nvcc, tmp_path: Path
) -> None:
    side: Side = "cpu" if target == "ort-cpu" else "cuda"
    case = "all three in another order"
    (author.folder / FILE[side]).write_text(made(case, side))
    with pytest.raises(DeployOpsError) as caught:
        _build(target, author, str(nvcc.path), tmp_path / "out")
    if isinstance(caught.value, NotCheckedError):
        pytest.skip(f"not checked: {caught.value}")
    assert isinstance(caught.value, CompileError)
    expect_refusal(str(caught.value), case, side)
    assert not (tmp_path / "out").exists()
