"""Find what a TorchScript archive would do to files, processes or the network, without loading it.

Its pickles are read by TorchScript's own reader, which imports no Python, and its code is interpreted; but torch has
operators that open files and talk to other machines, and the code may call them. torch prints such a call as
`torch.save(`, `ops.aten.save(` or `getattr(ops.aten, "save")(`, and its parser also reads what torch never prints:
comments between the dot and the name, escapes in a string, strings in several pieces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .archive_members import unknown_script_members
from .pickle_scan import scan_pickle

__all__ = ["HOSTILE_NAMESPACES", "HOSTILE_OPERATORS", "ScriptScan", "scan_script"]

HOSTILE_OPERATORS = frozenset(
    {"save", "from_file", "load_tensor", "rpc_async", "rpc_sync", "rpc_remote", "PythonOp"}
)
"""Operators of torch itself that read or write files named by the model, or call other processes."""

_NAMESPACES = """
    c10d c10d_functional _c10d_functional _c10d_functional_autograd symm_mem fsdp dist_rpc rpc
    inductor debugprims static_runtime
"""
HOSTILE_NAMESPACES = frozenset(_NAMESPACES.split())
"""Namespaces of torch itself that talk to other processes, or take sizes and offsets without checking them."""

_WORDS = "|".join(sorted(HOSTILE_OPERATORS | HOSTILE_NAMESPACES)).encode()
_GAP = rb"(?:\s|\\|#[^\n]*\n)*"  # what the parser skips
_ATTRIBUTE = re.compile(rb"\." + _GAP + rb"(" + _WORDS + rb")\b")
_BARE = re.compile(rb"\b(rpc_async|rpc_sync|rpc_remote)\b")
# How torch writes an attribute whose name is no identifier: getattr(getattr(self.l, "1"), "0").
_GETATTR = re.compile(rb"\bgetattr\(([\w.() ]*), \"([^\"\\\n]*)\"\)")

_DEEPEST = 100  # getattr within getattr: the depth of a module in its model


@dataclass(frozen=True, slots=True)
class ScriptScan:
    """`globals` of its pickles; `unsafe`: what it would do beyond computing."""

    globals: tuple[str, ...]
    unsafe: tuple[str, ...]


def scan_script(names: Iterable[str], read: Callable[[str], bytes]) -> ScriptScan:
    """Scan an archive given the names of its members below the root and a function that reads one."""
    names = list(names)
    imported: set[str] = set()
    unsafe = {f"member {name!r}" for name in unknown_script_members(names)}
    for name in names:
        folded = name.casefold()  # as torch's reader compares
        if folded.endswith(".pkl") and "/" not in folded:
            imported.update(scan_pickle(read(name)).globals)
        elif folded.startswith("code/") and not folded.endswith(".debug_pkl"):
            unsafe.update(_hostile(read(name)))
    for name in imported:
        # Objects of C++ classes: __torch__.torch.classes.<namespace>.<class>
        if re.sub(r"^__torch__\.torch\.classes\.", "", name).split(".")[0] in HOSTILE_NAMESPACES:
            unsafe.add(name)
    return ScriptScan(tuple(sorted(imported)), tuple(sorted(unsafe)))


def _hostile(source: bytes) -> Iterator[str]:
    for pattern in (_ATTRIBUTE, _BARE):
        yield from (_named(word.decode()) for word in pattern.findall(source))
    if b"getattr" not in source:
        return
    attributes: set[bytes] = set()

    def without(match: re.Match[bytes]) -> bytes:
        attributes.add(match[2])
        return b"(" + match[1] + b")"

    for _ in range(_DEEPEST):
        source, count = _GETATTR.subn(without, source)
        if not count:
            break
    yield from (_named(name.decode()) for name in attributes if name.decode("latin-1") in _ALL)
    if b"getattr" in source:
        yield "getattr in a form that torch does not write"


_ALL = HOSTILE_OPERATORS | HOSTILE_NAMESPACES


def _named(word: str) -> str:
    return word if word in HOSTILE_NAMESPACES else f"aten::{word}"
