"""The C++ around kernels, written from the declarations: entries of each operator, and the table of a library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..symbolic import dims, dtypes
from ..symbolic.attributes import encode_attribute
from . import shape_rules
from .cpp_types import attribute_kind, attribute_type, element_type, identifier, literal
from .rendering import symbol_of, template
from .signature import KernelRow, fingerprint, function_name, kernel_rows
from .size_formulas import formula

if TYPE_CHECKING:
    from ..symbolic.attributes import Attribute
    from ..symbolic.interface import Input
    from ..symbolic.operator import Operator
    from .levels import Level

__all__ = [
    "entries_symbol",
    "entry_arguments",
    "kernel_entries",
    "operator_table",
    "shape_entry",
    "table_entry",
    "tensor_lists",
]


def entries_symbol(op: Operator, level: str) -> str:
    """The C function that gives an operator's kernels at one instruction-set level, a name of its own in a library."""
    return symbol_of(op, "kernels", f"_{level}")


def tensor_lists(op: Operator) -> dict[str, Any]:
    """For the templates of entries: how many inputs are single tensors, and how the lists behind them are read."""
    variadics = op.interface.variadics
    singles = len(op.interface.inputs) - len(variadics)
    counts = op.interface.count_attributes
    lists = [
        {
            "name": i.name,
            "variable": f"deployops_list_{n}",
            "count": f"detail::list_length(deployops_call, {len(op.interface.attributes) + n}, deployops_next)"
            if counts
            else f"detail::list_size(deployops_call, {singles})",
        }
        for n, i in enumerate(variadics)
    ]
    return {"singles": singles, "lists": lists}


# --- entries -----------------------------------------------------------------------------------------------------


def kernel_entries(op: Operator, kernel_file: str, level: str, by_kernel: Sequence[str]) -> str:
    """The source of an operator's entries; `by_kernel`: outputs that the kernel allocates."""
    rows = kernel_rows(op)
    return template("kernel_entries.cpp.j2").render(
        op=op,
        kernel_file=kernel_file,
        function=function_name(op),
        symbol=entries_symbol(op, level),
        **tensor_lists(op),
        rows=[
            {
                "label": row.label,
                "inputs": {n: element_type(d) for n, d in row.inputs.items()},
                "arguments": [
                    "*deployops_call.parallel",
                    *entry_arguments(op, row, element_type, by_kernel),
                ],
            }
            for row in rows
        ],
    )


def entry_arguments(
    op: Operator,
    row: KernelRow,
    element_of: Callable[[str], str | None],
    by_kernel: Sequence[str] = (),
    without: Sequence[str] = (),
) -> list[str]:
    """What an entry calls a kernel with, as C++: the arguments of the declaration, then its outputs.

    `element_of`: the C++ type of a dtype. `by_kernel`: the outputs that the kernel allocates itself. `without`: arguments
    that it does not get.
    """
    inputs = {i.name: (n, i) for n, i in enumerate(op.interface.inputs)}
    attributes = {a.name: (n, a) for n, a in enumerate(op.interface.attributes)}
    overwritten = {o.mutates: n for n, o in enumerate(op.interface.outputs) if o.mutates is not None}
    variadics = [i.name for i in op.interface.variadics]

    def input_argument(n: int, i: Input) -> str:
        element = element_of(row.inputs[i.name])
        if i.form == "variadic":
            return f"deployops_list_{variadics.index(i.name)}.view()"
        if i.mutated:
            return f"detail::output<{element}>(deployops_call, {overwritten[i.name]})"
        return f"detail::input<{element}>(deployops_call, {n})"

    arguments = []
    for name in op.interface.arguments:
        if name in attributes:
            n, a = attributes[name]
            arguments.append(f"detail::Attribute<{attribute_type(a)}>(deployops_call, {n}).exact()")
        elif name not in without:
            arguments.append(input_argument(*inputs[name]))
    for n, o in enumerate(op.interface.outputs):
        if o.mutates is None:
            maker = "new_output" if o.name in by_kernel else "output"
            arguments.append(f"detail::{maker}<{element_of(row.outputs[o.name])}>(deployops_call, {n})")
    return arguments


# --- table -------------------------------------------------------------------------------------------------------


def operator_table(
    operators: Sequence[Operator],
    rules: Mapping[str, Mapping[str, shape_rules.ShapeRule]],
    levels: Sequence[Level],
) -> str:
    """The source of the table; `rules` by operator name, `levels` as by `levels_for`."""
    return template("operator_table.cpp.j2").render(
        operators=[table_entry(op, rules[op.name], levels) for op in operators],
        levels=[{"name": level.name, "check": level.cpu_check} for level in levels],
    )


