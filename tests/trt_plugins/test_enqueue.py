"""Plugins run through their C++ interface on the emulated device: what an engine does, without TensorRT and without a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deployops.native.compile_job import CompileJob
from deployops.native.compilers import find_cxx
from deployops.native.kernel_files import INCLUDE
from deployops.native.object_cache import Cache
from deployops.symbolic.operator import Operator
from deployops.trt_plugins import library as plugin_library
from deployops.trt_plugins.emulation.build import Sanitizer, device_jobs, kernel_flags
from deployops.trt_plugins.headers import Headers
from deployops.trt_plugins.plan import make_plan

HERE = Path(__file__).resolve().parent
PLUGINS = Path(plugin_library.__file__).resolve().parent / "cpp"
EMULATION = PLUGINS.parent / "emulation" / "cpp"

# x is (1, -2, 3; -4, 5, 6). Behind the bar come the outputs, where -77 is what nobody wrote, and then the float inputs.
EXPECTED = {
    "positives": "0 | 1 3 5 6 -77 -77 | 4 | 1 -2 3 -4 5 6",
    "positives of none": "0 | -77 -77 | 0 | -1 -2",
    # above 2 in the first row is the 3 at (0, 2); above 9 in the second nothing is
    "above": "0 | 0 2 -77 -77 -77 -77 -77 -77 -77 -77 -77 -77 | 3 -77 -77 -77 -77 -77 | 1 -77 | 1 | 1"
    " | 1 -2 3 -4 5 6 | 2 9",
    "tile to": "0 | 1 2 3 1 2 3 1 2 | 1 2 3",
    "parts": "0 | 1 -4 | -2 5 3 6 | 1 -2 3 -4 5 6",
    "blend without bias": "0 | 1 -0 3 -0 5 0 | 1 -2 3 -4 5 6 | 1 -2 3 -4 5 6",
    "blend without mask": "0 | 2 -1 4 -3 6 7 | 1 -2 3 -4 5 6 | 1 1 1 1 1 1",
    "blend": "0 | 1 -2 3 -4 5 6 | 1 -2 3 -4 5 6",
    "empty list": "0 | 2 -4 6 -8 10 12 | 1 -2 3 -4 5 6 | 1 -2 3 -4 5 6",
    "list": "0 | 4 -8 12 -16 20 24 | 1 -2 3 -4 5 6 | 1 -2 3 -4 5 6 | 1 -2 3 -4 5 6 | 1 -2 3 -4 5 6",
    # the content goes where the output is, and the input stays; in place it is the input that changes
    "shift copied": "0 | 11 8 13 6 15 16 | 1 -2 3 -4 5 6 | 10 10 10 10 10 10",
    "shift in place": "0 | -77 -77 -77 -77 -77 -77 | 11 8 13 6 15 16 | 10 10 10 10 10 10",
}


@pytest.fixture(scope="module", params=[None, "address"])
def said(
    request: pytest.FixtureRequest,
    pack: dict[str, Operator],
    headers: Headers,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    """What the program says: its lines, by what is before the colon."""
    sanitize: Sanitizer | None = request.param
    compiler, cache = find_cxx(), Cache()
    plan = make_plan(list(pack.values()))
    includes = (EMULATION / "include", INCLUDE, PLUGINS, headers.folder)
    sources = {k.operator: (k.source, Path(k.file).parent) for k in plan.kernels}
    sources["plugin table"] = (plan.table, PLUGINS)
    for part in ("attributes", "messages", "plugin", "plugin_runtime", "exported"):
        sources[f"plugin {part}"] = (f'#include "{part}.cpp"\n', PLUGINS)
    jobs = [
        CompileJob(f"{name} (enqueued)", source, compiler, kernel_flags(sanitize), (*includes, folder))
        for name, (source, folder) in sources.items()
    ]
    objects = [cache.compile(job) for job in (*jobs, *device_jobs(compiler, sanitize))]
    address = ("-fsanitize=address,undefined",) if sanitize == "address" else ()
    library = cache.link(objects, compiler, ("-pthread", "-Wl,-Bsymbolic", *address), "libenqueued.so")
    program = tmp_path_factory.mktemp("enqueue") / "enqueue"
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations", *address]
    command = [str(compiler.path), *flags, f"-I{EMULATION / 'include'}", "-isystem", str(headers.folder)]
    subprocess.run([*command, str(HERE / "enqueue.cpp"), "-o", str(program), "-ldl"], check=True)
    done = subprocess.run(
        [str(program), str(library)], capture_output=True, text=True, env={"ASAN_OPTIONS": "detect_leaks=0"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("call", EXPECTED)
def test_a_plugin_computes_what_its_operator_means(said: dict[str, str], call: str) -> None:
    assert said[call] == EXPECTED[call]


def test_what_a_kernel_refuses_is_reported_and_nothing_is_written(said: dict[str, str]) -> None:
    assert said["refused"].startswith(
        "-1 trtpack::Parts (node 'the_node'): a tensor of shape (3,) has no dimension 1"
    )
    assert said["refused"].endswith("| -77 -77 -77 | -77 -77 -77 | 1 2 3")
