"""What this machine has for building plugins and engines, and for running them; what is missing, and how to get it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from ..errors import DeployOpsError
from ..native.compilers import find_cxx
from ..native.nvcc import find_nvcc
from .headers import find_headers

__all__ = ["Finding", "examine"]

_PACKAGES = (
    "tensorrt", "tensorrt-cu12", "tensorrt-cu13", "tensorrt-lean", "tensorrt-lean-cu12", "tensorrt-lean-cu13",
    "tensorrt-dispatch", "tensorrt-rtx", "onnxruntime", "onnxruntime-gpu",
)  # fmt: skip
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked for.

    Attributes:
        name: `C++ compiler`.
        found: whether it is there and will do.
        text: what it is; or why it is not there, and what to do.
        details: the same for programs.
    """

    name: str
    found: bool
    text: str
    details: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"name": self.name, "found": self.found, "text": self.text, **self.details}


def examine(
    *, cxx: str | None = None, nvcc: str | None = None, tensorrt_root: str | None = None
) -> list[Finding]:
    """Look for everything; the arguments are those of `compile_plugins`."""
    return [
        _tried("C++ compiler", lambda: _cxx(cxx)),
        _tried("CUDA compiler", lambda: _nvcc(cxx, nvcc)),
        _tried("TensorRT headers", lambda: _headers(tensorrt_root)),
        _packages(),
        _driver(),
    ]


def _tried(name: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except DeployOpsError as error:
        return Finding(name, False, str(error))


def _cxx(choice: str | None) -> Finding:
    found = find_cxx(choice)
    details = {"path": str(found.path), "version": found.version, "target": found.target}
    return Finding("C++ compiler", True, f"{found.version}, {found.path}", details)


def _nvcc(cxx: str | None, choice: str | None) -> Finding:
    found = find_nvcc(find_cxx(cxx), choice)
    archs = ", ".join(map(str, found.archs))
    details = {
        "path": str(found.path),
        "version": found.version,
        "origin": found.origin,
        "archs": list(found.archs),
    }
    text = f"nvcc {found.version}, {found.path} ({found.origin}); compiles for {archs}"
    return Finding("CUDA compiler", True, text, details)


def _headers(root: str | None) -> Finding:
    found = find_headers(root)
    details = {"path": str(found.folder), "version": found.version, "origin": found.origin}
    return Finding("TensorRT headers", True, f"{found.version}, {found.folder} ({found.origin})", details)


def _packages() -> Finding:
    versions = {name: version for name in _PACKAGES if (version := _version(name))}
    engines = {n: v for n, v in versions.items() if n.startswith("tensorrt")}
    text = (
        ", ".join(f"{n} {v}" for n, v in versions.items())
        or "no package of TensorRT or ONNX Runtime is installed"
    )
    if versions and not engines:
        text += "; TensorRT is not installed (`pip install tensorrt-rtx` brings one that builds engines without a GPU)"
    return Finding("Runtimes", bool(versions), text, {"packages": versions})


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _driver() -> Finding:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        text = "no driver (libcuda.so.1): plugins and engines can be built here, and not run"
        return Finding("NVIDIA driver", False, text)
    version = ctypes.c_int()
    code = cuda.cuInit(0)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    shown = f"{version.value // 1000}.{version.value % 1000 // 10}"
    if code != 0:
        return Finding(
            "NVIDIA driver",
            False,
            f"the driver for CUDA {shown} does not start (error {code})",
            {"cuda": shown},
        )
    gpus = []
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    for index in range(count.value):
        device, major, minor, name = (
            ctypes.c_int(),
            ctypes.c_int(),
            ctypes.c_int(),
            ctypes.create_string_buffer(256),
        )
        cuda.cuDeviceGet(ctypes.byref(device), index)
        cuda.cuDeviceGetName(name, len(name), device)
        cuda.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
        cuda.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
        gpus.append({"name": name.value.decode(errors="replace"), "arch": 10 * major.value + minor.value})
    listed = ", ".join(f"{g['name']} (sm_{g['arch']})" for g in gpus) or "no GPU"
    return Finding("NVIDIA driver", bool(gpus), f"for CUDA {shown}; {listed}", {"cuda": shown, "gpus": gpus})
