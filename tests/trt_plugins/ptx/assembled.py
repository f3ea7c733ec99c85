"""Short PTX programs for tests of single instructions: each thread takes numbers from arrays and stores what comes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deployops.trt_plugins.ptx.machine import Launch, run_launch
from deployops.trt_plugins.ptx.memory import GlobalMemory, Segment
from deployops.trt_plugins.ptx.program import compile_kernel
from deployops.trt_plugins.ptx.source import read_module

REGISTERS = {
    "b8": "b16", "u8": "b16", "s8": "b16", "b16": "b16", "u16": "b16", "s16": "b16", "f16": "b16", "bf16": "b16",
    "b32": "b32", "u32": "b32", "s32": "b32", "f32": "b32", "f16x2": "b32", "bf16x2": "b32",
    "b64": "b64", "u64": "b64", "s64": "b64", "f64": "b64", "pred": "pred",
}  # fmt: skip
HEAD = ".version 9.0\n.target sm_80\n.address_size 64\n"


def bits(kind: str) -> int:
    return {"b16": 16, "b32": 32, "b64": 64}[REGISTERS[kind]] if kind[-1] != "8" else 8


def program(instructions: str, inputs: Sequence[str], output: str, extra: str = "") -> str:
    """A kernel in which `%in0` … are numbers of the thread, of the types `inputs`, and `%out` is stored."""
    lines = [HEAD, extra, ".visible .entry kernel("]
    lines.append(",\n".join(f".param .u64 p{k}" for k in range(len(inputs) + 1)))
    lines.append(
        ")\n{\n.reg .b64 %a<9>;\n.reg .b32 %r<9>;\n.reg .b16 %h<9>;\n.reg .b64 %d<9>;\n.reg .pred %p<9>;"
    )
    lines += [f".reg .{REGISTERS[kind]} %in{k};" for k, kind in enumerate(inputs)]
    lines.append(f".reg .{REGISTERS[output]} %out;")
    lines.append(
        "mov.u32 %r8, %ctaid.x;\nmov.u32 %r7, %ntid.x;\nmov.u32 %r6, %tid.x;\nmad.lo.s32 %r8, %r8, %r7, %r6;"
    )
    for k, kind in enumerate(inputs):
        size = bits(kind) // 8
        lines.append(f"ld.param.u64 %a0, [p{k}];\nmad.wide.u32 %a0, %r8, {size}, %a0;")
        lines.append(f"ld.global.{'b' if bits(kind) > 8 else 'u'}{bits(kind)} %in{k}, [%a0];")
    lines.append(instructions)
    size = bits(output) // 8
    lines.append(f"ld.param.u64 %a0, [p{len(inputs)}];\nmad.wide.u32 %a0, %r8, {size}, %a0;")
    lines.append(f"st.global.b{bits(output)} [%a0], %out;\nret;\n}}")
    return "\n".join(lines)


def evaluate(
    instructions: str,
    inputs: Sequence[tuple[str, Any]],
    output: tuple[str, Any],
    *,
    threads: int = 32,
    extra: str = "",
    shared: int = 0,
) -> Any:
    """Run `instructions` on each number of the arrays in `inputs` (PTX type, array); `output`: PTX type and dtype.

    The arrays are all of one length, which is filled up to whole blocks of `threads` threads.
    """
    count = len(inputs[0][1]) if inputs else threads
    blocks = -(-count // threads)
    padded = blocks * threads
    address, segments, pointers = 0x10000000, [], []
    for k, (_, array) in enumerate(inputs):
        content = np.resize(np.ascontiguousarray(array), padded).tobytes()
        segments.append(Segment(f"input {k}", address, len(content), content, False))
        pointers.append(address)
        address += (len(content) + 0xFFFF) & ~0xFFF
    out = Segment("output", address, padded * np.dtype(output[1]).itemsize)
    segments.append(out)
    pointers.append(address)
    memory = GlobalMemory(segments)
    module = read_module(program(instructions, [kind for kind, _ in inputs], output[0], extra))
    kernel = compile_kernel(module, module.kernels["kernel"])
    parameters = np.array(pointers, np.uint64).tobytes()
    run_launch(kernel, Launch((blocks, 1, 1), (threads, 1, 1), shared, parameters), memory)
    return np.frombuffer(memory.read_segment(out), output[1])[:count]
