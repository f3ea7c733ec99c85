"""A launcher beside `NAME_tactics` or `NAME_workspace` sees what they promise, or does not compile: on the device and emulated."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from deployops.native.diagnostics import CompileError
from deployops.native.nvcc import Nvcc
from deployops.symbolic import registry
from deployops.trt_plugins.emulation.library import emulated_library
from deployops.trt_plugins.headers import Headers

from .test_library import DECLARATION, KERNEL, build

SEVERAL = KERNEL.replace("namespace detail {", "constexpr int twice_tactics = 2;\n    namespace detail {", 1)
LAUNCHER = "template <class T>\n    cudaError_t twice(Stream stream, "
BODY = "launch(detail::twice_kernel<T>, 1, 128, 0, stream, x.data, x.numel(), y.data); }"
PLAIN = SEVERAL.replace("Stream stream", "cudaStream_t stream")
WITH_WORKSPACE = KERNEL.replace("Stream stream", "cudaStream_t stream").replace(
    "template <class T>\n    cudaError_t",
    "template <class T>\n    size_t twice_workspace(In<T> x, Out<T>) { return size_t(x.numel()); }\n"
    "    template <class T>\n    cudaError_t",
)
# What sees the tactic, or could.
SEEING = {
    "Stream": SEVERAL,
    "a reference": SEVERAL.replace("Stream stream", "const Stream& stream"),
    "a reference that is not const": SEVERAL.replace("Stream stream", "Stream& stream"),
    "of any type": SEVERAL.replace(LAUNCHER, "template <class S, class T>\n    cudaError_t twice(S stream, "),
    "one of two": SEVERAL.replace(
        LAUNCHER,
        f"template <class T>\n    cudaError_t twice(cudaStream_t stream, In<T> x, Out<T> y) {{ return {BODY}\n    {LAUNCHER}",
    ),
    "one tactic, said": PLAIN.replace("twice_tactics = 2", "twice_tactics = 1"),
    "one tactic": KERNEL.replace("Stream stream", "cudaStream_t stream"),
}
_packs = iter(range(1000))

Compile = Callable[[str], None]


@pytest.fixture(params=["nvcc", "emulation"])
def compiled(request: pytest.FixtureRequest, tmp_path: Path) -> Compile:
    """Builds a kernel's file."""

    def on_device(kernel: str) -> None:
        nvcc: Nvcc = request.getfixturevalue("nvcc")
        headers: Headers = request.getfixturevalue("headers")
        build(tmp_path, nvcc, headers, kernel)

    def emulated(kernel: str) -> None:
        name = f"tactics{next(_packs)}"
        (tmp_path / "pack.py").write_text(textwrap.dedent(DECLARATION.format(name=name)))
        (tmp_path / "twice.cuh").write_text(textwrap.dedent(kernel))
        [op] = registry.load([str(tmp_path / "pack.py")])
        with emulated_library([op]) as library:
            library.number(op)  # raises what its build failed with

    return on_device if request.param == "nvcc" else emulated


@pytest.mark.parametrize("kernel", [PLAIN, WITH_WORKSPACE], ids=["several tactics", "workspace"])
def test_a_launcher_that_cannot_see_its_tactic_or_workspace_is_refused_at_its_line(
    compiled: Compile, kernel: str
) -> None:
    with pytest.raises(CompileError) as caught:
        compiled(kernel)
    text = str(caught.value)
    assert "cudaError_t twice(Stream stream, In<float> x, Out<float> y)" in text  # what is expected
    assert "its file says that there are several tactics" in text
    line = 1 + textwrap.dedent(kernel).splitlines().index(
        "cudaError_t twice(cudaStream_t stream, In<T> x, Out<T> y) {"
    )
    assert f"twice.cuh:{line}" in text


@pytest.mark.parametrize("name", SEEING)
def test_what_sees_the_tactic_or_needs_none_compiles(compiled: Compile, name: str) -> None:
    compiled(SEEING[name])
