"""The errors a user can meet. Each says what was wrong, what was expected, and what to do."""

from __future__ import annotations

__all__ = [
    "DeclarationError",
    "DeployOpsError",
    "ExportError",
    "ModelFileError",
    "NotCheckedError",
    "UsageError",
]


class DeployOpsError(Exception):
    """Anything deployops refuses. `exit_code` is what the command line ends with.

    Exit codes: 0 passed, 1 failed, 2 wrong use or bad input, 3 something required could not be checked.
    """

    exit_code = 2


class UsageError(DeployOpsError):
    """A wrong argument or option."""


class ModelFileError(DeployOpsError):
    """A file that is not what it should be: damaged, of another kind, or not to be trusted."""


class DeclarationError(DeployOpsError):
    """An operator declaration that is incomplete, contradicts itself, or cannot be expressed in ONNX."""


class ExportError(DeployOpsError):
    """A model that cannot be exported faithfully."""

    exit_code = 1


class NotCheckedError(DeployOpsError):
    """Something required could not be checked on this machine."""

    exit_code = 3
