"""A process of our own that answers questions, one after another, pickled both ways.

It is started when it is needed, and again after it has ended: what it runs may end it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

__all__ = ["ChildEnded", "ChildProcess"]

_PACKAGE = Path(__file__).resolve().parents[2]
# The package as it is imported here: as an installed one, or from its folder under whatever name.
_START = (
    "import runpy, sys; sys.path.append(sys.argv.pop(1)); "
    "runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
)


class ChildEnded(Exception):
    """The process ended without an answer.

    Attributes:
        code: its exit status; negative: the signal that ended it.
        said: what it wrote on its standard error.
    """

    def __init__(self, code: int, said: str) -> None:
        super().__init__(code, said)
        self.code = code
        self.said = said


class ChildProcess:
    """`module`, run as a program that reads questions on its standard input and writes one answer for each.

    Args:
        module: its full name.
        arguments: of the program.
        time_limit: seconds for one answer.
        environment: called at each start, for variables besides those of this process.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        time_limit: float,
        environment: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.time_limit = time_limit
        self._command = [sys.executable, "-c", _START.format(module=module), str(_import_root()), *arguments]
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The number of the process; None where it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> bool:
        """False where it runs already."""
        if self._process is not None:
            return False
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **self._environment()},
        )
        return True

    def ask(self, question: object) -> Any:
        """The answer. Raises ChildEnded, or TimeoutError and ends the process; the next question starts another one."""
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            pickle.dump(question, self._process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        return self.answer()

    def answer(self) -> Any:
        """What the running process says next. Raises as `ask`."""
        assert self._process is not None
        assert self._process.stdout is not None
        # One answer for each question: nothing is left in the buffer of the pipe.
        if not select.select([self._process.stdout], [], [], self.time_limit)[0]:
            self.close()
            raise TimeoutError
        try:
            return pickle.load(self._process.stdout)  # from our own process  # noqa: S301
        except (EOFError, pickle.UnpicklingError):
            raise self._ended() from None

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.kill()
        process.wait()
        if self._said is not None:
            self._said.close()

    def _ended(self) -> ChildEnded:
        process, said = self._process, self._said
        assert process is not None
        assert said is not None
        code = process.wait()
        said.seek(0)
        text = said.read().decode(errors="replace")
        self.close()
        return ChildEnded(code, text)


def _import_root() -> Path:
    """The folder that has to be on the path for this package to be found under the name it has."""
    module = sys.modules[(__package__ or "").split(".")[0]]
    found = getattr(module, "__file__", None)
    return Path(found).parent.parent if found else _PACKAGE.parent
