"""What a user must know of an exported model although it was exported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..symbolic import registry
from .result import Note

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.export import ExportedProgram

    from ..symbolic.autograd_functions import Recording
    from .inputs.dim_guards import DimCondition
    from .inputs.input_spec import Symbol
    from .inputs.signature import Signature

__all__ = [
    "branch_function_notes",
    "complex_notes",
    "conditions_text",
    "constant_output_notes",
    "float_attribute_notes",
    "function_notes",
    "mutation_notes",
    "random_notes",
    "random_operator_notes",
    "unproved_notes",
    "unused_input_notes",
]


_SHOWN = 6  # conditions listed in an error


def random_notes(random: Mapping[str, str | None]) -> list[Note]:
    """Operators that draw random numbers in eval mode."""
    return [
        Note(
            "warning",
            f"`{name}` draws random numbers in eval mode too"
            + (f", at {where}" if where else "")
            + ": two runs of the model differ, and it cannot be compared with the original"
            + (
                " (F.dropout needs training=self.training)"
                if "dropout" in name or name == "bernoulli_"
                else ""
            ),
        )
        for name, where in random.items()
    ]


def random_operator_notes(random: Mapping[Any, str | None]) -> list[Note]:
    """Custom operators that gave other results for the same arguments."""
    notes = []
    for overload, where in random.items():
        op = registry.by_overload(overload)
        declared = op is not None and op.stateful
        notes.append(
            Note(
                "warning",
                f"`{overload.name()}` gives other results for the same arguments"
                + (f", at {where}" if where else "")
                + ": it is random, or keeps state, and the model cannot be compared with the original"
                + ("" if declared else ". Declare it: stateful=True"),
            )
        )
    return notes


def unproved_notes(operators: Sequence[Any], lines: Sequence[str | None]) -> list[Note]:
    """Custom operators in a branch that no run reached. `lines`: where a branch failed that was not chosen."""
    names = ", ".join(f"`{op.name()}`" for op in operators)
    failed = ", ".join(dict.fromkeys(line for line in lines if line))
    why = f" (it fails at {failed} on the values of the other one)" if failed else ""
    text = (
        f"whether {names} returns what its fake kernel says and writes into no argument: branch not run{why}"
    )
    return [Note("not checked", text)] if names else []


def branch_function_notes(names: Iterable[str]) -> list[Note]:
    """autograd.Functions whose `symbolic` a trace cannot use, because they stand in a branch."""
    return [
        Note(
            "warning",
            f"autograd.Function {name} is decomposed where it stands in a branch of torch.cond: its `symbolic` cannot be used "
            f"there. To keep it as one node: deployops.adopt({name}, onnx='domain::Type')",
        )
        for name in names
    ]


def function_notes(log: Recording) -> list[Note]:
    """What became of the model's autograd.Functions."""
    notes = [Note("info", f"autograd.Function {name} is kept as {nodes}") for name, nodes in log.kept.items()]
    if log.decomposed:
        notes.append(
            Note(
                "info",
                f"decomposed, because it has no `symbolic`: autograd.Function {', '.join(log.decomposed)}. To keep it as "
                "one node: deployops.adopt(CLASS, onnx='domain::Type')",
            )
        )
    return notes


def conditions_text(
    conditions: Mapping[DimCondition, str | None], ranges: Mapping[str, Symbol] | None = None
) -> str:
    """Why some sizes that were asked for would give a wrong model; with the line that made each condition.

    `ranges`: dims that would meet all of them, where they are known.
    """
    if ranges:
        advice = f"Write {', '.join(map(str, ranges.values()))} in the inputs: there they hold"
    else:
        advice = (
            "Give the dim a range or a multiple that meets it (batch=2..64, h=32..512%32), one name to dims that must "
            "be equal, or a number"
        )
    shown = list(conditions.items())[:_SHOWN]
    return (
        f"the traced model is right only under conditions that the sizes asked for do not meet. {advice}:\n"
        + "\n".join(f"  - {c}" + (f"\n    from {line}" if line else "") for c, line in shown)
        + (f"\n  and {len(conditions) - len(shown)} more" if len(conditions) > len(shown) else "")
    )


