"""A `torch.export` program becomes an ONNX model. The one file that touches torch's ONNX exporter.

The exporter is called through its public function. What makes it slow on a deep model is left out:
its pattern rewriter (`optimize=False`; see `passes`), and, where it would change nothing, the retrace
of the whole program for decompositions (see `decomposition.without_retrace`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ...errors import ExportError
from ..user_code import is_library
from .garbage import collector_paused
from .logs import quiet
from .own_decompositions import own_decompositions

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch
    from torch._ops import OpOverload

    from .declared_sizes import DeclaredSizes

__all__ = ["DEFAULT_OPSET", "OPSETS", "line_of_trace", "translate", "unmapped", "user_frame"]

_log = logging.getLogger(__name__)

OPSETS = range(18, 26)
"""Standard opsets that torch's translations (written for 18) convert to exactly."""

DEFAULT_OPSET = 20
"""torch's own default; the same whatever torch is installed, so that files are reproducible."""

# Loggers that report what no user of ours can act on: torchvision is not installed, a version is converted.
_CHATTY = ("torch.onnx._internal.exporter._registration", "onnxscript.version_converter")

_FRAME = re.compile(
    r'File "(?P<file>.+?)", line (?P<line>\d+), in (?P<scope>[^\n]+)(?:\n[ \t]+(?P<code>[^\n]+))?'
)


def translate(
    program: torch.export.ExportedProgram,
    *,
    opset: int | None,
    dynamic_shapes: Any = None,
    declared: DeclaredSizes | None = None,
) -> ir.Model:
    """Translate `program`, which stays as it was, into an ONNX model of standard opset `opset`.

    Args:
        program: what `torch.export.export` returned. Operators without a translation in torch must have
            been lowered to `torch.onnx.ops.symbolic` nodes before; `unmapped` lists those that were not.
        opset: a version in `OPSETS`, or None for `DEFAULT_OPSET`.
        declared: the sizes that the model is for, so that decompositions hold for all of them. What they assume all the
            same, it knows afterwards: ask its `assumed`.
        dynamic_shapes: names for dynamic dims, as `torch.onnx.export` takes them: `{"x": {0: "batch"}}`.

    Raises:
        ExportError: the opset is out of range, or an operator could not be translated.
    """
    import torch

    from .declared_sizes import in_use
    from .decomposition import without_retrace

    if opset is None:
        opset = DEFAULT_OPSET
    if opset not in OPSETS:
        raise ExportError(
            f"opset {opset} cannot be exported: torch {torch.__version__} translates to opsets "
            f"{OPSETS[0]} to {OPSETS[-1]}. Choose one of these, or leave the opset out."
        )
    with in_use(declared):
        try:
            prepared = without_retrace(program, opset) or program
        except Exception as error:  # a shortcut must not cost an export: torch's route may still do
            _log.debug("decomposing node by node failed", exc_info=error)
            prepared = program
    try:
        with quiet(*_CHATTY), collector_paused(), own_decompositions(prepared), in_use(declared):
            exported = torch.onnx.export(
                prepared,
                dynamo=True,
                optimize=False,
                verbose=False,
                opset_version=opset,
                dynamic_shapes=dynamic_shapes,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        raise ExportError(_explain(error, program, opset)) from error
    assert exported is not None  # torch's annotation covers the old exporter, which returns nothing
    model: ir.Model = exported.model
    _require_opset(model, opset)
    return model


def unmapped(
    program: torch.export.ExportedProgram, known: Callable[[OpOverload[..., Any]], bool]
) -> list[tuple[OpOverload[..., Any], torch.fx.Node]]:
    """Every operator of `program` that nothing translates, each with the first node that calls it.

    Args:
        known: tells that an operator has a translation of ours.

    An operator of torch counts as translated when torch has an ONNX function or a decomposition for it;
    whether the decomposition ends in translatable operators shows only in `translate`.
    """
    import torch

    from .fake_values import is_complex
    from .onnx_functions import (
        ASSERTIONS,
        has_complex_function,
        has_function,
        is_decomposable,
        op_name,
        overload,
    )

    found: dict[OpOverload[..., Any], torch.fx.Node] = {}
    for module in program.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in module.graph.nodes:
            op = overload(node)
            if op is None or op in found or known(op):
                continue
            functionalised = op.namespace == "aten" and op._schema.is_mutable  # by torch's decomposition
            if op.namespace == "onnx" or op_name(op) in ASSERTIONS or functionalised:
                continue
            real = has_function(op, DEFAULT_OPSET)
            if any(is_complex(argument.meta.get("val")) for argument in node.all_input_nodes):
                # An operator with a function for real values only is not decomposed either.
                translated = has_complex_function(op, DEFAULT_OPSET)
            else:
                translated = real
            if not translated and (real or not is_decomposable(op, DEFAULT_OPSET)):
                found[op] = node
    return list(found.items())


def user_frame(node: torch.fx.Node) -> str | None:
    """The line of the user's model that made `node`: `net.py:12 in forward: y = my_op(x)`."""
    return line_of_trace(node.meta.get("stack_trace") or "")


def line_of_trace(trace: str) -> str | None:
    """The innermost line of a traceback's text that is the user's."""
    frames = [frame for frame in _FRAME.finditer(trace) if not is_library(frame["file"])]
    if not frames:
        return None
    last = frames[-1]
    where = f"{PurePath(last['file']).name}:{last['line']} in {last['scope'].strip()}"
    return f"{where}: {last['code'].strip()}" if last["code"] else where


def _require_opset(model: ir.Model, opset: int) -> None:
    import onnx

    got = model.opset_imports.get("")
    if got is None:  # a model of custom nodes only
        got = model.opset_imports[""] = opset
    if got != opset:
        raise ExportError(
            f"opset {opset} was asked for, but the conversion stopped at opset {got}: an operator of the "
            f"model has no form in opset {opset}. Export with opset {got}."
        )
    least = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", got)])
    model.ir_version = max(model.ir_version, least)


def _line_of(name: str, program: torch.export.ExportedProgram, opset: int) -> str | None:
    """The user's line behind a node, which may be one that a decomposition made."""
    from .onnx_functions import decompositions

    node = next((n for n in program.graph.nodes if n.name == name), None)
    if node is None:
        try:
            decomposed = program.run_decompositions(decompositions(opset))
        except Exception:  # the error that is being explained matters more
            return None
        node = next((n for n in decomposed.graph.nodes if n.name == name), None)
    return None if node is None else user_frame(node)


def _explain(error: BaseException, program: torch.export.ExportedProgram, opset: int) -> str:
    causes = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    reason = str(causes[-1]).strip().split("\n")[0] or type(causes[-1]).__name__
    text = f"the model could not be translated to ONNX: {reason}"
    for cause in causes:
        if named := re.search(r"translating node %(\w+)", str(cause)):
            where = _line_of(named[1], program, opset)
            return f"{text}\n  at {where}" if where else f"{text}\n  at node {named[1]}"
    return text
