"""What is to be exported, whatever form it came in, made ready: eval mode, on the CPU, modes restored after."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import ExportError, UsageError
from .inputs.signature import Signature, signature_from_specs, signature_from_values
from .result import Note

if TYPE_CHECKING:
    import torch

    from .inputs.input_spec import Symbol

__all__ = ["Source", "open_source", "read_signature", "ready"]


@dataclass(slots=True)
class Source:
    """A module (TorchScript too) or a traced program, with the example inputs that came with it."""

    kind: str
    module: torch.nn.Module | None
    program: torch.export.ExportedProgram | None
    example_args: tuple[Any, ...] = ()
    example_kwargs: dict[str, Any] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    @property
    def is_torchscript(self) -> bool:
        import torch

        return isinstance(self.module, torch.jit.ScriptModule)

    def arrange(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call as the trace takes it: for TorchScript all arguments by position, defaults included."""
        if not self.is_torchscript:
            return args, dict(kwargs)
        script: Any = self.module
        rest = script.forward.schema.arguments[1 + len(args) :]
        missing = [a.name for a in rest if a.name not in kwargs and not a.has_default_value()]
        if missing:
            raise UsageError(
                f"the model's forward also takes {', '.join(missing)}: describe each with --input"
            )
        return (*args, *(kwargs.get(a.name, a.default_value) for a in rest)), {}

    def callable(self) -> Any:
        """The original as something to call."""
        if self.module is not None:
            return self.module
        assert self.program is not None
        return self.program.module()


def open_source(model: Any, *, trust: bool, factory: str | None) -> Source:
    """A module, an ExportedProgram, or the path of any kind of model file."""
    import torch

    if isinstance(model, torch.jit.ScriptModule):
        return Source("a TorchScript module", model, None)
    if isinstance(model, torch.nn.Module):
        return Source("a torch.nn.Module", _on_cpu(model), None)
    if isinstance(model, torch.export.ExportedProgram):
        args, kwargs = model.example_inputs or ((), {})
        return Source("a torch.export program", None, model, tuple(args), dict(kwargs))
    if not isinstance(model, (str, os.PathLike)):
        raise UsageError(
            f"expected a torch.nn.Module, an ExportedProgram or the path of a model file; got {type(model).__name__}"
        )
    from .model_files.load import load_model

    loaded = load_model(model, trust=trust, model=factory)
    return Source(
        loaded.file.description,
        loaded.module,
        loaded.program,
        loaded.example_args,
        loaded.example_kwargs,
        [Note("info", n) for n in loaded.notes],
    )


def _behaves_otherwise(module: torch.nn.Module) -> bool:
    """Whether training mode changes what a module computes, as far as its class tells."""
    import torch

    known = (torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._NormBase, torch.nn.RReLU)
    return isinstance(module, known) or not type(module).__module__.startswith("torch.nn")


def _on_cpu(module: torch.nn.Module) -> torch.nn.Module:
    """The module itself where it is on the CPU, else a copy there: the user's stays where it is."""
    import copy

    tensors = [*module.parameters(), *module.buffers()]
    if all(t.device.type == "cpu" for t in tensors):
        return module
    if any(t.device.type == "meta" for t in tensors):
        raise UsageError(
            "the module has parameters on the meta device, that is without values: load its weights first"
        )
    return copy.deepcopy(module).cpu()


@contextlib.contextmanager
def ready(source: Source) -> Iterator[None]:
    """Eval mode for the time of the export. Notes what eval mode does not switch off."""
    import torch

    module = source.module
    if module is None:
        yield
        return
    modes = [(m, m.training) for m in module.modules()]
    if any(training and _behaves_otherwise(m) for m, training in modes):
        source.notes.append(Note("info", "the model was in training mode; it is exported in eval mode"))
    module.eval()
    try:
        stubborn = [name or "the model" for name, m in module.named_modules() if m.training]
        if stubborn:
            raise ExportError(
                f"eval() leaves {', '.join(stubborn[:3])} in training mode (a train() of its own?): "
                "dropout and batch statistics would stay active in the exported model"
            )
        for name, m in module.named_modules():
            if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.running_mean is None:
                source.notes.append(
                    Note(
                        "warning",
                        f"`{name}` ({type(m).__name__}) keeps no running statistics: its output depends on what else "
                        "is in the batch, in the exported model too",
                    )
                )
        yield
    finally:
        for m, training in modes:
            m.training = training