def narrowing_note(signature: Signature, unmet: Sequence[DimCondition]) -> Note:
    """Which dims were narrowed to what the traced model takes."""
    named = {name for c in unmet if c.is_grave for name in c.breaks_at}
    dims = ", ".join(str(s) for n, s in signature.symbols.items() if n in named and s.low > 1)
    return Note(
        "warning",
        f"the file is for {dims}: the traced model does not hold at smaller sizes ({next(iter(unmet))}). Declare the "
        "range to be rid of this warning",
    )


def mutation_notes(buffers: Sequence[str], inputs: Sequence[str]) -> list[Note]:
    """Writes to buffers and to the model's own inputs, which an ONNX model cannot keep."""
    notes = []
    if buffers:
        names = ", ".join(f"`{n}`" for n in buffers)
        notes.append(
            Note(
                "warning",
                f"the model writes into its buffer {names} when it runs. The exported model starts from the stored value "
                "at every call and keeps nothing: pass such state as an input and return it",
            )
        )
    if inputs:
        names = ", ".join(f"`{n}`" for n in inputs)
        notes.append(
            Note(
                "warning",
                f"the model writes into its input {names}; a runtime will not: return the changed tensor",
            )
        )
    return notes


def constant_output_notes(program: ExportedProgram) -> list[Note]:
    """Returned values that are no tensors: ONNX outputs are."""
    from torch.export.graph_signature import OutputKind, TensorArgument

    results = [s.arg for s in program.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    return [
        Note(
            "warning",
            f"result {k} of the model is {f'the constant {arg.value!r}' if hasattr(arg, 'value') else 'a number'}, not a "
            "tensor: it is left out",
        )
        for k, arg in enumerate(results)
        if not isinstance(arg, TensorArgument)
    ]


def complex_notes(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> list[Note]:
    """Complex tensors at the boundary, which become pairs of floats."""
    notes = []
    for what, tensors in (("input", inputs), ("output", outputs)):
        names = [f"`{n}`" for n, t in tensors.items() if getattr(t, "is_complex", lambda: False)()]
        if names:
            notes.append(
                Note(
                    "warning",
                    f"{what} {', '.join(names)} is complex in PyTorch; in ONNX it is real with a last dim of 2 (real and "
                    "imaginary part: torch.view_as_real)",
                )
            )
    return notes


def unused_input_notes(model: ir.Model, names: Mapping[str, str]) -> list[Note]:
    """Inputs that the model takes and never looks at."""
    unused = [v.name for v in model.graph.inputs if not v.uses() and not v.is_graph_output()]
    return [
        Note("info", f"the model does not use its input `{n}`; it stays an input of the file") for n in unused
    ]


def float_attribute_notes(model: ir.Model) -> list[Note]:
    """Attributes of float64 operators that lose digits: ONNX stores floats as float32."""
    import onnx_ir as ir

    notes = {}
    for node in model.graph.all_nodes():
        first = next((v for v in node.inputs if v is not None), None)
        if not node.domain or first is None or first.dtype != ir.DataType.DOUBLE:
            continue
        for a in node.attributes.values():
            if a.type == ir.AttributeType.FLOAT and not a.is_ref() and _single(a.as_float()) != a.as_float():
                notes[f"{node.op_type}.{a.name}"] = Note(
                    "warning",
                    f"{node.domain}::{node.op_type} computes in float64, and ONNX stores its attribute `{a.name}` = "
                    f"{a.as_float()!r} as float32: {_single(a.as_float())!r}. A body has the exact number; a kernel will not",
                )
    return list(notes.values())


def _single(value: float) -> float:
    import struct

    number: float = struct.unpack("f", struct.pack("f", value))[0]
    return number
