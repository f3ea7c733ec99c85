"""The operators that come with deployops, one file each and nothing else."""

from __future__ import annotations

import importlib
import pkgutil


def load() -> None:
    """Declare them all."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
