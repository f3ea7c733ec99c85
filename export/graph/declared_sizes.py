"""What decomposing a program assumes of its sizes, held against the sizes that were declared.

Many decompositions of torch look at a size: adaptive pooling is a pooling with one window where `h % (h // 2) == 0`,
and the example's h decides. torch notes each such look in the program's environment of sizes (a guard), as it does when it
traces a model, and its ONNX exporter never reads them. Here they are, in the user's names, each with the line of the model whose
operator was being decomposed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..inputs.dim_guards import DimCondition, evaluated
from .fake_values import fake_mode

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from ..inputs.input_spec import Symbol
    from ..inputs.signature import Signature

__all__ = ["DeclaredSizes", "always", "declared_sizes", "decomposing", "in_use", "met"]

_NAME = re.compile(r"[A-Za-z_]\w*")
_current: ContextVar[DeclaredSizes | None] = ContextVar("declared sizes", default=None)
_node: ContextVar[torch.fx.Node | None] = ContextVar("node that is being decomposed", default=None)


# torch looks at sizes for the layout of a result in memory too. ONNX has none, so a run at such a size settles it.
_LAYOUT_FILE = "_prims_common"
_LAYOUT = frozenset(
    {
        "compute_elementwise_output_logical_to_physical_perm",
        "is_channels_last_contiguous",
        "is_channels_last_contiguous_2d",
        "is_channels_last_contiguous_3d",
        "is_contiguous",
        "is_contiguous_for_memory_format",
        "is_non_overlapping_and_dense",
    }
)


class _Guards(list[Any]):
    """The guards of an environment; of those added it keeps the user's line and whether the layout alone asked."""

    def __init__(self, items: list[Any]) -> None:
        super().__init__(items)
        self.before = len(items)
        self.origins: list[tuple[str | None, bool]] = []

    def append(self, item: Any) -> None:
        super().append(item)
        self.origins.append((_line(), _is_of_layout()))

    def added(self) -> Iterator[tuple[Any, str | None, bool]]:
        """The expressions, each with its line and whether it is of the layout alone."""
        for guard, origin in zip(self[self.before :], self.origins, strict=True):
            yield guard.expr, *origin


@dataclass(slots=True)
class DeclaredSizes:
    """The variable dims of a program: torch's symbols, what the user calls them, and their ranges.

    `symbols` are the ranges by the user's name, `names` the user's by torch's.
    """

    symbols: Mapping[str, Symbol]
    names: Mapping[str, str]
    environment: Any

    def condition(self, expression: Any) -> DimCondition | None:
        """What of `expression` (of torch's symbols) does not hold at the declared sizes; None where it holds at all tried.

        Of sizes that the data decide nothing is declared, and nothing is said.
        """
        if not getattr(expression, "free_symbols", None) or not self.knows(expression):
            return None
        return evaluated(self._in_names(expression), self.symbols)

    def assumed(self) -> dict[DimCondition, str | None]:
        """The conditions that were added since and that some declared size breaks, each with the user's line.

        Of those that a run can settle, one for each set of sizes to run at.
        """
        found: dict[Any, tuple[DimCondition, str | None]] = {}
        for expression, line, of_layout in self._added():
            condition = self.condition(expression)
            if condition is None:
                continue
            if of_layout and condition.breaks_at:
                condition = dataclasses.replace(condition, size_one=True)
            key = tuple(condition.breaks_at.items()) if condition.can_be_tried else condition.text
            found.setdefault(key, (condition, line))
        return dict(found.values())

    def texts(self) -> list[str]:
        """The conditions that no run can settle, met or not, in the user's names."""
        added = [e for e, _, of_layout in self._added() if not of_layout and self.knows(e)]
        return list(dict.fromkeys(self._in_names(e) for e in added))

    def knows(self, expression: Any) -> bool:
        """Whether all of the expression's symbols are declared dims; of sizes that the data decide nothing is declared."""
        return {str(symbol) for symbol in expression.free_symbols} <= self.names.keys()

    def _added(self) -> list[tuple[Any, str | None, bool]]:
        guards = getattr(self.environment, "guards", None)
        return list(guards.added()) if isinstance(guards, _Guards) else []

    def _in_names(self, expression: Any) -> str:
        from torch.utils._sympy.printers import PythonPrinter

        return _NAME.sub(lambda m: self.names.get(m[0], m[0]), str(PythonPrinter().doprint(expression)))


def declared_sizes(
    program: ExportedProgram, signature: Signature, names: Mapping[str, str]
) -> DeclaredSizes | None:
    """The variable dims of `program`, whose environment is watched from here on; None where no dim is variable.

    `names`: placeholder in the graph -> input.
    """
    mode = fake_mode(program.graph)
    environment = mode.shape_env if mode is not None else None
    ours: dict[str, str] = {}
    for node in program.graph.find_nodes(op="placeholder"):
        for axis, size in enumerate(getattr(node.meta.get("val"), "shape", ())):
            symbol = signature.symbol_of(names.get(node.name, ""), axis)
            if symbol is not None and str(size).isidentifier():
                ours.setdefault(str(size), symbol)
    if environment is None or not ours:
        return None
    environment.guards = _Guards(list(environment.guards))
    return DeclaredSizes(signature.symbols, ours, environment)


@contextlib.contextmanager
def in_use(declared: DeclaredSizes | None) -> Iterator[None]:
    """Inside the block, decompositions may ask `always`."""
    token = _current.set(declared)
    try:
        yield
    finally:
        _current.reset(token)


@contextlib.contextmanager
def decomposing(node: torch.fx.Node) -> Iterator[None]:
    """Inside the block, what is assumed is assumed for `node`."""
    token = _node.set(node)
    try:
        yield
    finally:
        _node.reset(token)


def always(condition: Any) -> bool:
    """Whether a condition on sizes holds at every size declared; asking assumes nothing.

    `condition` is a truth value, Python's or torch's symbolic one.
    """
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if isinstance(condition, bool) or statically_known_true(condition):
        return bool(condition)
    declared, expression = _current.get(), condition.node.expr
    if not expression.free_symbols:
        return bool(expression)
    return declared is not None and declared.knows(expression) and declared.condition(expression) is None


def met(environment: Any, since: int) -> bool:
    """Whether all guards from the `since`-th on hold at every size declared, or are for the layout in memory alone."""
    if environment is None or len(environment.guards) == since:
        return True
    declared, guards = _current.get(), environment.guards
    if declared is None or not isinstance(guards, _Guards):
        return False
    new = list(guards.added())[since - guards.before :]
    return all(of_layout or (declared.knows(e) and declared.condition(e) is None) for e, _, of_layout in new)


def _line() -> str | None:
    from torch.fx.traceback import get_current_meta

    from .translation import line_of_trace

    node = _node.get()
    meta = node.meta if node is not None else get_current_meta()
    line = line_of_trace(meta.get("stack_trace") or "")
    operator = node.target if node is not None else meta.get("original_aten")
    return f"{line} ({operator} in simpler operators)" if line and operator is not None else line


def _is_of_layout() -> bool:
    frame = sys._getframe(2)
    for _ in range(24):  # of torch's machinery of sizes, between the question and its guard
        if frame.f_code.co_name in _LAYOUT and _LAYOUT_FILE in frame.f_code.co_filename:
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False
