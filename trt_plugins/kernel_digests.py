"""What tells one compiled kernel from another, for TensorRT's timing cache: the digests of the kernels' objects, in C++.

An object has all in it that the kernel's time depends on: what the `.cuh` and its headers became, for the GPU and for the
launch. The table of plugins is compiled beside the kernels and refers to these digests by name; only the few lines here wait
for the objects.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

__all__ = ["kernel_digests"]

_DIGITS = 16  # of sha256, as in the fingerprints of declarations
_HAS_CONTENT, _NO_BITS = 0x2, 8  # flag SHF_ALLOC, type SHT_NOBITS


def kernel_digests(objects: Mapping[str, Path]) -> str:
    """The source of the digests. `objects`: by the symbol of their launcher, of which `templates/plugin_table.cpp.j2` knows."""
    lines = []
    for launcher, path in sorted(objects.items()):
        name, digest = f"{launcher}_digest", _digest(path.read_bytes())
        lines.append(f'extern "C" {{ extern const char {name}[]; const char {name}[] = "{digest}"; }}\n')
    return "".join(lines)


def _digest(data: bytes) -> str:
    """Of what is loaded. Not of the symbols: nvcc puts into the names of local ones in which folder it worked."""
    digest = sha256()
    for content in list(_loaded_sections(data)) or [data]:
        digest.update(f"{len(content)}:".encode() + content)
    return digest.hexdigest()[:_DIGITS]


def _loaded_sections(data: bytes) -> Iterator[bytes]:
    """Of a relocatable object, ELF with 64 bits, as the compilers that deployops takes write it, in the file's order.

    None of another file, nor of one with more sections than the header can count.
    """
    if data[:4] != b"\x7fELF":
        return
    order = "<" if data[5] == 1 else ">"
    (headers,) = struct.unpack_from(f"{order}Q", data, 0x28)
    size, count = struct.unpack_from(f"{order}HH", data, 0x3A)
    for at in range(headers, headers + size * count, size):
        kind, flags = struct.unpack_from(f"{order}IQ", data, at + 4)
        offset, length = struct.unpack_from(f"{order}QQ", data, at + 24)
        if flags & _HAS_CONTENT and kind != _NO_BITS:
            yield data[offset : offset + length]
