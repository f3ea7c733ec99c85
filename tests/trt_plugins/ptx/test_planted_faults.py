"""Faults planted in PTX are found, with the thread and the line: in each case by the change of one line of a sound kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from assembled import HEAD

from deployops.trt_plugins.ptx.faults import NotInterpreted, PtxFault
from deployops.trt_plugins.ptx.machine import Launch, run_launch
from deployops.trt_plugins.ptx.memory import GlobalMemory, Segment
from deployops.trt_plugins.ptx.program import compile_kernel
from deployops.trt_plugins.ptx.source import read_module

# y[i] = x[i] + x[63 - i] for each block of 64 numbers, by way of shared memory; a shuffle takes it round the warp once.
SOUND = (
    HEAD
    + """
.visible .entry kernel(
.param .u64 x,
.param .u64 y,
.param .u32 n
)
.maxntid 64
{
.reg .pred %p<3>;
.reg .b32 %r<12>;
.reg .f32 %f<6>;
.reg .b64 %rd<6>;
.shared .align 4 .b8 part[256];
ld.param.u64 %rd1, [x];
ld.param.u64 %rd2, [y];
ld.param.u32 %r1, [n];
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %tid.x;
mad.lo.s32 %r4, %r2, 64, %r3;
mul.wide.s32 %rd3, %r4, 4;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
setp.ge.s32 %p1, %r4, %r1;
mov.f32 %f1, 0f00000000;
@!%p1 ld.global.f32 %f1, [%rd4];
mov.u32 %r5, part;
shl.b32 %r6, %r3, 2;
add.s32 %r7, %r5, %r6;
st.shared.f32 [%r7], %f1;
bar.sync 0;
sub.s32 %r8, 63, %r3;
shl.b32 %r9, %r8, 2;
add.s32 %r10, %r5, %r9;
ld.shared.f32 %f2, [%r10];
add.rn.f32 %f3, %f1, %f2;
shfl.sync.bfly.b32 %f4|%p2, %f3, 0, 31, -1;
@%p1 bra $END;
st.global.f32 [%rd5], %f4;
$END:
ret;
}
"""
)
X, Y = 0x20000000, 0x30000000


def run(ptx: str, n: int = 100, threads: int = 64) -> Any:
    x = np.arange(1, n + 1, dtype=np.float32)
    output = Segment("`y`", Y, 4 * n)
    memory = GlobalMemory([Segment("`x`", X, 4 * n, x.tobytes(), False), output])
    module = read_module(ptx)
    parameters = np.array([X, Y, n], np.uint64).tobytes()[:20]
    run_launch(
        compile_kernel(module, module.kernels["kernel"]),
        Launch((2, 1, 1), (threads, 1, 1), 0, parameters),
        memory,
    )
    return np.frombuffer(memory.read_segment(output), np.float32)


def expected(n: int = 100) -> Any:
    padded = np.zeros(128, np.float32)
    padded[:n] = np.arange(1, n + 1)
    rows = padded.reshape(2, 64)
    return (rows + rows[:, ::-1]).reshape(-1)[:n]


def line_of(text: str) -> int:
    return 1 + next(k for k, line in enumerate(SOUND.split("\n")) if text in line)


def planted(old: str, new: str) -> str:
    assert SOUND.count(old) == 1
    return SOUND.replace(old, new)


def test_the_sound_kernel() -> None:
    np.testing.assert_array_equal(run(SOUND), expected())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "setp.ge.s32 %p1, %r4, %r1;",
            "setp.lt.s32 %p1, %r4, %r1;",
        ),  # a wrong predicate, among numbers that exist
        ("sub.s32 %r8, 63, %r3;", "sub.s32 %r8, %r3, 63;\nneg.s32 %r8, %r8;\nsub.s32 %r8, 63, %r8;"),
        ("add.rn.f32 %f3, %f1, %f2;", "sub.rn.f32 %f3, %f1, %f2;"),
        ("add.rn.f32 %f3, %f1, %f2;", "add.rn.f32 %f3, %f1, %f1;"),
        ("%f3, 0, 31, -1;", "%f3, 1, 31, -1;"),
    ],
)
def test_wrong_numbers(old: str, new: str) -> None:
    n = 128 if "setp" in old else 100
    assert not np.array_equal(run(planted(old, new), n), expected(n), equal_nan=True)


@pytest.mark.parametrize(
    ("old", "new", "at", "message"),
    [
        # a wrong predicate
        ("@!%p1 ld.global", "ld.global", "ld.global.f32 %f1", r"thread \(36, 0, 0\) of block \(1, 0, 0\) .* the end of `x`"),
        # an address off by one number
        ("ld.global.f32 %f1, [%rd4];", "ld.global.f32 %f1, [%rd4+4];", "ld.global.f32 %f1", "reads 4 bytes beyond the end of `x`"),
        ("ld.global.f32 %f1, [%rd4];", "ld.global.f32 %f1, [%rd4+-4];", "ld.global.f32 %f1", r"thread \(0, 0, 0\) .* before `x`"),
        ("ld.global.f32 %f1, [%rd4];", "ld.global.f32 %f1, [%rd4+2];", "ld.global.f32 %f1", "2 past a multiple of 4"),
        ("st.global.f32 [%rd5]", "st.global.f32 [%rd4]", "st.global.f32", "writes into `x`, which is an input"),
        # swapped operands
        ("sub.s32 %r8, 63, %r3;", "sub.s32 %r8, %r3, 63;", "ld.shared.f32 %f2", "reads before shared memory"),
        ("sub.s32 %r8, 63, %r3;", "sub.s32 %r8, 64, %r3;", "ld.shared.f32 %f2", "reads 4 bytes beyond the end of shared memory"),
        # what nobody wrote
        ("st.shared.f32 [%r7], %f1;", "@%p1 st.shared.f32 [%r7], %f1;", "ld.shared.f32 %f2", "that nobody has written"),
        # lanes that take no part
        ("%f3, 0, 31, -1;", "%f3, 0, 31, 15;", "shfl.sync", "is lane 4, which the mask 0x0000000f leaves out"),
    ],
)  # fmt: skip
def test_faults_at_their_line(old: str, new: str, at: str, message: str) -> None:
    with pytest.raises(PtxFault, match=message) as caught:
        run(planted(old, new))
    assert f"PTX line {line_of(at)}" in str(caught.value)


def test_a_removed_barrier_is_seen_between_warps() -> None:
    with pytest.raises(
        PtxFault, match="reads shared memory that warp 1 of its block writes too, with no barrier between"
    ):
        run(planted("bar.sync 0;\n", ""))


def test_a_removed_barrier_is_not_seen_within_a_warp() -> None:
    """Lanes of a warp run in step: what docs/emulation.md says cannot be seen."""
    ptx = (
        SOUND.replace("bar.sync 0;\n", "")
        .replace("sub.s32 %r8, 63", "sub.s32 %r8, 31")
        .replace("%r2, 64,", "%r2, 32,")
    )
    run(ptx, 64, 32)


def test_a_barrier_that_some_threads_miss_is_a_deadlock() -> None:
    text = planted(
        "bar.sync 0;",
        "setp.gt.s32 %p2, %r3, 40;\n@%p2 bra $SECOND;\nbar.sync 0;\nbra $ON;\n$SECOND:\nbar.sync 0;\n$ON:",
    )
    with pytest.raises(
        PtxFault,
        match=r"deadlock: threads wait for each other.*thread \(0, 0, 0\).*bar\.sync 0.*thread \(41, 0, 0\)",
    ):
        run(text)


@pytest.mark.parametrize("last", [15, 31, 36])  # part of a warp, a warp, a warp and part of the next
@pytest.mark.parametrize(
    "barrier",
    ["bar.sync 0;", "barrier.cta.sync.aligned 0;", "barrier.cta.sync 0;", "bar.red.popc.u32 %r11, 0, %p1;",
     "barrier.cta.red.or.pred.aligned %p1, 0, %p1;", "bar.red.and.pred %p1, 0, %p1;"],
)  # fmt: skip
def test_a_barrier_that_some_leave_out_and_end(barrier: str, last: int) -> None:
    """Nobody waits for ever: those who end are no longer waited for, by a device. The emulation says it too."""
    text = planted("$END:\n", f"$END:\nsetp.gt.s32 %p2, %r3, {last};\n@%p2 bra $OUT;\n{barrier}\n$OUT:\n")
    with pytest.raises(
        PtxFault,
        match=rf"thread \({last + 1}, 0, 0\) of block \(0, 0, 0\) ends, and never comes to where others wait for it: "
        rf"thread \(0, 0, 0\) of block \(0, 0, 0\) at PTX line \d+: {barrier[:6]}",
    ):
        run(text)


def test_a_barrier_in_a_loop_that_some_go_round_less() -> None:
    loop = "mov.u32 %r11, %r3;\n$LOOP:\nbar.sync 0;\nadd.u32 %r11, %r11, 40;\nsetp.lt.u32 %p2, %r11, 64;\n@%p2 bra $LOOP;\n"
    with pytest.raises(PtxFault, match=r"thread \(24, 0, 0\) of block \(0, 0, 0\) ends, and never comes"):
        run(planted("$END:\n", f"$END:\n{loop}"))
    np.testing.assert_array_equal(
        run(planted("$END:\n", f"$END:\n{loop}").replace(" 40;", " 64;")), expected()
    )


def test_a_barrier_under_a_predicate() -> None:
    """Whom the predicate leaves out goes on."""
    everybody = "setp.ge.s32 %p2, %r3, 0;\n@%p2 bar.sync 0;\n@!%p2 bar.sync 0;"
    np.testing.assert_array_equal(run(planted("bar.sync 0;", everybody)), expected())
    with pytest.raises(PtxFault, match=r"thread \(63, 0, 0\) of block \(0, 0, 0\) ends, and never comes"):
        run(planted("$END:\n", "$END:\nsetp.ne.s32 %p2, %r3, 63;\n@%p2 bar.sync 0;\n"))


@pytest.mark.parametrize(
    "old", ["mov.b32 %r11, {0};\nbar.warp.sync %r11;", "shfl.sync.bfly.b32 %f5, %f4, 0, 31, {0};"]
)
@pytest.mark.parametrize(
    ("lanes", "mask", "message"),
    [
        # lane 20 and all above are not there any more, or go elsewhere
        ("@%p2 bra $OUT;", "-1", r"thread \(20, 0, 0\) of block \(0, 0, 0\) ends, and never comes"),
        ("@%p2 exit;", "-1", r"thread \(0, 0, 0\) .* has the mask 0xffffffff, which names lane 20, which has ended"),
        # all come, and ask for different lanes
        ("", "%r9", r"deadlock: .*thread \(0, 0, 0\) of block \(0, 0, 0\) at .* \(with another mask than thread \(20, 0, 0\)"),
    ],
)  # fmt: skip
def test_lanes_that_a_mask_names(old: str, lanes: str, mask: str, message: str) -> None:
    """%r9: lanes 0 … 19 name themselves and lane 20, the others all."""
    head = "$END:\nsetp.ge.s32 %p2, %r3, 20;\nselp.b32 %r9, -1, 0x001fffff, %p2;\n"
    with pytest.raises(PtxFault, match=message):
        run(planted("$END:\n", f"{head}{lanes}\n{old.format(mask)}\n$OUT:\n"))


def test_lanes_that_do_not_exist() -> None:
    ptx = planted("mov.u32 %r3, %tid.x;", "mov.u32 %r3, %tid.x;\nbar.warp.sync -1;")
    with pytest.raises(PtxFault, match="names lane 16, which does not exist: the block has too few threads"):
        run(ptx, threads=48)


def test_a_shuffle_that_a_lane_misses_is_a_deadlock() -> None:
    text = planted("shfl.sync", "setp.eq.s32 %p2, %r3, 5;\n$SPIN:\n@%p2 bra $SPIN;\nshfl.sync")
    import deployops.trt_plugins.ptx.machine as machine

    most, machine.MOST_BLOCKS = machine.MOST_BLOCKS, 2000
    try:
        with pytest.raises(
            PtxFault, match=r"does not end: thread \(5, 0, 0\) of block \(0, 0, 0\) is at PTX line"
        ):
            run(text)
    finally:
        machine.MOST_BLOCKS = most


def test_a_launch_larger_than_the_kernel_promises() -> None:
    with pytest.raises(PtxFault, match=r"blocks of 128 threads of a kernel that promises at most 64"):
        run(SOUND, threads=128)


def test_flushing_subnormal_numbers_changes_results() -> None:
    tiny = np.float32(2.0**-127)
    text = planted("%f1, %f2;", "%f1, 0f00400000;")  # x + 2^-127

    def first(ptx: str) -> float:
        memory = GlobalMemory(
            [Segment("`x`", X, 256, np.zeros(64, np.float32).tobytes()), Segment("`y`", Y, 256)]
        )
        module = read_module(ptx)
        parameters = np.array([X, Y, 64], np.uint64).tobytes()[:20]
        run_launch(
            compile_kernel(module, module.kernels["kernel"]),
            Launch((1, 1, 1), (64, 1, 1), 0, parameters),
            memory,
        )
        return float(np.frombuffer(memory.read_segment(memory.segments[1]), np.float32)[0])

    assert first(text) == tiny
    assert first(text.replace("add.rn.f32", "add.rn.ftz.f32")) == 0


@pytest.mark.parametrize(
    ("instruction", "what"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 %f1, %f1, %f1, %f1;", "mma.sync"),
        ("cp.async.ca.shared.global [%r7], [%rd4], 4;", "cp.async"),
        ("add.rn.f32.nonsense %f1, %f1, %f1;", "add.rn.f32.nonsense"),
        ("add.rn.weird.f32 %f1, %f1, %f1;", "add.rn.weird.f32"),
        ("bar.sync 1;", "bar.sync 1"),
        ("call.uni (retval0), vprintf, (param0, param1);", "call.uni"),
    ],
)
def test_what_is_not_known_is_named_and_not_guessed(instruction: str, what: str) -> None:
    with pytest.raises(NotInterpreted) as caught:
        run(planted("bar.sync 0;", f"bar.sync 0;\n{instruction}"))
    assert what in caught.value.what
