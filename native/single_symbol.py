"""An object file that shows one symbol to the linker, and keeps everything else to itself.

A kernel is compiled once per instruction-set level, and each object holds its own instances of the same templates and
inline functions: of the kernel's, and of `std::vector` and the like. They are weak symbols, of which a linker takes
any one for all. It could take one made of AVX-512 instructions for the portable level. So each object is made closed:
its groups of weak sections are dissolved (`ld -r --force-group-allocation`, else the linker would still choose among
them by name), then every symbol but one becomes local.

What this means for a kernel: variables in headers (`inline`, static members, statics of inline functions) exist once
per operator and level, not once per library. Exceptions are caught across objects, as libstdc++ compares types by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from .compilers import Compiler, file_identity, find_binutils
from .diagnostics import CompileError
from .processes import TIME_LIMIT, environment, run

__all__ = ["extra_flags", "keep_single_symbol", "tools_identity"]

# AddressSanitizer registers the variables of a whole library once, and keeps in this variable that it has.
_SHARED_FLAG = "___asan_globals_registered"


def extra_flags(compiler: Compiler, flags: Sequence[str]) -> tuple[str, ...]:
    """What the compiler must be told so that its objects can be closed."""
    lto = next((flag for flag in flags if flag.startswith("-flto") and flag != "-flto=no"), None)
    if lto is not None:
        raise UsageError(
            f"{lto}: kernels are closed object by object, which objects for link-time optimisation cannot be"
        )
    # Symbols of the kind `unique` are merged across whole processes, and objcopy cannot make them local.
    # clang has none, but a section with numbers of symbols that do not survive renumbering.
    return ("-fno-gnu-unique",) if compiler.kind == "gcc" else ("-fno-addrsig",)


def tools_identity(compiler: Compiler) -> str:
    return " ".join(file_identity(find_binutils(name, compiler.target)) for name in ("ld", "objcopy"))


def keep_single_symbol(made: Path, symbol: str, compiler: Compiler, limit: float = TIME_LIMIT) -> Path:
    """The object that shows only `symbol`, written beside `made`.

    Raises CompileError where `made` does not define it, or where another symbol would stay visible.
    """
    folder = made.parent
    ld, objcopy, nm = (find_binutils(name, compiler.target) for name in ("ld", "objcopy", "nm"))
    joined, closed = folder / f"joined-{made.name}", folder / f"closed-{made.name}"
    commands: tuple[list[str | Path], ...] = (
        [ld, "-r", "--force-group-allocation", made.name, "-o", joined.name],
        [objcopy, f"--keep-global-symbol={symbol}", joined.name, closed.name],
        [nm, "--extern-only", "--defined-only", "--format=posix", closed.name],
    )
    for command in commands:
        done = run(command, cwd=folder, env=environment(folder), limit=limit)
        if done.code != 0:
            raise CompileError(f"{command[0]} failed on {made.name}: {done.err.strip()}", output=done.err)
    visible = {line.split()[0] for line in done.out.splitlines() if line.strip()}
    if symbol not in visible:
        raise CompileError(
            f'{made.name} does not define the symbol `{symbol}` for others: expected `extern "C"`'
        )
    others = visible - {symbol, _SHARED_FLAG}
    if others:
        raise CompileError(
            f"{made.name}: symbols besides `{symbol}` stay visible, and could be mixed up between instruction-set "
            f"levels: {', '.join(sorted(others)[:5])}. The kernel must not define them so (GNU unique symbols, ifuncs)"
        )
    return closed
