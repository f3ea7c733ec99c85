"""The command line: parse, call one function, print. No logic, and nothing heavy imported before it is needed.

A file for each command; `options.py` has what they share.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from .. import __version__
from ..errors import DeployOpsError
from .compile import compile_command
from .doctor import doctor_command
from .emulate import emulate
from .engine import engine
from .export import export
from .inspect import inspect
from .ops import ops
from .report import report
from .validate import validate

__all__ = ["cli", "main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="deployops")
def cli() -> None:
    """Take PyTorch models with custom operators to production through ONNX.

    Exit codes: 0 passed, 1 failed, 2 wrong use or bad input, 3 something required could not be checked.
    """


for _command in (export, validate, report, inspect, compile_command, emulate, engine, doctor_command, ops):
    cli.add_command(_command)


def main() -> None:
    """Entry point. Every failure is a message and an exit code, never a traceback of ours."""
    atexit.register(
        gc.freeze
    )  # else what torch has made is gone through once more at the end: most of a second
    try:
        with _ended_in_order():
            code = cli.main(standalone_mode=False)
    except _Terminated:
        raise
    except SystemExit as e:  # a command's own code is what `main` returns
        click.echo(f"error: {_ended_by(e)}", err=True)
        sys.exit(2)
    except DeployOpsError as e:
        click.echo(f"error: {e}", err=True)
        sys.exit(e.exit_code)
    except click.ClickException as e:
        e.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except Exception as e:
        if os.environ.get("DEPLOYOPS_DEBUG"):
            raise
        if (
            isinstance(e, OSError) and e.filename is not None
        ):  # a name too long, a folder that may not be read
            click.echo(f"error: {str(e.filename)[:200]}: {e.strerror}", err=True)
            sys.exit(2)
        click.echo(
            f"error: deployops met something it does not know: {type(e).__name__}: {e}\n"
            "  This is a fault of deployops. DEPLOYOPS_DEBUG=1 shows where; please report it with that text",
            err=True,
        )
        sys.exit(2)
    sys.exit(code)


def _ended_by(e: SystemExit) -> str:
    """What a user's code did that ends the process: as if a command had passed, or failed, before it was done."""
    import sysconfig
    import traceback

    frames = traceback.extract_tb(e.__traceback__)
    libraries = tuple(sysconfig.get_paths().values())
    own = [f for f in frames if not f.filename.startswith(("<", *libraries, os.path.dirname(__file__)))]
    where = f"{own[-1].filename}:{own[-1].lineno}" if own else "code that this command ran"
    return (
        f"{where} ends the process (sys.exit({e.code!r})): the command is not done.\n"
        '  What a file does as a script belongs behind `if __name__ == "__main__":`'
    )


class _Terminated(SystemExit):
    """By SIGTERM."""


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """SIGTERM as an exception, so that child processes are ended and temporary folders removed; exit code 143, as in a shell.

    By default it ends a process where it stands. Only the main thread may set handlers; the one before is put back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        raise _Terminated(128 + number)

    def lost(unraisable: sys.UnraisableHookArgs) -> None:
        # raised where Python drops exceptions: in a finalizer, a weak reference's callback. Once more, outside of it
        if isinstance(unraisable.exc_value, SystemExit):
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        else:
            hook(unraisable)

    before, hook = signal.signal(signal.SIGTERM, end), sys.unraisablehook
    sys.unraisablehook = lost
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, before)
