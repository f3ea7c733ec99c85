"""TensorRT and TensorRT-RTX behind one interface: which is installed, what each can build where, what its process needs.

Nothing here imports either: that happens in a child process (`worker`). They differ in this:

- TensorRT builds for the GPU of the machine that it runs on, by timing kernels there. Without a GPU it builds nothing.
- TensorRT-RTX builds for named compute capabilities, without a GPU; the GPU's code is made where the engine is loaded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from ...errors import NotCheckedError, UsageError
from ...native.archs import read_arch
from .record import Flavor

__all__ = ["NAMES", "TensorRT", "find_tensorrt", "normal_archs"]

NAMES: dict[Flavor, str] = {"tensorrt": "TensorRT", "tensorrt-rtx": "TensorRT-RTX"}
_MODULES: dict[Flavor, str] = {"tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx"}
_PACKAGES: dict[Flavor, tuple[str, ...]] = {
    "tensorrt": ("tensorrt", "tensorrt-cu13", "tensorrt-cu12"),
    "tensorrt-rtx": ("tensorrt-rtx",),
}
_HOW: dict[Flavor, str] = {
    "tensorrt": '`pip install "deployops[gpu]"`, or the Python package of its SDK',
    "tensorrt-rtx": '`pip install "deployops[rtx]"`',
}


@dataclass(frozen=True, slots=True)
class TensorRT:
    """One that is installed.

    Attributes:
        flavor: which.
        module: the name to import.
        version: of the package; "" where it does not say.
        folder: of the package.
    """

    flavor: Flavor
    module: str
    version: str
    folder: Path

    @property
    def name(self) -> str:
        """`TensorRT-RTX 1.7.1`."""
        return f"{NAMES[self.flavor]} {self.version}".strip()

    def environment(self, links: Path) -> dict[str, str]:
        """Variables for the process that uses it. `links`: a folder for that process, where links may be made.

        TensorRT-RTX 1.7 loads `libtensorrt_rtx.so` when it meets a plugin, and its package from PyPI has only
        `libtensorrt_rtx.so.1`, so that the process ends. A link of that name is put where the loader looks first.
        """
        environment = {"PYTHONDONTWRITEBYTECODE": "1"}
        if self.flavor != "tensorrt-rtx":
            return environment
        wanted = "libtensorrt_rtx.so"
        folder = self.folder.parent / "tensorrt_rtx_libs"
        real = sorted(folder.glob(f"{wanted}.*"), key=lambda path: len(path.name))
        if not real or (folder / wanted).exists():
            return environment
        (links / wanted).symlink_to(real[0].resolve())
        before = os.environ.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = f"{links}{os.pathsep}{before}" if before else str(links)
        return environment


def find_tensorrt(flavor: Flavor | None = None) -> TensorRT:
    """The asked one; without a choice TensorRT, else TensorRT-RTX.

    Raises UsageError for another name, NotCheckedError where it is not installed.
    """
    if flavor is not None and flavor not in NAMES:
        raise UsageError(f"there is no flavor {flavor!r}; there are {' and '.join(NAMES)}")
    wanted = list(NAMES) if flavor is None else [flavor]
    for one in wanted:
        folder = _folder(_MODULES[one])
        if folder is not None:
            return TensorRT(one, _MODULES[one], _version(one, folder), folder)
    if flavor is None:
        raise NotCheckedError(
            "no TensorRT is installed for this Python, and none was built with. "
            f"{_HOW['tensorrt-rtx']} brings one that builds engines without a GPU; TensorRT: {_HOW['tensorrt']}"
        )
    raise NotCheckedError(
        f"{NAMES[flavor]} is not installed for this Python ({sys.executable}): {_HOW[flavor]}. "
        "`deployops doctor` shows what is there"
    )


def _folder(module: str) -> Path | None:
    try:
        found = find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None
    return Path(found.origin).parent if found is not None and found.origin else None


def _version(flavor: Flavor, folder: Path) -> str:
    for name in _PACKAGES[flavor]:
        for installed in metadata.distributions(name=name):
            # another folder on the path may have another version
            if Path(str(installed.locate_file(""))).resolve() == folder.parent.resolve():
                return installed.version
    return ""


def normal_archs(given: Sequence[str | int]) -> tuple[str, ...]:
    """Compute capabilities as `sm89`, each once, from such texts as `sm_89`, `89`, `8.9`. Raises UsageError."""
    return tuple(f"sm{number}" for number in sorted(set(map(read_arch, given))))
