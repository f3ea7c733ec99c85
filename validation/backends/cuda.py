"""Is there an NVIDIA GPU that can be used? Asked of the driver itself, with no CUDA package and no torch."""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache

__all__ = ["driver_missing"]

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


@lru_cache(maxsize=1)
def driver_missing() -> str:
    """Why no GPU can be used; empty where one can."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
    except OSError:
        return f"no NVIDIA driver ({name} is not there)"
    status = driver.cuInit(0)
    count = ctypes.c_int(0)
    if status == 0:
        status = driver.cuDeviceGetCount(ctypes.byref(count))
    if status == _NO_DEVICE or (status == 0 and count.value == 0):
        return "no NVIDIA GPU: the driver is there and finds none"
    if status:
        return f"the NVIDIA driver does not start (CUDA error {status})"
    return ""
