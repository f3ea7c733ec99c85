"""Load a model file safely: nothing of a pickle runs unless the file is trusted.

Each file is opened once: what `identify_stream` looked at is what torch reads.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ...errors import ModelFileError, UsageError
from ...symbolic.shown_text import shown
from .checkpoint import Weights, fill_module, find_weights, listed
from .load_graph import load_program, load_torchscript, one_line
from .model_callable import build_model
from .model_file import NO_CHECKSUMS, Kind, ModelFile, identify_stream, open_model_file

if TYPE_CHECKING:
    import torch

__all__ = ["LoadedModel", "load_model"]


@dataclass(slots=True)
class LoadedModel:
    """A model in memory, on the CPU, as the file had it (training or eval mode is not changed here).

    `program` is set for torch.export archives, `module` for everything else (a ScriptModule for TorchScript).
    `notes` say what was chosen, converted or could not be checked.
    """

    file: ModelFile
    module: torch.nn.Module | None = None
    program: torch.export.ExportedProgram | None = None
    example_args: tuple[Any, ...] = ()
    example_kwargs: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


_INSTEAD = {
    Kind.ONNX: "use it as it is, or `deployops validate MODEL --onnx` to check it",
    Kind.SAFETENSORS: "load it into the module (safetensors.torch.load_file) and torch.save the state dict",
    Kind.OLD_EXPORTED_PROGRAM: "load it with PyTorch 2.7 and save it again with a newer one",
    Kind.AOTI: "export the original model with torch.export.save instead",
    Kind.TORCH_PACKAGE: "load it with torch.package.PackageImporter and torch.save the state dict",
    Kind.PICKLE: "torch.save(model.state_dict(), FILE) makes one",
    Kind.ZIP: "unpack it first if the model is inside",
}


def load_model(path: str | os.PathLike[str], *, trust: bool = False, model: str | None = None) -> LoadedModel:
    """Load any kind of model file.

    `trust`: run the code in the file's pickles. `model`: "PKG.MOD:CALLABLE" or "path/to/file.py:CALLABLE",
    the class or factory of the module that a checkpoint's weights belong to.

    Raises ModelFileError for a file that is damaged, of another kind, or that would run code; UsageError
    where `model` is missing or of no use.
    """
    with open_model_file(path) as stream:
        file = identify_stream(stream, Path(path))
        _refuse_unusable(file, trust, model)
        stream.seek(0)
        if file.kind is Kind.EXPORTED_PROGRAM:
            program = load_program(stream, file, trust=trust)
            args, kwargs = program.example_inputs or ((), {})
            return LoadedModel(file, None, program, tuple(args), dict(kwargs), _notes(file))
        if file.kind is Kind.TORCHSCRIPT:
            return LoadedModel(file, load_torchscript(stream, file, trust=trust), notes=_notes(file))
        return _load_pickled(stream, file, trust, model)


def _refuse_unusable(file: ModelFile, trust: bool, model: str | None) -> None:
    where = shown(file.path)
    trusted_pickle = file.kind is Kind.PICKLE and file.unsafe_globals and trust
    loadable = (Kind.EXPORTED_PROGRAM, Kind.TORCHSCRIPT, Kind.MODULE, Kind.CHECKPOINT)
    if file.unsafe_globals and not trust and file.kind in (*loadable, Kind.PICKLE):
        raise ModelFileError(
            f"{where} is {file.description}, and loading it would run code from the file. Beyond tensors "
            f"and plain containers it wants: {listed(list(file.unsafe_globals))}. If you trust where it "
            f"comes from, give --trust{_alternative(file)}"
        )
    if file.kind not in loadable and not trusted_pickle:
        hint = f"; {_INSTEAD[file.kind]}" if file.kind in _INSTEAD else ""
        raise ModelFileError(f"{where} is no PyTorch model: it is {file.description}{hint}")
    if model is not None and file.kind in (Kind.EXPORTED_PROGRAM, Kind.TORCHSCRIPT):
        raise UsageError(f"--model is for checkpoints; {where} is {file.description} and holds its own model")


def _alternative(file: ModelFile) -> str:
    if file.kind in (Kind.MODULE, Kind.CHECKPOINT, Kind.PICKLE):
        return "; otherwise ask for the state dict (torch.save(model.state_dict(), FILE)) and use --model"
    return ""


def _load_pickled(stream: BinaryIO, file: ModelFile, trust: bool, model: str | None) -> LoadedModel:
    import torch

    where = shown(file.path)
    trust = trust and bool(file.unsafe_globals)
    try:
        content = torch.load(stream, map_location="cpu", weights_only=not trust)
    except (AttributeError, ImportError) as reason:
        raise ModelFileError(_not_importable(where, file, reason)) from reason
    except Exception as reason:
        raise ModelFileError(
            f"{where} is {file.description}, and torch cannot load it: {one_line(reason)}"
        ) from reason
    notes = list(_notes(file))
    if isinstance(content, torch.nn.Module):
        if model is not None:
            raise UsageError(f"--model is for checkpoints; {where} is a pickled module")
        return LoadedModel(file, module=content, notes=tuple(notes))
    if model is None and (modules := _modules_in(content)):
        return _choose_module(file, modules, notes)
    # A module without weights has an empty state dict, which is all its file holds.
    found = find_weights(content) or ([Weights("", {}, ())] if content == {} else [])
    if not found:
        keys = f" with keys {listed([str(key) for key in content])}" if isinstance(content, dict) else ""
        raise ModelFileError(f"{where} holds no tensors by name, but a {type(content).__name__}{keys}")
    if model is None:
        raise UsageError(
            f"{where} is a state dict or checkpoint: weights without the model's code. Give --model "
            "PKG.MOD:CALLABLE (or path/to/file.py:CALLABLE), a class or function that builds the model. "
            f"Its keys: {listed(list(found[0].tensors)[:8])}"
        )
    module = build_model(model)
    if any(value.is_meta for value in module.state_dict().values() if isinstance(value, torch.Tensor)):
        raise UsageError(f"--model {model} builds the model on the meta device, which holds no values")
    notes += fill_module(module, found, where)
    return LoadedModel(file, module=module, notes=tuple(notes))


def _notes(file: ModelFile) -> tuple[str, ...]:
    if NO_CHECKSUMS not in file.description:
        return ()
    return ("this file has no checksums: changed bytes in its weights cannot be noticed",)


def _modules_in(content: Any) -> dict[str, torch.nn.Module]:
    import torch

    if not isinstance(content, dict):
        return {}
    return {str(key): value for key, value in content.items() if isinstance(value, torch.nn.Module)}


def _choose_module(file: ModelFile, modules: dict[str, torch.nn.Module], notes: list[str]) -> LoadedModel:
    plain = [
        key for key in modules if not re.search(r"ema|swa|avg|teacher|loss|criterion", key, re.IGNORECASE)
    ]
    candidates = plain or list(modules)
    if len(candidates) != 1:
        raise ModelFileError(
            f"{shown(file.path)} holds several modules: {listed(list(modules))}. Save the one you mean alone"
        )
    notes.append(f"module taken from the checkpoint's entry {candidates[0]!r}")
    notes += [f"the module in {key!r} was not used" for key in modules if key != candidates[0]]
    return LoadedModel(file, module=modules[candidates[0]], notes=tuple(notes))


def _not_importable(where: str, file: ModelFile, reason: Exception) -> str:
    text = f"{where} is {file.description}, and its code cannot be found: {one_line(reason)}. "
    if any(name.startswith("__main__.") for name in file.unsafe_globals):
        return text + (
            "Its class was defined in the script that saved it (`__main__`): save it again with the class in "
            "a module, or save the state dict and use --model"
        )
    modules = sorted({name.rpartition(".")[0] for name in file.unsafe_globals if not name.startswith("(")})
    return text + f"Make these modules importable (install them or set PYTHONPATH): {listed(modules)}"
