"""The GPU of this machine, asked of its driver: no package of CUDA is needed, and none of TensorRT."""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["gpu"]


def gpu() -> dict[str, Any] | None:
    """The GPU that a build in this process would use; None: no driver, or no GPU."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    numbers = [ctypes.c_int() for _ in range(3)]
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0):
        return None
    cuda.cuDeviceGetName(name, len(name), device)
    for number, attribute in zip(numbers, (75, 76), strict=False):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…
        cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
    cuda.cuDriverGetVersion(ctypes.byref(numbers[2]))
    major, minor, driver = (number.value for number in numbers)
    return {"name": name.value.decode(errors="replace"), "arch": f"sm{major}{minor}", "driver": driver}
