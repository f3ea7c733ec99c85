"""From a model to a checked ONNX file: the steps, in order."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..errors import ExportError, UsageError
from ..ort_ops import arguments
from ..symbolic import functions, registry, schema, translate
from . import checks, findings, naming
from .capture import capture
from .census import take_census
from .clock import Clock
from .graph.program_copy import copy_program, drop_constant_outputs
from .inexact import inexact_notes
from .inputs.condition_lines import condition_line
from .inputs.dim_guards import conditions_of, unmet_conditions
from .inputs.narrowing import spatial_narrowing, sufficient_ranges
from .inputs.signature import Signature
from .inputs.working_sizes import size_advice
from .missing import refuse_missing, refuse_unmapped
from .result import ExportedModel, Note, TensorSpec
from .source import Source, open_source, read_signature, ready
from .target import writable_target
from .trials import try_out

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.export import ExportedProgram

    from ..symbolic.operator import Operator
    from .inputs.dim_guards import DimCondition
    from .inputs.input_spec import Symbol

__all__ = ["CustomOps", "export_model"]

CustomOps = Literal["function", "node", "standard"]
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
            the file (default where every operator has a body); "node": custom nodes alone; "standard":
            expanded, no custom node is left.
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
    with ready(source), torch.no_grad(), warnings.catch_warnings():
        _hush()
        target = writable_target(out)
        result = _export(source, signature, target, output_names, opset, custom_ops, external_data, clock)
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
    signature: Signature,
    out: Path,
    output_names: Sequence[str] | None,
    asked_opset: int | None,
    custom_ops: CustomOps | None,
    external_data: bool | None,
    clock: Clock,
) -> ExportedModel:
    from .graph import passes
    from .graph.translation import translate as translate_program
    from .onnx_file.write import write_graph, write_model

    opset = _version(asked_opset)
    notes = source.notes
    original = source.callable()
    with clock("run"):
        args, kwargs = source.arrange(*signature.bind(signature.make(), original))
        advise = _size_advice(source, signature, original)
        census = take_census(original, args, kwargs, advise)
        refuse_missing(census.custom, opset)
        notes += findings.random_notes(census.random)
        notes += findings.random_operator_notes(census.promises.random)
    with clock("trace"):
        leaves = _leaf_names(source, signature, original)
        notes += findings.mutation_notes(census.written_buffers, [leaves[k] for k in census.written_inputs])
        program, signature, doubts = _program(source, signature, args, kwargs, leaves)
    with clock("translate"):
        refuse_unmapped(program, opset)
        notes += inexact_notes(program)
        program = _functionalised(program, opset)
        notes += findings.constant_output_notes(program)
        names = naming.input_names(program, leaves)
        outputs = naming.output_names(program, output_names)
        notes += findings.complex_notes(signature.make(), _named_tensors(outputs, census.outputs))
        drop_constant_outputs(program)
        lowered = translate.lower(program)
        onnx_model = translate_program(program, opset=opset)
        version = _sufficient(onnx_model, opset, asked=asked_opset, notes=notes)
        if version != opset:
            onnx_model = translate_program(program, opset=version)
        translate.finish(onnx_model, lowered)
    used = lowered.operators
    for op in used.values():
        schema.register(op)
    mode = _mode(custom_ops, used, _undeclared(onnx_model, used), notes)
    with clock("optimise"):
        _forget_unknown(onnx_model)
        naming.name_inputs(onnx_model, names)
        naming.name_outputs(onnx_model, outputs, taken=set(names.values()))
        naming.name_dims(onnx_model, program, signature, names)
        if mode == "standard":
            _expand(onnx_model, used)
        stateful = frozenset(
            key for key, op in used.items() if op.stateful or op.overload in census.promises.random
        )
        passes.optimize(onnx_model, stateful=stateful)
        passes.strip_metadata(onnx_model)
        notes += findings.unused_input_notes(onnx_model, names)
        notes += findings.float_attribute_notes(onnx_model)
    with clock("check"):
        checks.fill_shapes(onnx_model)
        if mode != "standard":
            functions.attach(onnx_model, used)
        checks.check_structure(onnx_model)
        checks.check_dims(onnx_model, signature)
        _describe(onnx_model, signature, used)
        with tempfile.TemporaryDirectory(prefix="deployops-") as folder:
            path = Path(folder) / out.name  # what the runtime says names the file
            weights = write_graph(onnx_model, path)
            sizes = try_out(path, weights, onnx_model, original, signature, census, doubts, notes, advise)
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


def _size_advice(source: Source, signature: Signature, original: Any) -> Callable[..., str | None]:
    def runs(sizes: Mapping[str, int]) -> bool:
        try:
            checks.call_original(original, *source.arrange(*signature.bind(signature.make(sizes), original)))
        except Exception:  # whatever the user's model raises
            return False
        return True

    return lambda failed=None: size_advice(signature, runs, failed)


def _program(
    source: Source,
    signature: Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    leaves: Sequence[str],
) -> tuple[ExportedProgram, Signature, dict[DimCondition, str | None]]:
    """Trace the module, or take the program the file holds; with conditions on sizes that are to be tried, and their lines.

    Spatial dims with no declared range are narrowed to what the traced model takes, with a warning. Raises ExportError
    for other conditions that no trial can settle.
    """
    if source.program is not None:
        return copy_program(source.program), signature, {}
    program, log = capture(source, signature, args, kwargs)
    source.notes += findings.function_notes(log)
    unmet = unmet_conditions(program, signature, source.module)
    ranges: dict[str, Symbol] = {}
    if any(c.is_grave for c in unmet):
        ranges = sufficient_ranges(signature, conditions_of(program, signature, source.module))
        narrowed = spatial_narrowing(signature, ranges)
        if narrowed is not None:
            signature, ranges = narrowed, {}
            source.notes.append(findings.narrowing_note(narrowed, unmet))
            unmet = unmet_conditions(program, signature, source.module)
    names = naming.input_names(program, leaves)
    lines = {c: condition_line(program, signature, names, c.breaks_at) for c in unmet}
    grave = {c: line for c, line in lines.items() if c.is_grave}
    if grave:
        raise ExportError(findings.conditions_text(grave, ranges))
    return program, signature, {c: line for c, line in lines.items() if c.can_be_tried}


def _named_tensors(names: Sequence[str], results: Any) -> dict[str, Any]:
    from torch.utils import _pytree as pytree

    return dict(
        zip(names, (t for t in pytree.tree_leaves(results) if hasattr(t, "is_complex")), strict=False)
    )


def _leaf_names(source: Source, signature: Signature, original: Any) -> list[str]:
    """The names of the arguments in the order in which the traced program takes them."""
    from torch.utils import _pytree as pytree

    names = {spec.name: spec.name for spec in signature.specs}
    return [str(leaf) for leaf in pytree.tree_leaves(source.arrange(*signature.bind(names, original)))]


def _functionalised(program: ExportedProgram, opset: int) -> ExportedProgram:
    """Operators that write into an argument return it instead, where the program has one of ours."""
    calls = list(translate.custom_calls(program))
    if any(graph is not program.graph for graph, _, _, _ in calls):
        # In a branch of torch.cond. torch's decomposition cannot retrace the placeholder of an ONNX node there, so it
        # comes first, and the exporter's own has nothing left to do.
        from .graph.onnx_functions import decompositions

        functional = _decomposed(program, decompositions(opset))
        vars(functional)["run_decompositions"] = lambda *_, **__: functional
        return functional
    if any(op.interface.mutates for _, _, op, _ in calls):
        return _decomposed(program, {})
    return program


def _decomposed(program: ExportedProgram, table: dict[Any, Any]) -> ExportedProgram:
    try:
        decomposed: ExportedProgram = program.run_decompositions(table)
        return decomposed
    except Exception as e:
        lines = str(e).strip().splitlines() or [""]
        raise ExportError(f"torch cannot decompose the traced model: {type(e).__name__}: {lines[0]}") from e


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


def _undeclared(model: ir.Model, used: Mapping[Any, Operator]) -> list[str]:
    """Custom nodes that no declaration stands behind: those that a `symbolic` method emits."""
    found = {
        f"{n.domain}::{n.op_type}"
        for n in model.graph.all_nodes()
        if n.domain not in ("", "ai.onnx")
        and (n.domain, n.op_type) not in used
        and n.op_identifier() not in model.functions
    }
    return sorted(found)


def _mode(
    asked: CustomOps | None, used: Mapping[Any, Operator], undeclared: Sequence[str], notes: list[Note]
) -> CustomOps:
    bare = [op.onnx_name for op in used.values() if op.body_function is None] + list(undeclared)
    if asked in ("function", "standard") and bare:
        adopt = (
            " (first adopt the autograd.Function that emits it: deployops.adopt(CLASS, onnx='domain::Type'))"
            if undeclared
            else ""
        )
        raise ExportError(
            f"--custom-ops {asked} needs a body of standard ONNX operators for {', '.join(bare)}: add one with "
            f"@op.body{adopt}, or export with --custom-ops node"
        )
    if asked is None and bare:
        notes.append(
            Note(
                "info",
                f"exported without bodies, because {', '.join(bare)} has none: only a runtime with its kernel runs it",
            )
        )
    return asked or ("node" if bare else "function")


def _forget_unknown(model: ir.Model) -> None:
    """Values inside an `autograd.Function`'s symbolic carry a stand-in type: let inference find the true one."""
    for node in model.graph.all_nodes():
        known = node.metadata_props.pop("deployops.symbolic", None)
        for value, mark in zip(node.outputs, (known or "").split(","), strict=False):
            if mark == "unknown":
                value.type = value.shape = None


