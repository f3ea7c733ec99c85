"""Integer and bit instructions against Python's integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from assembled import evaluate

RNG = np.random.default_rng(2)
SIZES = {
    "s16": np.int16,
    "u16": np.uint16,
    "s32": np.int32,
    "u32": np.uint32,
    "s64": np.int64,
    "u64": np.uint64,
}


def numbers(kind: str, count: int = 60) -> np.ndarray:
    info = np.iinfo(SIZES[kind])
    drawn = RNG.integers(info.min, info.max, count, dtype=SIZES[kind], endpoint=True)
    small = RNG.integers(max(info.min, -9), 9, count, dtype=SIZES[kind])
    edges = np.array([info.min, info.max, 0, 1, info.max - 1], SIZES[kind])
    return np.concatenate([drawn, small, edges])


def wrapped(value: int, kind: str) -> int:
    size = int(kind[1:])
    value %= 1 << size
    return value - (1 << size) if kind[0] == "s" and value >> (size - 1) else value


def truncated(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


BINARY: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, n: a + b,
    "sub": lambda a, b, n: a - b,
    "mul.lo": lambda a, b, n: a * b,
    "mul.hi": lambda a, b, n: (a * b) >> n,
    "min": lambda a, b, n: min(a, b),
    "max": lambda a, b, n: max(a, b),
    "div": lambda a, b, n: truncated(a, b),
    "rem": lambda a, b, n: a - b * truncated(a, b),
}


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("name", BINARY)
def test_two_integers(name: str, kind: str) -> None:
    a, b = numbers(kind), RNG.permutation(numbers(kind))
    if name in ("div", "rem"):
        b = np.where(b == 0, SIZES[kind](3), b)
    got = evaluate(f"{name}.{kind} %out, %in0, %in1;", [(kind, a), (kind, b)], (kind, SIZES[kind]))
    size = int(kind[1:])
    expected = [wrapped(BINARY[name](int(x), int(y), size), kind) for x, y in zip(a, b, strict=True)]
    assert [int(v) for v in got] == expected


@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32"])
def test_products_of_twice_the_width(kind: str) -> None:
    a, b = numbers(kind), RNG.permutation(numbers(kind))
    wide = kind[0] + str(2 * int(kind[1:]))
    c = RNG.permutation(np.resize(numbers(wide), len(a)))
    got = evaluate(
        f"mad.wide.{kind} %out, %in0, %in1, %in2;", [(kind, a), (kind, b), (wide, c)], (wide, SIZES[wide])
    )
    expected = [wrapped(int(x) * int(y) + int(z), wide) for x, y, z in zip(a, b, c, strict=True)]
    assert [int(v) for v in got] == expected


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("left", [True, False])
def test_shifts_beyond_the_width_leave_nothing_but_the_sign(left: bool, kind: str) -> None:
    a = numbers(kind)
    n = RNG.choice([0, 1, 5, 31, 32, 33, 63, 64, 200], len(a)).astype(np.uint32)
    operation = f"shl.b{kind[1:]}" if left else f"shr.{kind}"
    got = evaluate(f"{operation} %out, %in0, %in1;", [(kind, a), ("u32", n)], (kind, SIZES[kind]))
    expected = [
        wrapped(int(x) << int(k) if left else int(x) >> int(k), kind) for x, k in zip(a, n, strict=True)
    ]
    assert [int(v) for v in got] == expected


@pytest.mark.parametrize("wrap", ["wrap", "clamp"])
@pytest.mark.parametrize("direction", ["l", "r"])
def test_funnel_shifts(direction: str, wrap: str) -> None:
    a, b = numbers("u32"), RNG.permutation(numbers("u32"))
    n = RNG.integers(0, 70, len(a), dtype=np.uint32)
    got = evaluate(
        f"shf.{direction}.{wrap}.b32 %out, %in0, %in1, %in2;",
        [("u32", a), ("u32", b), ("u32", n)],
        ("u32", np.uint32),
    )
    for x, y, k, r in zip(a, b, n, got, strict=True):
        count = int(k) & 31 if wrap == "wrap" else min(int(k), 32)
        both = int(y) << 32 | int(x)
        assert int(r) == ((both << count) >> 32 if direction == "l" else both >> count) & 0xFFFFFFFF


def test_every_table_of_three_inputs() -> None:
    a, b, c = (numbers("u32", 20) for _ in range(3))
    for table in (0x00, 0x80, 0xE8, 0x96, 0xC0, 0xFE, 0x1B, 0xFF):
        got = evaluate(
            f"lop3.b32 %out, %in0, %in1, %in2, {table:#x};",
            [("u32", v) for v in (a, b, c)],
            ("u32", np.uint32),
        )
        for x, y, z, r in zip(a, b, c, got, strict=True):
            expected = sum(
                (table >> (int(x) >> k & 1) * 4 + (int(y) >> k & 1) * 2 + (int(z) >> k & 1) & 1) << k
                for k in range(32)
            )
            assert int(r) == expected


def test_counting_and_reversing_bits() -> None:
    a = numbers("u32")
    run = lambda text: evaluate(text, [("u32", a)], ("u32", np.uint32)).tolist()  # noqa: E731
    assert run("popc.b32 %out, %in0;") == [int(v).bit_count() for v in a]
    assert run("clz.b32 %out, %in0;") == [32 - int(v).bit_length() for v in a]
    assert run("brev.b32 %out, %in0;") == [int(f"{int(v):032b}"[::-1], 2) for v in a]
    assert run("bfind.u32 %out, %in0;") == [int(v).bit_length() - 1 if v else 0xFFFFFFFF for v in a]
    assert run("not.b32 %out, %in0;") == [int(v) ^ 0xFFFFFFFF for v in a]


def test_bit_fields() -> None:
    a, b = numbers("u32"), RNG.permutation(numbers("u32"))
    position, length = (RNG.integers(0, 40, len(a), dtype=np.uint32) for _ in range(2))
    got = evaluate(
        "bfe.u32 %out, %in0, %in1, %in2;",
        [("u32", a), ("u32", position), ("u32", length)],
        ("u32", np.uint32),
    )
    for x, p, n, r in zip(a, position, length, got, strict=True):
        assert int(r) == (int(x) >> int(p)) & ((1 << int(n)) - 1)
    signed = evaluate(
        "bfe.s32 %out, %in0, %in1, %in2;", [("u32", a), ("u32", position), ("u32", length)], ("s32", np.int32)
    )
    for x, p, n, r in zip(a, position, length, signed, strict=True):
        value = int(x) - (1 << 32 if x >> 31 else 0)
        if n == 0:
            assert r == 0
            continue
        field = value >> int(p) & ((1 << int(n)) - 1)
        top = min(int(p) + int(n) - 1, 31) - int(p)
        sign = value >> min(int(p) + int(n) - 1, 31) & 1
        expected = field if not sign else field | (-1 << max(top + 1, 0))
        assert int(r) == wrapped(expected, "s32")
    got = evaluate(
        "bfi.b32 %out, %in0, %in1, %in2, %in3;",
        [("u32", a), ("u32", b), ("u32", position), ("u32", length)],
        ("u32", np.uint32),
    )
    for x, y, p, n, r in zip(a, b, position, length, got, strict=True):
        mask = ((1 << int(n)) - 1 << int(p)) & 0xFFFFFFFF
        assert int(r) == (int(y) & ~mask & 0xFFFFFFFF) | (int(x) << int(p) & mask)


def test_bytes_are_permuted() -> None:
    """PTX ISA, prmt, default mode: bytes 0–3 of a, 4–7 of b; with the top bit, the sign of the byte."""
    got = evaluate(
        "prmt.b32 %out, %in0, %in1, 0x7604; prmt.b32 %r0, %in0, %in1, 0x000B; xor.b32 %out, %out, %r0;",
        [("u32", np.uint32([0x83828100])), ("u32", np.uint32([0x47464544]))],
        ("u32", np.uint32),
    )
    assert hex(got[0]) == hex(0x47460044 ^ 0x000000FF)


def test_packing_and_unpacking() -> None:
    got = evaluate(
        "mov.b64 {%r0, %r1}, %in0; mov.b64 %d0, {%r1, %r0}; mov.b64 %out, %d0;", [("u64", np.uint64([0x1122334455667788]))],
        ("u64", np.uint64),
    )  # fmt: skip
    assert hex(got[0]) == "0x5566778811223344"


def test_a_division_by_zero_is_a_fault_only_of_lanes_that_divide() -> None:
    from deployops.trt_plugins.ptx.faults import PtxFault

    a, b = np.int32([6, 6, 6]), np.int32([3, 0, 2])
    text = "setp.ne.s32 %p0, %in1, 0; mov.b32 %out, 9; @%p0 div.s32 %out, %in0, %in1;"
    assert evaluate(text, [("s32", a), ("s32", b)], ("s32", np.int32), threads=3).tolist() == [2, 9, 3]
    with pytest.raises(
        PtxFault, match=r"thread \(1, 0, 0\) of block \(0, 0, 0\) divides an integer by 0, PTX line \d+"
    ):
        evaluate("div.s32 %out, %in0, %in1;", [("s32", a), ("s32", b)], ("s32", np.int32), threads=3)
