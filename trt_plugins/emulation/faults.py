"""What can be wrong with an emulated call."""

from __future__ import annotations

from ...errors import DeployOpsError

__all__ = ["EmulationError", "KernelFault", "KernelRefusal"]


class EmulationError(DeployOpsError):
    """An emulated call did not end well."""

    exit_code = 1


class KernelRefusal(EmulationError):
    """The launcher takes no such inputs."""

    exit_code = 2


class KernelFault(EmulationError):
    """What a kernel did wrong: memory, barriers, lanes, a race, a launch, with file and line."""
