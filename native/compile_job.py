"""One compilation: what goes in, the command that does it, and what keeps times and paths of the machine out of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from .cache_store import safe_name
from .compilers import Compiler
from .dependencies import actual_path, role_folder

__all__ = ["CompileJob", "compile_command", "expect_cacheable", "lay_out", "with_paths"]

# They name files that records would not know of, ask for other outputs, or depend on the machine.
_REFUSED = re.compile(
    r"[^-]|@|-[IBLlMox]|-i[a-z]|-[cES]$|-X(preprocessor|assembler|linker)|-W[pa],|-Wl,.*-[Mm]ap|--sysroot|"
    r"-save-temps|-specs|-gsplit-dwarf|--coverage|-wrapper|-d|-aux-info|"
    # They write files beside the object, which the cache would not bring back.
    r"-fdump|-fstack-usage|-fcallgraph-info|-fopt-info.*=|-fsave-optimization-record|-foptimization-record-file|"
    r"-ftime-trace|-fproc-stat-report=|-fdiagnostics-(format=\w+-file|add-output)|--?serialize-diagnostics|"
    r"--(aux-info|dump|save-temps|output|for-(assembler|linker)|include|imacros|specs)|"
    r"-fplugin|-fpass-plugin|-load|-fprofile|-ftest-coverage|-fauto-profile|-fsanitize-\w+list=|-fmodules|"
    r"-m(arch|tune|cpu)=native"
)

# Paths and times stay out of the objects (see also `processes.environment`), and messages are easy to read by program.
_OURS = {
    # The seed, else random, names symbols of files that define none for others.
    "gcc": ("-pipe", "-fdiagnostics-urls=never", "-frandom-seed=deployops"),
    "clang": (),
}
_OURS_ALL = (
    "-Werror=date-time",
    "-fdiagnostics-color=never",
    "-fmessage-length=0",
    "-ftemplate-backtrace-limit=0",
)


@dataclass(frozen=True, slots=True)
class CompileJob:
    """One object to compile.

    Attributes:
        name: in messages, logs, and as the name of the source file.
        source: generated C++. It includes the user's files by name, under one of `include_dirs`: a full path would
            get into the object and keep it from being found in another checkout.
        flags: of the compiler, but none that names a file or folder.
        include_dirs: where headers are looked for, in order. All but the first are for `#include "…"` alone: a kernel
            called math.h must not stand in for <math.h>.
        keep_symbol: the one symbol that other objects may see; None: all of them.
    """

    name: str
    source: str
    compiler: Compiler
    flags: tuple[str, ...]
    include_dirs: tuple[Path, ...]
    keep_symbol: str | None = None

    @property
    def source_name(self) -> str:
        return f"{safe_name(self.name)}.cpp"

    @property
    def object_name(self) -> str:
        return f"{safe_name(self.name)}.o"


def expect_cacheable(flags: Sequence[str]) -> None:
    """Raise UsageError for a flag under which the same input would not mean the same object."""
    refused = next((flag for flag in flags if _REFUSED.match(flag)), None)
    if refused is not None:
        raise UsageError(
            f"the compiler flag `{refused}` cannot be given: it names a file, another output, or this machine. "
            'What a kernel includes is found from its own folder: `#include "../shared/vectors.h"`'
        )


def lay_out(job: CompileJob, folder: Path) -> None:
    """Put what the compiler sees into its folder: the source, and the include folders under their roles."""
    (folder / job.source_name).write_text(job.source, encoding="utf-8", newline="\n")
    for index, include in enumerate(job.include_dirs):
        (folder / role_folder(index)).symlink_to(include.absolute())


def compile_command(job: CompileJob, extra: Sequence[str]) -> list[str]:
    """The command, to be run in the folder laid out; it writes the object and, as `deps`, what it read."""
    folders = [role_folder(index) for index in range(len(job.include_dirs))]
    includes = [f"{'-iquote' if index else '-I'}{folder}" for index, folder in enumerate(folders)]
    return [
        str(job.compiler.path), *job.flags, *extra, *_OURS_ALL, *_OURS[job.compiler.kind], *includes,
        "-MD", "-MF", "deps", "-MT", "object", "-c", job.source_name, "-o", job.object_name,
    ]  # fmt: skip


def with_paths(text: str, include_dirs: Sequence[Path]) -> str:
    """A compiler's message with the include folders under their own names."""
    return re.sub(
        r"(?<![\w/.-])include-(\d+)(?=/)",
        lambda m: actual_path(m[0], include_dirs) if int(m[1]) < len(include_dirs) else m[0],
        text,
    )
