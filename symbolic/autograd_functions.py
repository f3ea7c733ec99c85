"""`torch.autograd.Function`s during an export.

torch's exporter traces through `forward` and never calls `symbolic`: the node a team relies on is gone without
a word. While `recording` is active, each Function class that has a `symbolic` of its own emits the nodes that
it describes, one that was adopted calls its declared operator, and every other is written down as decomposed.

`forward` is patched, not `apply`: models keep `Fn.apply` in variables, which patching `apply` would miss.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import ExportError
from . import dtypes
from .legacy_graph import RecordedValue, RecordingGraph, nodes_of

if TYPE_CHECKING:
    from .operator import Operator

__all__ = ["Recording", "adopt_class", "is_adopted", "recording", "subclasses"]

# Function class -> the operator it was adopted as
_adopted: dict[type, Operator] = {}


def adopt_class(cls: type, op: Operator) -> None:
    """From now on an export turns calls of this class into the operator's node."""
    _adopted[cls] = op


@dataclass(slots=True)
class Recording:
    """What happened: ONNX types kept by `symbolic`, and classes that were traced through."""

    kept: dict[str, str] = field(default_factory=dict)  # class name -> ONNX nodes
    decomposed: list[str] = field(default_factory=list)


@contextlib.contextmanager
def recording() -> Iterator[Recording]:
    """Patch every known Function class for the time of a trace."""
    import torch

    log = Recording()
    # torch's own Functions, and those it generates for custom operators, are not the user's. One that inherits
    # its forward is patched too: it may have a `symbolic` of its own.
    originals = {
        cls: inspect.getattr_static(cls, "forward")
        for cls in dict.fromkeys(subclasses(torch.autograd.Function))
        if cls.__module__.split(".")[0] not in ("torch", "deployops")
        and not cls.__name__.startswith("Generated")
    }
    own = {cls for cls in originals if "forward" in cls.__dict__}
    try:
        for cls, original in originals.items():
            cls.forward = staticmethod(_patched(cls, original, log))
        yield log
    finally:
        for cls, original in originals.items():
            if cls in own:
                cls.forward = original
            elif "forward" in cls.__dict__:
                del cls.forward


def is_adopted(cls: type) -> bool:
    """Whether an export turns calls of this class into an operator's node."""
    return cls in _adopted


def subclasses(cls: Any) -> Iterator[Any]:
    """Every class below `cls`."""
    for sub in cls.__subclasses__():
        yield sub
        yield from subclasses(sub)


def _patched(cls: Any, original: Any, log: Recording) -> Any:
    import torch

    function = original.__func__ if isinstance(original, (staticmethod, classmethod)) else original
    # The newer style has setup_context, and then forward takes no ctx.
    takes_ctx = cls.setup_context is torch.autograd.Function.setup_context
    name = cls.__qualname__
    call = _adopted[cls].overload if cls in _adopted else function
    skips_ctx = takes_ctx and cls in _adopted

    def forward(*args: Any, **kwargs: Any) -> Any:
        if (
            torch.compiler.is_dynamo_compiling()
        ):  # in a branch of torch.cond: dynamo cannot follow what is below
            return call(*(args[1:] if skips_ctx else args), **kwargs)
        given = args[1:] if takes_ctx else args
        if cls in _adopted:
            op = _adopted[cls]
            log.kept[name] = op.onnx_name
            return op(*given, **kwargs)
        if "symbolic" not in {n for c in cls.__mro__ if c is not torch.autograd.Function for n in c.__dict__}:
            if name not in log.decomposed:
                log.decomposed.append(name)
            return function(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
        except Exception as e:  # numpy, a C extension: then `symbolic` itself may say what comes out
            emitted = _emit(cls, given, None, e)
            log.kept[name] = emitted.description
            return tuple(emitted.tensors) if len(emitted.tensors) > 1 else emitted.tensors[0]
        if takes_ctx and getattr(args[0], "dirty_tensors", None):
            raise ExportError(
                f"{name} writes into its argument (mark_dirty), which a node of its `symbolic` cannot: declare an operator "
                f"with @deployops.operator(mutates=...) and call that"
            )
        outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        emitted = _emit(cls, given, outputs)
        log.kept[name] = emitted.description
        return tuple(emitted.tensors) if isinstance(result, (tuple, list)) else emitted.tensors[0]

    return forward


@dataclass(slots=True)
class _Emitted:
    tensors: list[Any]
    description: str


def _emit(
    cls: Any, given: tuple[Any, ...], outputs: tuple[Any, ...] | None, fault: Exception | None = None
) -> _Emitted:
    """Call `symbolic` on a recording graph, then write the recorded nodes as torch's ONNX placeholders.

    `outputs` are what `forward` returned; None where it raised `fault`.
    """
    import torch

    graph = RecordingGraph(cls.__qualname__)
    arguments = [RecordedValue(graph, tensor=a) if isinstance(a, torch.Tensor) else a for a in given]
    try:
        result = cls.symbolic(graph, *arguments)
    except ExportError:
        raise
    except Exception as e:
        raise ExportError(
            f"{cls.__qualname__}.symbolic fails: {type(e).__name__}: {e}. It was called with a recording graph, which "
            "knows g.op, constants, sizes and dtypes; for more, declare the operator: "
            f"deployops.adopt({cls.__qualname__}, onnx='domain::Type')"
        ) from e
    values = result if isinstance(result, (tuple, list)) else (result,)
    if outputs is None:
        outputs = tuple(getattr(v, "like", None) for v in values)
        if any(o is None for o in outputs):
            raise ExportError(
                f"{cls.__qualname__}.forward cannot be traced ({type(fault).__name__}: {fault}), and its `symbolic` does not "
                "say what shape and dtype come out. End it in `.setType(x.type())` where they are those of x, or "
                f"declare it: deployops.adopt({cls.__qualname__}, onnx='domain::Type')"
            ) from fault
    if len(values) != len(outputs):
        raise ExportError(
            f"{cls.__qualname__}.symbolic returns {len(values)} values, forward returns {len(outputs)}"
        )
    for value, output in zip(values, outputs, strict=True):
        if not isinstance(value, RecordedValue):
            raise ExportError(f"{cls.__qualname__}.symbolic returns {value!r}; expected what g.op returned")
        value.expect(output)
    nodes = nodes_of(values)
    for node in nodes:
        tensors = [None if v is None else v.tensor for v in node.inputs]
        likes = [v.like if v.like is not None else outputs[0] for v in node.outputs]
        made = torch.onnx.ops.symbolic_multi_out(
            f"{node.domain}::{node.op_type}" if node.domain else node.op_type,
            tensors,
            node.attributes,
            dtypes=[dtypes.onnx_number(t.dtype) for t in likes],
            shapes=[t.shape for t in likes],
            version=node.version,
            # an inner value's dtype and shape are not known: whoever reads the mark infers them
            metadata_props={
                "deployops.symbolic": ",".join(
                    "known" if v.like is not None else "unknown" for v in node.outputs
                )
            },
        )
        for v, t in zip(node.outputs, made, strict=True):
            v.tensor = t
    description = (
        " + ".join(f"{n.domain}::{n.op_type}" if n.domain else n.op_type for n in nodes) or "its input"
    )
    return _Emitted([v.tensor for v in values], description)
