"""Packages from PyPI that tests run beside ours: other ONNX Runtimes, TensorRTs, the CUDA compiler.

A test whose package cannot be had is skipped as *not checked*; with DEPLOYOPS_TESTS_REQUIRE_PACKAGES=1 it fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

FOLDER = Path(__file__).resolve().parents[1] / ".build" / "runtimes"
REQUIRED = "DEPLOYOPS_TESTS_REQUIRE_PACKAGES"
TENSORRT_RTX = "tensorrt-rtx==1.7.1.116"


def unavailable(reason: str) -> NoReturn:
    """End the test: what it needs from the network cannot be had."""
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{reason} ({REQUIRED}=1: it has to be)")
    pytest.skip(f"not checked: {reason}")


def installed(name: str, packages: list[str], *options: str) -> Path:
    """The folder `name` with these packages, installed when it is not there; `options` are pip's."""
    folder = FOLDER / name
    if not folder.is_dir():
        staging = folder.with_name(f"{name}.{os.getpid()}")
        command = [sys.executable, "-m", "pip", "install", "-q", *options, "--target", str(staging)]
        done = subprocess.run([*command, *packages], capture_output=True, text=True)
        if done.returncode:
            unavailable(f"{', '.join(packages)} cannot be installed: {done.stderr.strip()[-200:]}")
        if not folder.is_dir():  # another worker may have been faster
            staging.rename(folder)
    return folder


def installed_tensorrt_rtx() -> Path:
    """A folder with TensorRT-RTX."""
    return installed(TENSORRT_RTX.replace("==", "-"), [TENSORRT_RTX])
