"""What tells one compiled kernel from another, for TensorRT's timing cache: the digests of the kernels' objects, in C++.

An object has all in it that the kernel's time depends on: what the `.cuh` and its headers became, for the GPU and for the
launch. The same sources give the same object, in whatever folder. The table of plugins is compiled beside the kernels and
refers to these digests by name; only the few lines here wait for the objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

__all__ = ["kernel_digests"]

_DIGITS = 16  # of sha256, as in the fingerprints of declarations


def kernel_digests(objects: Mapping[str, Path]) -> str:
    """The source of the digests. `objects`: by the symbol of their launcher, of which `templates/plugin_table.cpp.j2` knows."""
    lines = []
    for launcher, path in sorted(objects.items()):
        name, digest = f"{launcher}_digest", sha256(path.read_bytes()).hexdigest()[:_DIGITS]
        lines.append(f'extern "C" {{ extern const char {name}[]; const char {name}[] = "{digest}"; }}\n')
    return "".join(lines)
