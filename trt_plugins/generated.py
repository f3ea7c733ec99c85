"""The C++ of a plugin library that the declarations decide: the table of plugins, and what each kernel's object shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..native.cpp_types import literal
from ..native.cuda_signature import cuda_entries, cuda_entries_symbol
from ..native.generated import shape_entry, table_entry
from ..native.rendering import symbol_of, template
from .carried import PluginShapes, plugin_fingerprint

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["kernel_source", "launcher_symbol", "plugin_table"]


_TEMPLATES = Path(__file__).resolve().parent / "templates"


def launcher_symbol(op: Operator) -> str:
    """The one C function that an operator's CUDA object shows, a name of its own in a library."""
    return symbol_of(op, "plugin")


def kernel_source(op: Operator, kernel_file: str) -> str:
    """The CUDA source of an operator: its kernels for each combination of dtypes, and how the plugin calls them."""
    launcher = template("launcher.cu.j2", _TEMPLATES)
    return cuda_entries(op, kernel_file) + launcher.render(
        entries=cuda_entries_symbol(op), symbol=launcher_symbol(op)
    )


def plugin_table(operators: Sequence[Operator], shapes: Mapping[str, PluginShapes]) -> str:
    """The source of the table; `shapes` by operator name, as `plugin_shapes` gives them."""
    return template("plugin_table.cpp.j2", _TEMPLATES).render(
        operators=[_plugin_entry(op, shapes[op.name]) for op in operators]
    )


def _plugin_entry(op: Operator, shapes: PluginShapes) -> dict[str, Any]:
    sizes = shapes.data_sizes
    numbers = [] if sizes is None else [sizes.numbers[o.name] for o in op.interface.outputs]
    usual = None if sizes is None else sizes.usual
    return {
        **table_entry(op, shapes.rules, ()),
        "fingerprint": literal(plugin_fingerprint(op, shapes)),
        "launcher": launcher_symbol(op),
        "shape_inputs": ["true" if i.name in op.shape_inputs else "false" for i in op.interface.inputs],
        "size_count": 0 if sizes is None else sizes.count,
        # an array has at least one element
        "size_numbers": [[-1 if n is None else n for n in dims] or [-1] for dims in numbers],
        "usual": [shape_entry(op, usual[o.name]) for o in op.interface.outputs] if usual else [],
    }