def _expand(model: ir.Model, used: Mapping[tuple[str, str], Operator]) -> None:
    """No custom node is left: bodies in their place."""
    import onnx_ir.passes.common as common

    functions.attach(model, used)
    common.InlinePass()(model)
    for domain, _ in used:
        model.opset_imports.pop(domain, None)


def _describe(model: ir.Model, signature: Signature, used: Mapping[Any, Operator]) -> None:
    """The manifest in the file's metadata: what it needs, and what made it. No paths, no dates."""
    import torch

    from .. import __version__

    model.producer_name, model.producer_version = "deployops", __version__
    model.doc_string = None
    model.metadata_props["deployops.manifest"] = json.dumps(
        {
            "deployops": __version__,
            "torch": str(torch.__version__).split("+")[0],
            "inputs": [str(spec) for spec in signature.specs],
            "operators": {
                op.onnx_name: {"version": op.version, "torch": str(op.overload._schema)}
                for op in sorted(used.values(), key=lambda o: o.onnx_name)
            },
        },
        sort_keys=True,
    )


def _tensor_spec(value: ir.Value) -> TensorSpec:
    from ..symbolic import dtypes

    dims = [d if isinstance(d, int) else d.value or "?" for d in value.shape or ()]
    return TensorSpec(value.name or "", dtypes.name_of(int(value.dtype)) if value.dtype else "?", tuple(dims))
