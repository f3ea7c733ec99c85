"""The model traced by `torch.export`, with its `autograd.Function`s kept and its failures explained."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import ExportError
from ..symbolic.autograd_functions import Recording, recording
from .buffers import buffers_kept
from .graph.logs import FAKE_LOGGER, quiet
from .source import Source
from .user_code import user_line

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from .inputs.signature import Signature

__all__ = ["capture"]

# They warn when a trace fails; what a user can do about it is in the error.
_CHATTY = ("torch.fx.experimental.symbolic_shapes", "torch.export._trace", "torch._guards", "torch._dynamo")


def capture(
    source: Source, signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[ExportedProgram, Recording]:
    """Trace the source's module at these inputs, the signature's dims variable.

    Raises ExportError: a dim that the model fixes (with the line that fixed it), or what torch cannot trace.
    """
    import torch

    assert source.module is not None
    module: Any = source.module
    original = module
    shapes: Any = signature.dynamic_shapes(source.module) or None
    if source.is_torchscript:
        module = _from_torchscript(module, args)
        if shapes is not None:  # the converted module has names of its own: by position
            names = [a.name for a in original.forward.schema.arguments[1:]]
            shapes = tuple(shapes.get(n) for n in names[: len(args)])
    fixed: list[tuple[int, str | None]] = []
    with (
        recording() as log,
        _specialisations(fixed),
        buffers_kept(original),
        quiet(*_CHATTY, level=logging.CRITICAL),
        quiet(FAKE_LOGGER, level=logging.CRITICAL),
        _stderr_held_back(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            program = _trace(module, args, kwargs, shapes)
        except ExportError:
            raise
        except Exception as e:
            text = _explain(e, signature, fixed, log)
            if log.kept or log.decomposed or source.is_torchscript or not _specialised(e):
                raise ExportError(text) from e
            try:  # reading the bytecode, torch understands int(x.shape[0]); it does not know autograd.Functions
                program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=True)
            except Exception:
                raise ExportError(text) from e
    return program, log


def _trace(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any) -> ExportedProgram:
    """torch's trace; once more where it met a `torch.cond` in dynamo's cache that an earlier run had compiled.

    Runs that are watched, as validation's are, leave it there (`branches.compiled_apart`).
    """
    import torch

    try:
        return torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
    except torch._dynamo.exc.Unsupported as e:
        if "_higher_order_ops" not in str(e):
            raise
    torch._dynamo.reset()
    return torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)


def _from_torchscript(module: Any, args: tuple[Any, ...]) -> Any:
    """A TorchScript module as an FX module that `torch.export` can trace."""
    import torch
    from torch._export.converter import TS2EPConverter

    graph = module.inlined_graph  # its nodes live as long as this name does
    python = graph.findAllNodes("prim::PythonOp")
    if python:
        names = ", ".join(dict.fromkeys(n.pyname() for n in python))
        raise ExportError(
            f"this traced module calls Python code from TorchScript ({names}), which only the process that traced it can "
            "run. Export the original module instead"
        )
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            return TS2EPConverter(module, args, {}).convert().module(check_guards=False)
    except Exception as e:
        raise ExportError(
            f"this TorchScript model cannot be converted: {_reason(e)}. Export the original Python model instead, if "
            "you have it"
        ) from e


@contextlib.contextmanager
def _stderr_held_back() -> Iterator[None]:
    """torch prints the graph of a trace that failed on a value; the rest, perhaps the model's own, comes out after."""
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            yield
        finally:
            text = said.getvalue()
    if text:
        sys.stderr.write(text)


def _where() -> str | None:
    """The user's line, and the custom operator whose fake kernel is running, if one is."""
    import torch

    line = user_line()
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        operator = frame.f_locals.get("func")
        if isinstance(operator, torch._ops.OpOverload) and operator.namespace not in ("aten", "prims"):
            kernel = (
                f"by the fake kernel of {operator.name()}, which takes sizes for numbers (in C++: sym_sizes() and "
                "new_empty_symint(), not sizes())"
            )
            return f"{line}, {kernel}" if line else kernel
    return line


@contextlib.contextmanager
def _specialisations(found: list[tuple[int, str | None]]) -> Iterator[None]:
    """Write down where a symbolic size becomes a number: the size, and the user's line that did it."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    original = getattr(ShapeEnv, "_set_replacement", None)
    if original is None:  # a torch without it: the error then names the dim but not the line
        yield
        return

    def watch(self: Any, symbol: Any, target: Any, *rest: Any, **keywords: Any) -> Any:
        if getattr(target, "is_Integer", False):
            found.append((int(target), _where()))
        return original(self, symbol, target, *rest, **keywords)

    ShapeEnv._set_replacement = watch  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        ShapeEnv._set_replacement = original  # type: ignore[method-assign]


def _explain(
    error: Exception, signature: Signature, fixed: list[tuple[int, str | None]], log: Recording
) -> str:
    text = str(error)
    if _specialised(error):
        lines = []
        for path, axis, size in re.findall(
            r"L((?:\[(?:'[^']*'|\d+)\])+)\.size\(\)\[(\d+)\].*?\((\d+)\)", text
        ):
            name = ".".join(a or b for a, b in re.findall(r"\['([^']*)'\]|\[(\d+)\]", path))
            where = next((line for value, line in fixed if value == int(size) and line), None)
            lines.append(_fixed_text(signature, name, int(axis), size, where))
        if not lines:
            for symbol in signature.symbols:
                size = str(signature.example_sizes()[symbol])
                where = next((line for value, line in fixed if str(value) == size and line), None)
                if where:
                    lines.append(_fixed_text(signature, symbol, None, size, where))
        if lines:
            return (
                "the model works at one size only, where a variable one was asked for:\n"
                + "\n".join(dict.fromkeys(lines))
                + "\n  What fixes a dim: its size as a number in the model (reshape, a constant of that shape), int(...) of it, "
                "a Python loop over it, an `if` on it. Compute with x.shape[i] itself and whole tensors, or give the "
                "number in --input"
            )
    where = user_line(error)
    at = f"\n  at {where}" if where else ""
    if "data-dependent" in text or "Unbacked" in text or "unbacked" in text:
        return (
            "the model needs the value of a tensor to know what to do next (`if t > 0`, int(t), t.item(), x[:n], a loop "
            f"over it), and a trace has no values{at}\n  Compute with tensors: torch.where for a choice of values, "
            f"torch.cond for a choice of branches, a mask for a slice\n  torch says: {_reason(error)}"
        )
    if log.decomposed:
        names = ", ".join(log.decomposed)
        at += (
            f"\n  {names}: an autograd.Function without `symbolic` is traced through. If its forward leaves torch (numpy, "
            f"a C extension), declare it: deployops.adopt({log.decomposed[-1]}, onnx='domain::Type')"
        )
    return f"torch.export cannot trace the model: {_reason(error)}{at}"


def _specialised(error: Exception) -> bool:
    return "onstraint" in str(error) or "pecialized" in str(error)


def _fixed_text(signature: Signature, name: str, axis: int | None, size: str, where: str | None) -> str:
    symbol = name if axis is None else signature.symbol_of(name, axis) or f"dim {axis} of `{name}`"
    place = f", fixed at {where}" if where else ""
    return f"  - `{symbol}` can only be {size}{place}"


def _reason(error: BaseException) -> str:
    """The first lines of the deepest error, without torch's advice to its developers."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])[:600]}"
