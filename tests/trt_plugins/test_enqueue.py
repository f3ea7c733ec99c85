"""Plugins run through their C++ interface on the emulated device: what an engine does, without TensorRT and without a GPU."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
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
from deployops.trt_plugins.kernel_digests import kernel_digests
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
    "cuts": "0 | 0 -1 0 -3 0 0 | 0 0 0.5 0 2.5 3.5 | 1 -2 3 -4 5 6",
    "cuts given in reverse": "0 | 0 -1 0 -3 0 0 | 0 0 0.5 0 2.5 3.5 | 1 -2 3 -4 5 6",
    "blend without bias": "0 | 1 -0 3 -0 5 0 | 1 -2 3 -4 5 6 | 1 -2 3 -4 5 6",
    "blend without mask": "0 | 2 -1 4 -3 6 7 | 1 -2 3 -4 5 6 | 1 1 1 1 1 1",
    "blend": "0 | 1 -2 3 -4 5 6 | 1 -2 3 -4 5 6",
    "empty list": "0 | 2 -4 6 -8 10 12 | 1 -2 3 -4 5 6 | 1 -2 3 -4 5 6",
    "list": "0 | 4 -8 12 -16 20 24 | 1 -2 3 -4 5 6 | 1 -2 3 -4 5 6 | 1 -2 3 -4 5 6 | 1 -2 3 -4 5 6",
    # the content goes where the output is, and the input stays; in place it is the input that changes
    "shift copied": "0 | 11 8 13 6 15 16 | 1 -2 3 -4 5 6 | 10 10 10 10 10 10",
    "shift in place": "0 | -77 -77 -77 -77 -77 -77 | 11 8 13 6 15 16 | 10 10 10 10 10 10",
    # sums of parts of a row lie in memory that the plugin asked for while the engine was built
    "workspace": "0 | 2 7 | 1 -2 3 -4 5 6",
    "workspace reserved for more": "0 | 2 7 | 1 -2 3 -4 5 6",
    "workspace of several parts": "0 | 300 300" + " |" + " 1" * 600,
}


@dataclass(frozen=True)
class Change:
    """Of one generated source: a regular expression, and what stands instead."""

    source: str
    before: str
    after: str


def enqueued(
    pack: dict[str, Operator],
    headers: Headers,
    folder: Path,
    sanitize: Sanitizer | None = None,
    change: Change | None = None,
) -> dict[str, str]:
    """What the program says, after a change of what is generated: its lines, by what is before the colon."""
    compiler, cache = find_cxx(), Cache()
    plan = make_plan(list(pack.values()))
    includes = (EMULATION / "include", INCLUDE, PLUGINS, headers.folder)
    sources = {k.operator: (k.source, Path(k.file).parent) for k in plan.units}
    sources["plugin table"] = (plan.table, PLUGINS)
    for part in ("attributes", "messages", "plugin", "plugin_runtime", "exported"):
        sources[f"plugin {part}"] = (f'#include "{part}.cpp"\n', PLUGINS)
    if change is not None:
        source, place = sources[change.source]
        source, count = re.subn(change.before, change.after, source)
        assert count
        sources[change.source] = (source, place)

    def compiled(name: str, source: str, place: Path) -> Path:
        job = CompileJob(f"{name} (enqueued)", source, compiler, kernel_flags(sanitize), (*includes, place))
        return cache.compile(job)

    made = {name: compiled(name, source, place) for name, (source, place) in sources.items()}
    digests = kernel_digests({unit.symbol: made[unit.operator] for unit in plan.units})
    objects = [*made.values(), compiled("kernel digests", digests, PLUGINS)]
    objects += [cache.compile(job) for job in device_jobs(compiler, sanitize)]
    address = ("-fsanitize=address,undefined",) if sanitize == "address" else ()
    library = cache.link(objects, compiler, ("-pthread", "-Wl,-Bsymbolic", *address), "libenqueued.so")
    program = folder / "enqueue"
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations", *address]
    command = [str(compiler.path), *flags, f"-I{EMULATION / 'include'}", "-isystem", str(headers.folder)]
    subprocess.run([*command, str(HERE / "enqueue.cpp"), "-o", str(program), "-ldl"], check=True)
    done = subprocess.run(
        [str(program), str(library)], capture_output=True, text=True, env={"ASAN_OPTIONS": "detect_leaks=0"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


@pytest.fixture(scope="module", params=[None, "address"])
def said(
    request: pytest.FixtureRequest,
    pack: dict[str, Operator],
    headers: Headers,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    return enqueued(pack, headers, tmp_path_factory.mktemp("enqueue"), request.param)


@pytest.mark.parametrize("call", EXPECTED)
def test_a_plugin_computes_what_its_operator_means(said: dict[str, str], call: str) -> None:
    assert said[call] == EXPECTED[call]


def test_what_a_kernel_refuses_is_reported_and_nothing_is_written(said: dict[str, str]) -> None:
    assert said["refused"].startswith(
        "-1 trtpack::Parts (node 'the_node'): a tensor of shape (3,) has no dimension 1"
    )
    assert said["refused"].endswith("| -77 -77 -77 | -77 -77 -77 | 1 2 3")


# The wrong way round in what is generated: the numbers of "cuts" are others then.
PLANTED = {
    "attributes": (
        Change("plugin table", r'"low"(.*\n.*)"high"', r'"high"\1"low"'),
        "0 | -1.5 -4.5 0 -6.5 0 0 | 2 0 4 0 6 7 | 1 -2 3 -4 5 6",
    ),
    "outputs": (
        Change("trtpack::cuts", r"(detail::output<float>\S+ 0\)), (detail::output<float>\S+ 1\))", r"\2, \1"),
        "0 | 0 0 0.5 0 2.5 3.5 | 0 -1 0 -3 0 0 | 1 -2 3 -4 5 6",
    ),
}


@pytest.mark.parametrize("what", PLANTED)
def test_the_order_of_attributes_and_of_outputs_shows_in_the_numbers(
    what: str, pack: dict[str, Operator], headers: Headers, tmp_path: Path
) -> None:
    change, expected = PLANTED[what]
    found = enqueued(pack, headers, tmp_path, change=change)
    assert found["cuts"] == expected != EXPECTED["cuts"]
    assert found["parts"] == EXPECTED["parts"]


@pytest.mark.parametrize("other", ["nullptr", "reinterpret_cast<cudaStream_t>(&tactic)"])
def test_a_launch_on_another_stream_than_the_engines_is_reported(
    other: str, pack: dict[str, Operator], headers: Headers, tmp_path: Path
) -> None:
    found = enqueued(
        pack, headers, tmp_path, change=Change("trtpack::cuts", r"Stream\{stream,", f"Stream{{{other},")
    )
    assert re.match(r"\d+ trtpack::Cuts \(node 'the_node'\): .*cudaErrorInvalidResourceHandle", found["cuts"])
    assert " | -77 -77 -77 -77 -77 -77 | " in found["cuts"]
    assert found["parts"] == EXPECTED["parts"]


def test_a_run_that_needs_more_workspace_than_was_reserved_is_reported(said: dict[str, str]) -> None:
    # a row of 300 has two parts, a float32 each; one of 255 has one
    assert said["workspace reserved for less"].startswith(
        "-1 trtpack::RowSums (node 'the_node'): the kernel needs 16 bytes of workspace for these shapes; 8 were reserved"
    )
    assert " | -77 -77 | " in said["workspace reserved for less"]
