"""The instruction-set levels that a kernel is compiled for, as data; the library chooses one at run time."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Level", "levels_for"]


@dataclass(frozen=True, slots=True)
class Level:
    """One instruction-set level.

    Attributes:
        name: in symbols, file names and reports.
        flags: of the compiler.
        cpu_check: a C++ expression, true where the running processor and operating system have everything that
            the compiler may use under `flags`. Needs no header; may be evaluated in a static initialiser.
    """

    name: str
    flags: tuple[str, ...]
    cpu_check: str


# clang up to 17 does not know "f16c", "lzcnt", "movbe" or "x86-64-v3" in __builtin_cpu_supports, so that the bits of
# cpuid are read: Intel SDM volume 2, CPUID; the members of a level: System V x86-64 psABI, table 3.1.
# A hypervisor may hide any one of them, so that none is concluded from another.
def _cpuid(leaf: str, mask: int) -> str:
    """All bits of `mask` are set in ecx of a cpuid leaf, which the processor has."""
    return (
        "[] { unsigned a = " + leaf + " & 0x80000000u, b, c = 0, d; "
        '__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d)); '
        f"if (a < {leaf}) return false; a = {leaf}; c = 0; "
        '__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d)); '
        f"return (c & {mask:#x}u) == {mask:#x}u; }}()"
    )


_SSE3, _SSSE3, _CX16, _SSE4_1, _SSE4_2, _MOVBE, _POPCNT, _F16C = (
    1 << bit for bit in (0, 9, 13, 19, 20, 22, 23, 29)
)
_LAHF, _LZCNT = 1 << 0, 1 << 5

# The builtin also asks whether the operating system saves the wide registers.
_AVX2_CHECK = " && ".join(
    (
        "(__builtin_cpu_init(), true)",
        *(f'__builtin_cpu_supports("{name}")' for name in ("avx", "avx2", "fma", "bmi", "bmi2")),
        _cpuid("1u", _SSE3 | _SSSE3 | _CX16 | _SSE4_1 | _SSE4_2 | _MOVBE | _POPCNT | _F16C),
        _cpuid("0x80000001u", _LAHF | _LZCNT),
    )
)
_AVX512_CHECK = " && ".join(
    (
        _AVX2_CHECK,
        *(f'__builtin_cpu_supports("avx512{part}")' for part in ("f", "bw", "cd", "dq", "vl")),
    )
)

_X86_64 = (
    # Hardly a processor is left that needs it: small rather than fast.
    Level("portable", ("-march=x86-64", "-O2"), "true"),
    Level("avx2", ("-march=x86-64-v3",), f"({_AVX2_CHECK})"),
    Level("avx512", ("-march=x86-64-v4",), f"({_AVX512_CHECK})"),
)
_OTHER = (Level("portable", (), "true"),)


def levels_for(target: str) -> tuple[Level, ...]:
    """The levels for a compiler's target (`x86_64-linux-gnu`), best last: the last one that fits is the one to use.

    The first one, `portable`, fits every processor of the target.
    """
    return _X86_64 if target.split("-")[0] in ("x86_64", "amd64") else _OTHER
