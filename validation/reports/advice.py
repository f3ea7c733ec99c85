"""What to do about a cell that did not pass, from what the report knows of it."""

from __future__ import annotations

import math

from ..record import FAILED, PASSED, Cell, Report
from .quantities import number

__all__ = ["Advisor"]

# Backends where kernels of the user's run, which may decide the size of an output.
_OWN_KERNELS = ("onnxruntime+library", "onnxruntime-cuda", "tensorrt", "tensorrt-rtx", "emulated")


class Advisor:
    """Built once for a report: `of(cell)` looks at the cells beside it."""

    def __init__(self, report: Report) -> None:
        self._bisected = {b.backend: b for b in report.bisections}
        self._passed: dict[tuple[str, str, str, str], list[str]] = {}
        for c in report.cells:
            if c.verdict == PASSED:
                self._passed.setdefault((c.subject, c.sample, c.output, c.judged_as), []).append(c.backend)

    def of(self, cell: Cell) -> str:
        """One sentence, or empty where the reason says it all."""
        if cell.verdict != FAILED:
            return ""
        parts = [self._elsewhere(cell), self._next(cell)]
        return " ".join(p for p in parts if p)

    def _elsewhere(self, cell: Cell) -> str:
        """Where the same output of the same sample passed: it tells the file from the runtime."""
        others = [
            b
            for b in self._passed.get((cell.subject, cell.sample, cell.output, cell.judged_as), [])
            if b != cell.backend
        ]
        if not others:
            return ""
        if cell.backend.endswith("optimiser off"):
            return f"It passes with the optimiser on: the fault is in the file, and an optimisation of {others[0]} hides it."
        if any(b.startswith(cell.backend) and b.endswith("optimiser off") for b in others):
            return f"It passes with the optimiser off: an optimisation of {cell.backend} causes it, not the file."
        return f"It passes on {', '.join(others[:3])}: look at what {cell.backend} does differently."

    def _next(self, cell: Cell) -> str:
        looked = self._bisected.get(cell.backend)
        if looked is not None and (looked.output, looked.sample) == (cell.output, cell.sample):
            return "See where it begins to diverge, below."
        m = cell.metrics
        if m is None:
            if cell.output == "*":
                return ""  # it did not run: the reason is the runtime's message
            if cell.subject:
                return "The kernel or the body of the operator makes outputs of another size than its reference: correct it."
            if cell.backend in _OWN_KERNELS:
                return (
                    "A kernel of yours may decide this size, or the file is of another model or another precision: check the "
                    "kernels of the operators (`deployops emulate`), or export the model again."
                )
            return "The file is of another model or another precision: export it again from this one."
        if cell.judged_as == "gradient":
            return "Compare the declared backward with the derivative of the reference."
        if cell.subject:
            return "Compare the kernel and the body of the operator with its reference on this sample."
        if cell.judged_as == "golden":
            return "Both sides may share the mistake: look at how the inputs were prepared, and where the golden output is from."
        step = "`--bisect` finds the first node that differs."
        if looked is not None:
            step = f"`--bisect` looked into {looked.output} at {looked.sample} on this backend: see there."
        if m.nan:
            return (
                f"One side has NaN where the other has none: 0/0, Inf − Inf, a root or logarithm below 0, a softmax over "
                f"nothing but −Inf. {step}"
            )
        if m.inf:
            return f"One side is infinite where the other is not: an overflow, or a division by 0. {step}"
        if (
            cell.budget is not None
            and cell.budget.source.startswith("user tolerance")
            and math.isfinite(m.excess)
        ):
            return f"{step} As it stands it needs --atol {number(m.excess, 2)}."
        return step
