"""The child: read what is to be compared, compare it, and write the journal."""

from __future__ import annotations

import faulthandler
import pickle
import sys
import traceback
from importlib import import_module

from ...errors import DeployOpsError
from ..backends.prologue import begin
from .journal import StreamJournal

__all__ = ["serve"]


def serve() -> None:
    """Call the target with the journal and the request; what it returns is the report."""
    requests, answers = begin()
    faulthandler.enable(sys.stderr)  # where in the user's code a signal came
    journal = StreamJournal(answers)
    # the name alone first: what follows may need the model's own modules to be unpickled
    target = requests.readline().decode().strip()
    try:
        module, _, function = target.partition(":")
        call = getattr(import_module(module), function)
        # from our own parent, and from nobody else
        request = pickle.load(requests)  # noqa: S301
        requests.close()
        journal.done(call(journal, request))
    except DeployOpsError as error:
        journal.refused(type(error).__name__, str(error))
    except Exception as error:
        traceback.print_exc()
        journal.broken(type(error).__name__)