def read_signature(
    source: Source,
    inputs: Any,
    dynamic: Mapping[str, Mapping[int, str | Symbol]] | None = None,
    data: Mapping[str, Any] | None = None,
) -> Signature:
    """The model's inputs from texts, tensors, samples, or what the file has stored (see `export_model`)."""
    texts = isinstance(inputs, (list, tuple)) and bool(inputs) and all(_is_spec(i) for i in inputs)
    if not texts and isinstance(inputs, (list, tuple)):
        _refuse_mixed(inputs)
    if texts or (inputs is None and data):
        if dynamic:
            raise UsageError(
                "`dynamic` goes with tensors; in a text the dim's name says it: 'x:float32[batch,3]'"
            )
        return signature_from_specs(inputs or (), data)
    if inputs is None:
        args, kwargs = source.example_args, source.example_kwargs
        if not args and not kwargs:
            raise UsageError(
                "this model brings no example inputs: describe each one, in the order of forward's parameters, as in "
                f"--input 'x:float32[batch,3,224,224]' (in Python: inputs=['x:float32[batch,3,224,224]']){_parameters(source)}"
            )
    elif isinstance(inputs, Mapping):
        args, kwargs = (), dict(inputs)
    else:
        args, kwargs = tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,), {}
    signature = signature_from_values(args, kwargs, source.callable(), dynamic)
    if source.program is not None and dynamic is None:
        variable = _variable_dims(source.program, signature)
        signature = signature_from_values(args, kwargs, source.callable(), variable)
    return signature


def _refuse_mixed(inputs: Any) -> None:
    """A description of an input among values would be passed to the model as a text."""
    from .inputs.input_text import parse_input

    for text in (i for i in inputs if isinstance(i, str)):
        try:
            parse_input(text)
        except UsageError:
            continue  # a text that the model takes
        raise UsageError(f"inputs are all texts, or all values; {text!r} stands among values")


def _variable_dims(
    program: torch.export.ExportedProgram, signature: Signature
) -> dict[str, dict[int, Symbol]]:
    """The dims that a traced program left open, named by the first input that has them, with its ranges."""
    from torch.export.graph_signature import InputKind

    from .inputs.input_spec import Symbol

    specs = [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    ranges = {str(symbol): bounds for symbol, bounds in program.range_constraints.items()}
    named: dict[str, Symbol] = {}
    found: dict[str, dict[int, Symbol]] = {}
    for ours, theirs in zip(signature.specs, specs, strict=True):
        for axis, size in enumerate(getattr(values.get(theirs.arg.name), "shape", ())):
            text = str(size)
            if text.isdigit() or not text.isidentifier():
                continue  # fixed, or computed from another dim
            if text not in named:
                bounds = ranges.get(text)
                low = max(int(bounds.lower), 1) if bounds is not None else 1
                high = int(bounds.upper) if bounds is not None and bounds.upper < 2**31 else None
                named[text] = Symbol(f"{ours.name}_dim_{axis}".replace(".", "_"), low, high)
            found.setdefault(ours.name, {})[axis] = named[text]
    return found


def _is_spec(value: Any) -> bool:
    from .inputs.input_spec import InputSpec

    return isinstance(value, (str, InputSpec))


def _parameters(source: Source) -> str:
    from .inputs.forward_binding import forward_parameters

    signature = forward_parameters(source.callable())
    return f". forward takes {signature}" if signature is not None else ""