def table_entry(
    op: Operator, rules: Mapping[str, shape_rules.ShapeRule], levels: Sequence[Level]
) -> dict[str, Any]:
    names = [i.name for i in op.interface.inputs]
    return {
        "name": literal(op.name),
        "fingerprint": literal(fingerprint(op)),
        "onnx_name": op.onnx_name,
        "schema": op.schema,
        "domain": literal(op.domain),
        "op_type": literal(op.op_type),
        "version": op.version,
        "last_version": "INT_MAX",
        "symbols": {level.name: entries_symbol(op, level.name) for level in levels},
        "inputs": [{"name": literal(i.name), "form": i.form} for i in op.interface.inputs],
        "attributes": [_attribute_entry(op, a) for a in op.interface.attributes]
        + [_count_entry(name) for name in op.interface.count_attributes],
        "outputs": [
            {
                "name": literal(o.name),
                "overwrites": -1 if o.mutates is None else names.index(o.mutates),
                **shape_entry(op, rules[o.name]),
            }
            for o in op.interface.outputs
        ],
        "rows": [
            {
                "label": literal(row.label),
                "inputs": [dtypes.onnx_number(row.inputs[n]) for n in names],
                "outputs": [dtypes.onnx_number(row.outputs[o.name]) for o in op.interface.outputs],
            }
            for row in kernel_rows(op)
        ],
    }


def _attribute_entry(op: Operator, a: Attribute) -> dict[str, Any]:
    value = None if a.default is None else encode_attribute(op.name, a, a.default)
    fields = {"i": "0", "f": "0.0", "s": "nullptr", "count": "0", "ints": "nullptr", "floats": "nullptr"}
    array: list[str] = []  # the default of a list: an array in front of the table
    match value:
        case list():
            array = [literal(float(v) if a.onnx_type == "FLOATS" else v) for v in value]
            if array:
                fields["floats" if a.onnx_type == "FLOATS" else "ints"] = f"default_{identifier(a.name)}"
            fields["count"] = str(len(array))
        case str():
            fields |= {"s": literal(value), "count": str(len(value.encode()))}
        case float():
            fields["f"] = literal(value)
        case int():
            fields["i"] = literal(value)
    present = "false" if value is None else "true"
    return {
        "name": literal(a.name),
        "kind": attribute_kind(a.onnx_type),
        "required": "true" if a.required and not a.optional else "false",
        "fallback": "{" + ", ".join([present, *fields.values(), "nullptr"]) + "}",
        "array": array,
        "array_type": "double" if a.onnx_type == "FLOATS" else "int64_t",
        "array_name": f"default_{identifier(a.name)}",
    }


def _count_entry(name: str) -> dict[str, Any]:
    return {"name": literal(name), "kind": "integer", "required": "true", "fallback": "{}", "array": []}


def shape_entry(op: Operator, rule: shape_rules.ShapeRule) -> dict[str, Any]:
    """How the templates write a shape rule."""
    entry: dict[str, Any] = {"like": None, "broadcast": (), "cases": (), "by_kernel": "false"}
    match rule:
        case shape_rules.LikeInput(index):
            entry["like"] = index
        case shape_rules.Broadcast(indices):
            entry["broadcast"] = indices
        case shape_rules.FromKernel():
            entry["by_kernel"] = "true"
        case shape_rules.ByRank(indices, cases):
            entry["cases"] = [_case_entry(indices, ranks, sizes) for ranks, sizes in cases.items()]
            entry["refusal"] = literal(_refusal(op, indices, cases))
    return entry


def _case_entry(indices: Sequence[int], ranks: Sequence[int | None], sizes: Sequence[str]) -> dict[str, Any]:
    formulas = [formula(s) for s in sizes]
    symbols = [
        {"name": f"d{n}_{d}", "input": n, "dim": d}
        for n, rank in zip(indices, ranks, strict=True)
        for d in range(rank or 0)
        if any(f"d{n}_{d}" in dims.names(s) for s in sizes)
    ]
    conditions = [
        f"inputs[{n}].rank == {-1 if rank is None else rank}" for n, rank in zip(indices, ranks, strict=True)
    ]
    return {"condition": " && ".join(conditions), "symbols": symbols, "sizes": formulas}


def _refusal(op: Operator, indices: Sequence[int], cases: Mapping[Any, Any]) -> str:
    names = [op.interface.inputs[n].name for n in indices]
    known = [
        ", ".join(
            f"{name} {'absent' if rank is None else rank}" for name, rank in zip(names, ranks, strict=True)
        )
        for ranks in cases
    ]
    return (
        "the shape of the output is not known for inputs of these numbers of dimensions; known are "
        f"{'; '.join(known)}. (A sample with these dimensions in the declaration teaches it)"
    )
