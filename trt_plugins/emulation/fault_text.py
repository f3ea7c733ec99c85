"""What an emulated kernel did wrong, as text with file and line.

The emulation writes places as `<pc 0x1234>`, offsets in the library, and files by the roles of their folders
(`include-2/swish.cuh`); AddressSanitizer writes pages of its own. Both become one sentence here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from ...errors import DeployOpsError
from ...native.compilers import find_binutils
from ...native.dependencies import actual_path
from ...native.nvcc_output import readable_names
from ...native.processes import run

__all__ = ["end_of_process", "with_kernel_names", "with_places"]

_ROLE = re.compile(r"(?:/proc/self/cwd/|\./)?include-(\d+)/([^\s:,;)]+)")
_FRAME = re.compile(r"^\s*#\d+ 0x[0-9a-f]+ in (.+?) (\S*include-\d+/\S+)$", re.MULTILINE)


def with_places(text: str, library: Path, folders: Sequence[Path]) -> str:
    """A message with `<pc …>`, `<kernel …>` and roles replaced: `at kernels/swish.cuh:33`, `swish_kernel<float>`."""
    text = re.sub(r"<pc (0x[0-9a-f]+)>", lambda m: f"at {_place(library, m[1], tuple(folders))}", text)
    text = re.sub(r"<kernel (0x[0-9a-f]+)>", lambda m: _kernel(library, m[1]), text)
    return _named(text, folders)


def _named(text: str, folders: Sequence[Path]) -> str:
    def path(match: re.Match[str]) -> str:
        number = int(match[1])
        if number >= len(folders):
            return match[0]
        full = os.path.normpath(actual_path(f"include-{number}/{match[2]}", tuple(folders)))
        near = os.path.relpath(full)
        return full if near.startswith("..") else near

    return _ROLE.sub(path, text)


@lru_cache(maxsize=256)
def _place(library: Path, offset: str, folders: tuple[Path, ...]) -> str:
    """The line behind an offset, and the line of the kernel's own file that led there."""
    try:
        done = run([find_binutils("addr2line"), "-i", "-e", library, offset], limit=60)
    except DeployOpsError:
        return f"offset {offset} of {library.name}"
    lines = [re.sub(r" \(discriminator \d+\)", "", line) for line in done.out.splitlines()]
    lines = [line for line in lines if _ROLE.search(line) and not line.endswith((":?", ":0"))]
    if not lines:
        return f"offset {offset} of {library.name}"
    own = next((line for line in lines if f"include-{len(folders) - 1}/" in line), None)
    called = f" (called from {own})" if own is not None and own != lines[0] else ""
    return _named(lines[0] + called, folders)


@lru_cache(maxsize=256)
def _kernel(library: Path, offset: str) -> str:
    """The name of the function at an offset, without its parameters."""
    try:
        done = run([find_binutils("addr2line"), "-f", "-C", "-e", library, offset], limit=60)
    except DeployOpsError:
        return f"at offset {offset} of {library.name}"
    name = _short(done.out.partition("\n")[0])
    return f"`{name}`" if name.strip("?") else f"at offset {offset} of {library.name}"


def with_kernel_names(text: str) -> str:
    """A message with symbols of kernels replaced by their names: `` `_ZN9deployops5snakeE…` `` -> `` `snake` ``."""
    found = tuple(dict.fromkeys(re.findall(r"`(_Z\w+)`", text)))
    for symbol, name in readable_names(found).items():
        text = text.replace(f"`{symbol}`", f"`{_short(name)}`")
    return text


def _short(name: str) -> str:
    name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    return _without_parameters(name).removeprefix("deployops::")


def _without_parameters(name: str) -> str:
    """`f<(T)1>(int (*)(int))` -> `f<(T)1>`."""
    depth = 0
    for k in range(len(name) - 1, -1, -1) if name.endswith(")") else ():
        depth += {")": 1, "(": -1}.get(name[k], 0)
        if depth == 0:
            return name[:k]
    return name


def end_of_process(said: str, code: int, library: Path, folders: Sequence[Path]) -> str:
    """Why the process of a kernel ended, from what it said last."""
    ours = re.search(r"^deployops fault: (.+)$", said, re.MULTILINE)
    if ours is not None:
        return with_places(re.sub(r"  +", " ", ours[1]), library, folders)
    address = re.search(r"ERROR: AddressSanitizer: (\S+)", said)
    undefined = re.search(r"^(\S+?):(\d+):(?:\d+): runtime error: (.+)$", said, re.MULTILINE)
    if undefined is not None and (address is None or undefined.start() < address.start()):
        return _named(f"{undefined[3]}, at {undefined[1]}:{undefined[2]}", folders)
    if address is not None:
        return _named(_address_sanitizer(said, address[1], len(folders) - 1), folders)
    last = [line for line in said.strip().splitlines() if line.strip()][-3:]
    return f"the process of the kernel ended with status {code}" + (f": {' / '.join(last)}" if last else "")


def _address_sanitizer(said: str, kind: str, own: int) -> str:
    access = re.search(r"^(READ|WRITE) of size (\d+)", said, re.MULTILINE)
    what = f"{kind}: {'reads' if access[1] == 'READ' else 'writes'} {access[2]} bytes" if access else kind
    frames = _FRAME.findall(said)
    frames = [(f, re.sub(r"(:\d+):\d+$", r"\1", place)) for f, place in frames]
    if frames:
        what += f" at {frames[0][1]}"
        mine = next((place for _, place in frames if f"include-{own}/" in place), None)
        what += f" (called from {mine})" if mine is not None and mine != frames[0][1] else ""
    variable = re.search(
        r"(\d+ bytes (?:after|before|to the right of|to the left of|inside of)) global variable '(.+?)'", said
    )
    region = re.search(r"is located (\d+ bytes .+? of \d+-byte region)", said)
    if variable is not None:
        what += f", {variable[1]} the shared memory `{variable[2].split('::')[-1]}`"
    elif region is not None:
        what += f", {region[1]}"
    return what
