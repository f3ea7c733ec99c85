"""This machine, as far as an engine cares: which TensorRT is installed, the platform, the GPU. Nothing of TensorRT is loaded."""

from __future__ import annotations

import platform
import sys

from ...errors import NotCheckedError
from .flavor import find_tensorrt
from .gpu import gpu
from .portability import Host
from .record import Flavor

__all__ = ["platform_name", "this_host"]


def platform_name() -> str:
    """`linux-x86_64`."""
    return f"{sys.platform}-{platform.machine().lower()}"


def this_host(flavor: Flavor) -> Host:
    """This machine with the TensorRT of `flavor`, where that is installed."""
    try:
        version = find_tensorrt(flavor).version or None
    except NotCheckedError:
        version = None
    found = gpu()
    return Host(
        flavor=flavor,
        tensorrt=version,
        platform=platform_name(),
        arch=None if found is None else found["arch"],
        gpu=None if found is None else found["name"],
    )
