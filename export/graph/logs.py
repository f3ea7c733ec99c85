"""Silence loggers of libraries that report what no user of ours can act on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["FAKE_LOGGER", "quiet"]

FAKE_LOGGER = "torch._subclasses.fake_tensor"
"""It logs a traceback, as an error, where a fake kernel raises; the exception says as much."""


@contextmanager
def quiet(*names: str, level: int = logging.ERROR) -> Iterator[None]:
    """Nothing below an error, or below `level`, from these loggers inside the block."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, before in zip(loggers, levels, strict=True):
            logger.setLevel(before)
