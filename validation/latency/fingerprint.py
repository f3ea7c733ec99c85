"""What must be equal for two measurements to be comparable: processor, cores, threads, versions. No host's name."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from ..backends.cores import quota, usable_cores

__all__ = ["fingerprint", "load_note"]

_CPUINFO = Path("/proc/cpuinfo")
_CPU0 = Path("/sys/devices/system/cpu/cpu0/cpufreq")
_TURBO = Path("/sys/devices/system/cpu/intel_pstate/no_turbo")
_BOOST = Path("/sys/devices/system/cpu/cpufreq/boost")


def fingerprint(threads: int, versions: Mapping[str, str] | None = None) -> dict[str, str]:
    """The machine and what measures on it, in words; what cannot be read is left out.

    Args:
        threads: of each candidate.
        versions: of the backends, such as {"onnxruntime": "1.32.0"}; torch's and numpy's are added.
    """
    import numpy
    import torch

    limit = quota()
    found = {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": processor_name(),
        "cores": str(usable_cores()),
        "quota": "" if limit is None else f"{limit:g} cores",
        "governor": _read(_CPU0 / "scaling_governor"),
        "highest frequency": _read(_CPU0 / "cpuinfo_max_freq"),
        "turbo": _turbo(),
        "threads": str(threads),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        **_gpus(),
        **(versions or {}),
    }
    return {name: value for name, value in found.items() if value}


def processor_name(cpuinfo: Path = _CPUINFO) -> str:
    """The processor's name; family and model are added, because virtual machines call many processors the same."""
    fields: dict[str, str] = {}
    for line in _read(cpuinfo).splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    name = fields.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{k} {fields[k]}" for k in ("cpu family", "model", "stepping") if fields.get(k)]
    return f"{name} ({', '.join(numbers)})" if numbers else name


def load_note(cores: int | None = None) -> str:
    """A warning where other work keeps the cores busy; empty where it does not, or this system does not tell."""
    if not hasattr(os, "getloadavg"):
        return ""
    busy, most = os.getloadavg()[0], cores or usable_cores()
    if busy <= 0.5 * most:
        return ""
    return f"before the measurement, {busy:.1f} processes were running or waiting on {most} cores: other work disturbs it"


def _turbo() -> str:
    if no_turbo := _read(_TURBO):
        return "off" if no_turbo == "1" else "on"
    return {"0": "off", "1": "on"}.get(_read(_BOOST), "")


def _gpus() -> dict[str, str]:
    """Names of the GPUs, asked only of a torch that already uses them: starting a driver costs seconds."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return {}
    names = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    return {"gpu": ", ".join(names), "cuda": str(torch.version.cuda)}


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
