"""torch's own log lines, held back while we ask a fake kernel questions that it may refuse."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator

__all__ = ["quiet"]

# Each writes the whole traceback of an exception that it then passes on to us.
_LOGGERS = (
    "torch._subclasses.fake_tensor",
    "torch.fx.experimental.symbolic_shapes",
    "torch.fx.experimental.recording",
    "torch._functorch",
    "torch._dynamo",
)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No log lines and no warnings of torch's for the time of a probe; what it raises is raised."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, state in zip(loggers, before, strict=True):
            logger.disabled = state
