"""Occupancy against the toolkit's own calculator, cuda_occupancy.h, compiled with the C++ compiler."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from deployops.native.compilers import find_cxx
from deployops.native.nvcc import Nvcc
from deployops.native.nvcc_output import block_sizes, kernel_resources
from deployops.native.occupancy import multiprocessor, occupancy
from deployops.trt_plugins.headers import Headers
from deployops.trt_plugins.library import compile_plugins

ARCHS = (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)

PROGRAM = r"""
#include <cstring>
#include "cuda_occupancy.h"
#include <cstdio>
int main() {
  int major, minor, threads_per_sm, threads, registers, barriers;
  size_t shared_per_sm, reserved, shared;
  while (std::scanf("%d %d %d %zu %zu %d %d %zu %d", &major, &minor, &threads_per_sm, &shared_per_sm, &reserved, &threads,
                    &registers, &shared, &barriers) == 9) {
    cudaOccDeviceProp p;
    p.computeMajor = major, p.computeMinor = minor, p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiprocessor = threads_per_sm, p.regsPerBlock = 65536, p.regsPerMultiprocessor = 65536;
    p.warpSize = 32, p.sharedMemPerBlock = 49152, p.sharedMemPerMultiprocessor = shared_per_sm, p.numSms = 1;
    p.sharedMemPerBlockOptin = shared_per_sm - reserved, p.reservedSharedMemPerBlock = reserved;
    cudaOccFuncAttributes f;
    f.maxThreadsPerBlock = 1024, f.numRegs = registers, f.sharedSizeBytes = shared, f.numBlockBarriers = barriers;
    f.partitionedGCConfig = PARTITIONED_GC_OFF, f.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    f.maxDynamicSharedSizeBytes = 0;
    cudaOccDeviceState s;
    s.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult r;
    const cudaOccError e = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &f, &s, threads, 0);
    std::printf("%d %d\n", int(e), r.activeBlocksPerMultiprocessor);
  }
}
"""


def test_as_the_toolkits_calculator_has_it(nvcc: Nvcc, tmp_path: Path) -> None:
    (tmp_path / "calculator.cpp").write_text(PROGRAM)
    program = tmp_path / "calculator"
    command = [
        str(find_cxx().path),
        "-w",
        f"-I{nvcc.include}",
        str(tmp_path / "calculator.cpp"),
        "-o",
        str(program),
    ]
    subprocess.run(command, check=True)
    older = tuple(map(int, nvcc.version.split(".")[:2])) < (13, 5)
    cases = [
        (arch, threads, registers, shared, barriers)
        for arch in ARCHS
        for threads in (32, 96, 128, 256, 512, 1024)
        for registers in (1, 16, 24, 32, 33, 40, 63, 64, 65, 96, 128, 168, 255)
        for shared in (0, 128, 4096, 10000, 33000, 48 << 10)
        for barriers in (0, 1, 3)
        # a disagreement of the calculators: 64 barriers in CUDA 13.0, 32 in 13.5
        if not (arch == 103 and barriers == 3 and older)
    ]
    lines = []
    for arch, threads, registers, shared, barriers in cases:
        sm = multiprocessor(arch)
        assert sm is not None
        lines.append(
            f"{arch // 10} {arch % 10} {sm.warps * 32} {sm.shared} {sm.reserved} {threads} {registers} {shared} {barriers}"
        )
    done = subprocess.run([str(program)], input="\n".join(lines), capture_output=True, text=True, check=True)
    told = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(told) == len(cases)
    assert all(error == 0 for error, _ in told), cases[next(k for k, (e, _) in enumerate(told) if e)]
    for case, (_, blocks) in zip(cases, told, strict=True):
        found = occupancy(*case)
        assert found is not None
        assert found.blocks == blocks, case


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks", "limited_by"),
    [
        (256, 32, 0, 8, ("warps", "registers")),  # 64 warps; 65536 registers are 2048 threads of 32
        (256, 64, 0, 4, ("registers",)),
        (32, 16, 0, 32, ("blocks",)),
        (128, 16, 40 << 10, 4, ("shared memory",)),  # 164 kB, 41 for each
    ],
)
def test_what_limits_on_compute_capability_8_0(
    threads: int, registers: int, shared: int, blocks: int, limited_by: tuple[str, ...]
) -> None:
    found = occupancy(80, threads, registers, shared)
    assert found is not None
    assert (found.blocks, found.limited_by) == (blocks, limited_by)
    assert found.fraction == blocks * threads / 2048


def test_an_architecture_that_is_not_known_has_none() -> None:
    assert occupancy(210, 256, 32, 0) is None


def test_the_block_of_a_kernel_comes_from_its_ptx() -> None:
    ptx = ".visible .entry one(\n.param .u64 a\n)\n.maxntid 64, 2\n.minnctapersm 2\n{\nret;\n}\n.entry two()\n{\nret;\n}\n"
    said = "".join(
        f"ptxas info    : Compiling entry function '{name}' for 'sm_80'\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 40 registers, used 1 barriers, 512 bytes smem, 368 bytes cmem[0]\n"
        for name in ("one", "two")
    )
    one, two = kernel_resources(said + block_sizes([ptx]))
    assert (one.max_threads, one.barriers, one.shared) == (128, 1, 512)
    assert one.occupancy is not None
    assert (one.occupancy.blocks, one.occupancy.fraction) == (
        12,
        0.75,
    )  # 40 · 32 = 1280 registers a warp: 48 warps
    assert two.occupancy is None


def test_the_manifest_of_plugins_has_it(nvcc: Nvcc, headers: Headers, tmp_path: Path) -> None:
    """A kernel of at most 512 threads (elementwise.h: __launch_bounds__(512, …)): 16 warps, of which 48 fit on 8.6."""
    library = compile_plugins(
        ["deployops.symbolic.operators.relu"],
        archs=[86],
        out=tmp_path,
        nvcc=str(nvcc.path),
        tensorrt_root=headers.folder,
    )
    [plugin] = json.loads(library.manifest.read_text())["plugins"]
    assert plugin["kernels"]
    for kernel in plugin["kernels"]:
        assert kernel["max_threads"] == 512
        found = kernel["occupancy"]
        assert found["threads"] == 512
        assert found["warps"] == found["blocks"] * 16
        assert found["fraction"] == found["warps"] / 48
        assert found["blocks"] <= 3
        assert found["limited_by"]
