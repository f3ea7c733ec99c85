"""Emulated kernels called on torch tensors, in a process of their own.

::

    with emulated_library([swish]) as library:
        y, = library.run(swish, x, beta)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ...errors import NotCheckedError, UsageError
from ...native.compilers import Compiler
from ...native.processes import run as run_program
from .build import Built, Sanitizer, build
from .calls import ALIGNED, NAN, Call, Layout, Manner, Reply
from .child_process import ChildEnded, ChildProcess
from .fault_text import end_of_process, with_places
from .faults import EmulationError, KernelFault, KernelRefusal
from .packing import packed, unpacked

if TYPE_CHECKING:
    import torch

    from ...symbolic.operator import Operator

__all__ = ["EmulatedLibrary", "EmulationError", "KernelFault", "KernelRefusal", "emulated_library"]

TIME_LIMIT = 120.0  # seconds for one call


class EmulatedLibrary:
    """Emulated kernels of some operators. Starts its process with the first call, and another one after a fault.

    Attributes:
        built: the library file, what is in it, and why an operator is not.
    """

    def __init__(
        self, built: Built, operators: Sequence[Operator], *, time_limit: float = TIME_LIMIT
    ) -> None:
        self.built = built
        self._operators = {op.name: op for op in operators}
        self._child = ChildProcess(
            f"{__package__}.worker",
            [str(built.path)],
            time_limit=time_limit,
            environment=partial(_environment, built),
        )
        self._tactics: list[int] = []

    def __enter__(self) -> EmulatedLibrary:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """End the process; a later call starts another one."""
        self._child.close()

    @property
    def pid(self) -> int | None:
        """The number of the process that runs the kernels; None where none does."""
        return self._child.pid

    def tactics(self, op: Operator) -> int:
        """How many ways the kernel has to compute the same."""
        number = self.number(op)
        self._start()
        return self._tactics[number]

    def run(
        self,
        op: Operator | str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        *,
        tactic: int = 0,
        seed: int = 0,
        workers: int = 0,
        layout: Layout = ALIGNED,
        fill: int = NAN,
        like: Sequence[torch.Tensor] | None = None,
    ) -> list[torch.Tensor]:
        """Run an operator's kernel on the emulated device; the outputs as the ONNX node has them.

        The arguments are copied: what the operator writes into one of them is among the outputs only.

        Args:
            op: an operator of the library, or its name.
            tactic: which way, below `tactics(op)`.
            seed: of the schedule of threads and blocks; 0: in their order.
            workers: threads of the operating system; 0: one per core. One under a sanitizer.
            layout: where tensors lie: aligned to 16 bytes and, as far as this allows, up to memory that may not be
                touched, where nothing else is said.
            fill: the byte of which outputs, workspace and shared memory are made before somebody writes them.
            like: tensors with the outputs' shapes and dtypes; None: the fake kernel tells them. Where the data
                decides a size, its declared upper bound does, and the kernel says how much of it counts.

        Raises:
            UsageError: the library lacks the operator.
            KernelRefusal: the launcher does not take these inputs.
            KernelFault: the kernel did something wrong.
        """
        if isinstance(op, str):
            op = self._operator(op)
        number = self.number(op)
        manner = Manner(tactic, seed, workers, layout, fill)
        call, expected = packed(op, number, args, kwargs or {}, manner, like)
        return unpacked(op, self.answer(op, call).outputs, expected)

    def answer(self, op: Operator, call: Call) -> Reply:
        """What comes of a call as `packed` makes it. Raises as `run`."""
        reply = self._answer(call, op)
        if reply.outcome == "refused":
            raise KernelRefusal(f"{op.name}: {reply.text}")
        if reply.outcome == "failed":
            folders = self.built.folders[op.name]
            raise KernelFault(f"{op.name}: {with_places(reply.text, self.built.path, folders)}")
        return reply

    def _operator(self, name: str) -> Operator:
        if name not in self._operators:
            raise UsageError(
                f"{name} is not in the emulated library; it has {', '.join(self._operators) or 'none'}"
            )
        return self._operators[name]

    def number(self, op: Operator) -> int:
        """Of an operator in the library. Raises what its build failed with, or UsageError where it lacks it."""
        if op.name in self.built.failed:
            raise self.built.failed[op.name]
        self._operator(op.name)
        return self.built.operators[op.name]

    # --- the process ---------------------------------------------------------------------------------------------

    def _start(self) -> None:
        try:
            if self._child.start():
                self._tactics = self._child.answer()
        except ChildEnded as e:
            raise NotCheckedError(f"the emulation does not start: {e.said}") from None
        except TimeoutError:
            raise NotCheckedError(
                f"the emulation does not start within {self._child.time_limit:g} s"
            ) from None

    def _answer(self, call: Call, op: Operator) -> Reply:
        self._start()
        try:
            reply = self._child.ask(call)
        except TimeoutError:
            raise KernelFault(
                f"{op.name}: the kernel did not end within {self._child.time_limit:g} s: a loop that does not end, or a "
                "spin lock (threads of a block take turns only where they wait for each other)"
            ) from None
        except ChildEnded as e:
            text = end_of_process(e.said, e.code, self.built.path, self.built.folders[op.name])
            raise KernelFault(f"{op.name}: {text}") from None
        assert isinstance(reply, Reply)
        return reply


def _environment(built: Built) -> dict[str, str]:
    if built.sanitize != "address":
        return {}
    # Python itself is not sanitized: the sanitizer's library has to come first, and libstdc++ before anybody throws.
    libraries = [_library_of_compiler(built.compiler, n) for n in ("libasan.so", "libstdc++.so.6")]
    return {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=0:color=never",
        "UBSAN_OPTIONS": "print_stacktrace=0:color=never",
    }


def _library_of_compiler(compiler: Compiler, name: str) -> str:
    if compiler.kind == "clang" and name == "libasan.so":
        name = f"libclang_rt.asan-{compiler.target.split('-')[0]}.so"
    return run_program([compiler.path, f"-print-file-name={name}"]).out.strip()


def emulated_library(
    operators: Sequence[Operator],
    *,
    sanitize: Sanitizer | None = None,
    cxx: str | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> EmulatedLibrary:
    """Compile the CUDA kernels of operators for the emulation and get ready to run them.

    Operators that cannot be built are in `.built.failed`, with the reason. Arguments and errors as for `build`.
    """
    return EmulatedLibrary(
        build(operators, sanitize=sanitize, cxx=cxx, jobs=jobs, progress=progress), operators
    )
