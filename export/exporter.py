"""From a model to a checked ONNX file: the steps, in order."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from ..errors import ExportError, UsageError
from ..ort_ops import arguments
from ..symbolic import functions, registry, schema, translate
from . import checks, findings, naming
from .batch_statistics import refuse_batch_statistics
from .branches import compiled_apart
from .census import take_census
from .clock import Clock
from .custom_nodes import CustomOps, choose_mode, expand, forget_stand_ins, undeclared_nodes
from .decomposed_sizes import decomposed_sizes
from .generators import generators_seeded
from .graph.program_copy import drop_constant_outputs
from .inexact import inexact_notes
from .inputs.signature import Signature
from .manifest import write_manifest
from .memory import refuse_memory, state_kept
from .missing import refuse_complex, refuse_missing, refuse_unmapped
from .promises import custom_operators
from .result import ExportedModel, Note, TensorSpec
from .size_ways import size_explainer, squeezes, squeezes_explained
from .source import Source, open_source, read_signature, ready
from .target import writable_target
from .traced import functionalised, leaf_names, size_adviser, traced_program
from .trials import try_out

if TYPE_CHECKING:
    import onnx_ir as ir

    from .inputs.input_spec import Symbol
    from .python_state import PythonState

__all__ = ["CustomOps", "export_model"]

Progress = Callable[[str], None]


def export_model(
    model: Any,
    inputs: Any = None,
    *,
    out: str | os.PathLike[str],
    dynamic: Mapping[str, Mapping[int, str | Symbol]] | None = None,
    data: Mapping[str, Any] | None = None,
    output_names: Sequence[str] | None = None,
    opset: int | None = None,
    custom_ops: CustomOps | None = None,
    external_data: bool | None = None,
    factory: str | None = None,
    trust: bool = False,
    progress: Progress | None = None,
) -> ExportedModel:
    """Export a model to a checked ONNX file.

    ::

        export_model(net, (torch.randn(2, 3, 32, 32),), dynamic={"x": {0: "batch"}}, out="net.onnx")
        export_model("model.pt", ["x:float32[batch,3,h,w]"], out="model.onnx")

    Args:
        model: a `torch.nn.Module`, a `torch.export` program, or the path of a model file of any kind.
        inputs: example tensors as a tuple, or a dict by parameter name; or texts as in `--input`. None: the
            example inputs stored in the file.
        out: the file to write. Nothing is written unless every check passes.
        dynamic: names of the dims that vary, for inputs given as tensors: ``{"x": {0: "batch=1..64"}}``.
        data: real samples by input name, to trace and check with.
        opset: version of ONNX's standard operators; by default 20.
        custom_ops: "function": custom nodes, each with a body of standard operators, so that any runtime runs
            the file (default; operators without a body stay alone, which is said); "node": custom nodes alone;
            "standard": expanded, no custom node is left.
        external_data: weights in a second file; by default only above 2 GB.
        factory: "PKG.MOD:CALLABLE" that builds the module a checkpoint's weights belong to.
        trust: run the code in a pickled model.

    Raises:
        ModelFileError, UsageError: the file or the arguments.
        ExportError: the model cannot be exported faithfully; every obstacle of a kind in one message.
    """
    import torch

    _check_arguments(out, dynamic, data, output_names, opset, custom_ops, external_data, factory, trust)
    inputs = arguments.listed_texts(inputs)
    if isinstance(
        model, (str, os.PathLike)
    ):  # a file may name our operators; a module has imported those it uses
        registry.load_builtin()
    registry.load_entry_points()
    clock = Clock(progress)
    with warnings.catch_warnings(), clock("load"):
        _hush()
        source = open_source(model, trust=trust, factory=factory)
        signature = read_signature(source, inputs, dynamic, data)
    with ready(source), state_kept(source.module) as state, torch.no_grad(), warnings.catch_warnings():
        _hush()
        target = writable_target(out)
        result = _export(
            source, state, signature, target, output_names, opset, custom_ops, external_data, clock
        )
    if Path(out).is_symlink():
        return result
    named = [Path(out), *(Path(out).parent / f.name for f in result.files[1:])]  # as the user wrote it
    return dataclasses.replace(result, path=named[0], files=tuple(named))


def _check_arguments(
    out: Any,
    dynamic: Any,
    data: Any,
    output_names: Any,
    opset: Any,
    custom_ops: Any,
    external_data: Any,
    factory: Any,
    trust: Any,
) -> None:
    """Raises UsageError for what no export could take, before anything is loaded."""
    arguments.expect_path("out", out)
    writable_target(out)
    arguments.expect_mapping("dynamic", dynamic, "names of dims by input and axis, {'x': {0: 'batch'}}")
    for name, axes in (dynamic or {}).items():
        if not isinstance(axes, Mapping) or not all(isinstance(axis, int) for axis in axes):
            raise UsageError(f"dynamic[{name!r}] is a name by axis, {{0: 'batch'}}, not {axes!r}")
    arguments.expect_mapping("data", data, "arrays by input name")
    arguments.expect_sequence("output_names", output_names, str, "a list of names")
    arguments.expect("opset", opset, int, "a number")
    arguments.expect("external_data", external_data, bool, "True, False or None")
    arguments.expect("factory", factory, str, "a text, 'PKG.MOD:CALLABLE'")
    arguments.expect("trust", trust, bool, "True or False")
    if custom_ops is not None and custom_ops not in get_args(CustomOps):
        raise UsageError(
            f"custom_ops is one of {', '.join(map(repr, get_args(CustomOps)))}, not {custom_ops!r}"
        )
    _version(opset)


def _version(opset: int | None) -> int:
    from .graph.translation import DEFAULT_OPSET, OPSETS

    if opset is not None and opset not in OPSETS:
        raise UsageError(
            f"opset {opset} cannot be exported: torch translates to opsets {OPSETS[0]} to {OPSETS[-1]}. Choose one of "
            f"these, or leave it out for {DEFAULT_OPSET}"
        )
    return opset or DEFAULT_OPSET


def _export(
    source: Source,
    state: PythonState,
    signature: Signature,
    out: Path,
    output_names: Sequence[str] | None,
    asked_opset: int | None,
    custom_ops: CustomOps | None,
    external_data: bool | None,
    clock: Clock,
) -> ExportedModel:
    from .graph import passes
    from .graph.declared_sizes import declared_sizes
    from .graph.translation import translate as translate_program
    from .onnx_file.write import write_graph, write_model

    opset = _version(asked_opset)
    notes = source.notes
    original = source.callable()
    with clock("run"):
        args, kwargs = source.arrange(*signature.bind(signature.make(), original))
        advise = size_adviser(source, signature, original)
        with generators_seeded(0) as drawn:
            census = take_census(original, args, kwargs, advise)
        refuse_missing(census.custom, opset)
        memory = refuse_memory(source, signature, original, census, state, drawn)
        notes += memory.notes
        notes += findings.random_notes(census.random)
        notes += findings.random_operator_notes(census.promises.random)
        notes += findings.branch_function_notes(census.branch_functions)
    with clock("trace"):
        leaves = leaf_names(source, signature, original)
        notes += findings.mutation_notes(census.written_buffers, [leaves[k] for k in census.written_inputs])
        with state_kept(source.module):
            program, signature, doubts = traced_program(source, signature, args, kwargs, leaves)
        declared = declared_sizes(program, signature, naming.input_names(program, leaves))
        memory.refuse_constants(program)
        refuse_batch_statistics(program)
        called = custom_operators(program)
        squeezed = squeezes(program)
        explain = size_explainer(source, signature, original, squeezed)
    with clock("translate"):
        refuse_unmapped(program, opset)
        refuse_complex(program)
        notes += inexact_notes(program)
        program = functionalised(program, opset)
        notes += findings.constant_output_notes(program)
        names = naming.input_names(program, leaves)
        outputs = naming.output_names(program, output_names)
        notes += findings.complex_notes(signature.make(), _named_tensors(outputs, census.outputs))
        drop_constant_outputs(program)
        lowered = translate.lower(program)
        onnx_model = translate_program(program, opset=opset, declared=declared)
        version = _sufficient(onnx_model, opset, asked=asked_opset, notes=notes)
        if version != opset:
            onnx_model = translate_program(program, opset=version, declared=declared)
        signature, assumed = decomposed_sizes(declared, signature, notes)
        doubts |= assumed
        translate.finish(onnx_model, lowered)
    used = lowered.operators
    for op in used.values():
        schema.register(op)
    mode = choose_mode(custom_ops, used, undeclared_nodes(onnx_model, used), notes)
    with clock("optimise"):
        forget_stand_ins(onnx_model)
        naming.name_inputs(onnx_model, names)
        naming.name_outputs(onnx_model, outputs, taken=set(names.values()))
        naming.name_dims(onnx_model, program, signature, names)
        if mode == "standard":
            expand(onnx_model, used)
        stateful = frozenset(
            key for key, op in used.items() if op.stateful or op.overload in census.promises.random
        )
        passes.optimize(onnx_model, stateful=stateful)
        translate.keep_absent_inputs(onnx_model, used)
        passes.strip_metadata(onnx_model)
        notes += findings.unused_input_notes(onnx_model, names)
        notes += findings.float_attribute_notes(onnx_model)
    with clock("check"), squeezes_explained(squeezed):
        checks.fill_shapes(onnx_model)
        if mode != "standard":
            functions.attach(onnx_model, used)
        checks.check_structure(onnx_model)
        checks.check_dims(onnx_model, signature)
        write_manifest(onnx_model, signature, used)
        with tempfile.TemporaryDirectory(prefix="deployops-") as folder:
            path = Path(folder) / out.name  # what the runtime says names the file
            weights = write_graph(onnx_model, path)
            with memory.explained(), compiled_apart(lambda: census.has_branches):
                sizes = try_out(
                    path, weights, onnx_model, original, signature, census, doubts, notes, advise, explain
                )
        notes += findings.unproved_notes(census.promises.unproved(called), census.failed_branches)
    with clock("write"):
        if mode == "node":
            onnx_model.functions.clear()
            for node in onnx_model.graph.all_nodes():
                node.overload = ""
        written = write_model(onnx_model, out, external_data=external_data)
    counts = Counter(
        f"{n.domain}::{n.op_type}" for n in onnx_model.graph.all_nodes() if n.domain not in ("", "ai.onnx")
    )
    return ExportedModel(
        path=written.paths[0],
        files=written.paths,
        kind=source.kind,
        inputs=tuple(map(_tensor_spec, onnx_model.graph.inputs)),
        outputs=tuple(map(_tensor_spec, onnx_model.graph.outputs)),
        custom_nodes=dict(sorted(counts.items())),
        custom_ops=mode,
        nodes=sum(1 for _ in onnx_model.graph.all_nodes()),
        opset=onnx_model.opset_imports[""],
        bytes=written.bytes,
        digest=written.digest,
        checked_sizes=tuple(sizes),
        seconds=clock.seconds,
        notes=tuple(dict.fromkeys(notes)),
    )


def _hush() -> None:
    """Warnings of torch about itself, which no user can act on."""
    # its placeholders for ONNX nodes take symbolic sizes as arguments, which torch 2.13 warns of
    warnings.filterwarnings("ignore", message="Raw SymInt")
    warnings.filterwarnings("ignore", category=FutureWarning, message=".*LeafSpec")


def _named_tensors(names: Sequence[str], results: Any) -> dict[str, Any]:
    from torch.utils import _pytree as pytree

    return dict(
        zip(names, (t for t in pytree.tree_leaves(results) if hasattr(t, "is_complex")), strict=False)
    )


def _sufficient(model: ir.Model, opset: int, *, asked: int | None, notes: list[Note]) -> int:
    """The opset to export with: `opset`, or the first above it whose operators take the model's dtypes.

    Raises ExportError where the user asked for one that does not do.
    """
    from .graph.opset_choice import sufficient_opset
    from .graph.translation import OPSETS

    found, refused = sufficient_opset(model, opset, OPSETS)
    if found == opset or found is None:  # None: the checker says what is wrong
        return opset
    text = f"opset {opset} has no {', '.join(refused)}; opset {found} has"
    if asked is not None:
        raise ExportError(f"{text}. Export with opset {found} (on the command line --opset {found})")
    notes.append(Note("info", f"exported with opset {found}: {text}"))
    return found


def _tensor_spec(value: ir.Value) -> TensorSpec:
    from ..symbolic import dtypes

    dims = [d if isinstance(d, int) else d.value or "?" for d in value.shape or ()]
    return TensorSpec(value.name or "", dtypes.name_of(int(value.dtype)) if value.dtype else "?", tuple(dims))
