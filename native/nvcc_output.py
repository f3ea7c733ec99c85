"""What nvcc says, in the form in which g++ would; and what ptxas says of the kernels that it made."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from .occupancy import Occupancy, occupancy
from .processes import ProcessError, run

__all__ = ["KernelResources", "block_sizes", "gnu_style", "kernel_resources", "readable_names"]

_STATEMENT = re.compile(
    r"^(?P<path>[^\s(][^(\n]*)\((?P<line>\d+)\): (?P<severity>catastrophic error|error|warning|note|remark)"
    r"(?: #\d+(?:-D)?)?: (?P<message>.*)$"
)
_INSTANCE = re.compile(
    r"^ +(?:detected during(?: instantiation of)?:? *)?(?:instantiation of )?.* at line (\d+)(?: of (\S+))?$"
)
_DETAIL = re.compile(r"^ {12}(?! )(?!detected during)(.+)$")
_SEVERITY = {"catastrophic error": "fatal error", "remark": "note"}


def gnu_style(text: str) -> str:
    """The messages of cudafe++ and cicc as `path:line: severity: message`, with what asked for an instantiation before.

    `diagnostics.explain` reads them so; what g++ itself said is left alone.
    """
    out: list[str] = []
    start = path = ""
    at = 0  # where the last statement is in `out`
    for line in text.splitlines():
        statement = _STATEMENT.match(line)
        if statement is not None:
            path = statement["path"]
            severity = _SEVERITY.get(statement["severity"], statement["severity"])
            start = f"{path}:{statement['line']}: {severity}: {statement['message']}"
            at = len(out)
            out.append(start)
            continue
        instance = _INSTANCE.match(line) if start else None
        if instance is not None:
            path = instance[2].strip('"') if instance[2] else path
            out.insert(at, f"{path}:{instance[1]}:   required from here")
            at += 1
            continue
        detail = _DETAIL.match(line) if start else None
        if detail is not None and at == len(out) - 1:
            out[at] += f" ({detail[1].strip()})"
            continue
        out.append(line)
    return "\n".join(out)


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What one kernel needs on one architecture, as ptxas says.

    Attributes:
        name: the kernel, demangled.
        arch: 80 for compute capability 8.0.
        registers: for each thread.
        stack: bytes of local memory for each thread, without spills.
        spill_stores, spill_loads: bytes.
        shared: bytes of static shared memory for each block.
        barriers: that a block uses.
        max_threads: of a block, as __launch_bounds__ says; None: it does not say.
        symbol: the kernel's name in machine code and PTX.
    """

    name: str
    arch: int
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int
    barriers: int = 0
    max_threads: int | None = None
    symbol: str = ""

    @property
    def occupancy(self) -> Occupancy | None:
        """With the largest block that it promises to take, and no dynamic shared memory.

        None where it promises none, or the architecture's limits are not known.
        """
        if self.max_threads is None:
            return None
        return occupancy(self.arch, self.max_threads, self.registers, self.shared, self.barriers)

    def to_dict(self) -> dict[str, Any]:
        """For a manifest."""
        found = self.occupancy
        return {**asdict(self), "occupancy": None if found is None else asdict(found)}

    @property
    def over_budget(self) -> str:
        """What it needs that a kernel should not; empty where all is well."""
        over = []
        if self.spill_stores or self.spill_loads:
            over.append(f"spills {self.spill_stores} bytes of registers and loads {self.spill_loads}")
        if self.stack:
            over.append(f"{self.stack} bytes of local memory")
        return ", ".join(over)


_ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\d+)\w?'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)$")
_SHARED = re.compile(r"(\d+) bytes smem")
_BARRIERS = re.compile(r"used (\d+) barriers")
# ours: what the PTX says besides
_BOUND = re.compile(r"^deployops: block of '(\w+)': at most (\d+) threads$", re.MULTILINE)
_PTX_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\([^)]*\)\s*([^{;]*)\{")
_PTX_BOUND = re.compile(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")


def block_sizes(ptx: Iterable[str]) -> str:
    """Lines that say of each kernel in PTX how many threads a block has at most, for `kernel_resources` to read."""
    found: dict[str, int] = {}
    for text in ptx:
        for name, directives in _PTX_ENTRY.findall(text):
            bound = _PTX_BOUND.search(directives)
            if bound is not None:
                found[name] = int(bound[1]) * int(bound[2] or 1) * int(bound[3] or 1)
    return "".join(
        f"deployops: block of '{name}': at most {n} threads\n" for name, n in sorted(found.items())
    )


def kernel_resources(text: str) -> list[KernelResources]:
    """The kernels in the output of `-Xptxas=-v`, in its order; their largest blocks where `block_sizes` is in it too."""
    found: list[KernelResources] = []
    bounds = {name: int(n) for name, n in _BOUND.findall(text)}
    entry: tuple[str, int] | None = None
    frame = (0, 0, 0)
    for line in text.splitlines():
        if (m := _ENTRY.search(line)) is not None:
            entry, frame = (m[1], int(m[2])), (0, 0, 0)
        elif (m := _FRAME.search(line)) is not None and entry is not None:
            frame = (int(m[1]), int(m[2]), int(m[3]))
        elif (m := _USED.search(line)) is not None and entry is not None:
            shared, barriers = _SHARED.search(m[2]), _BARRIERS.search(m[2])
            found.append(
                KernelResources(
                    entry[0], entry[1], int(m[1]), *frame, int(shared[1]) if shared else 0,
                    int(barriers[1]) if barriers else 0, bounds.get(entry[0]), entry[0],
                )
            )  # fmt: skip
            entry = None
    names = readable_names(tuple(dict.fromkeys(k.symbol for k in found)))
    return [replace(k, name=names[k.symbol]) for k in found]


@lru_cache
def readable_names(names: tuple[str, ...]) -> dict[str, str]:
    """Readable names, where the binutils are there to make them."""
    tool = shutil.which("c++filt")
    if tool is None or not names:
        return {name: name for name in names}
    try:
        lines = run([tool], text="\n".join(names)).out.splitlines()
    except ProcessError:
        lines = []
    return (
        dict(zip(names, lines, strict=True)) if len(lines) == len(names) else {name: name for name in names}
    )
