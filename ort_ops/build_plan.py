"""What there is to compile for a library: everything that the declarations decide, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DeclarationError
from ..native.kernel_files import INCLUDE, find_kernel, kernel_places

if TYPE_CHECKING:
    from ..native.levels import Level
    from ..native.shape_rules import ShapeRule
    from ..symbolic.operator import Operator

__all__ = ["NATIVE_CPP", "ORT_CPP", "Plan", "Unit", "check_carried", "make_plan", "shape_notes"]

NATIVE_CPP = Path(__file__).resolve().parent.parent / "native" / "cpp"
ORT_CPP = Path(__file__).resolve().parent / "cpp"


@dataclass(frozen=True, slots=True)
class Unit:
    """One object: generated C++, the level's flags, the folders of its headers, the one symbol that it shows.

    For messages: the operator, and the signature that its kernel must have; empty for what is not a kernel.
    """

    name: str
    source: str
    flags: tuple[str, ...]
    include_dirs: tuple[str, ...]
    keep_symbol: str | None
    operator: str = ""
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A library. `operators`: their entries in the manifest; `kernels`: the kernel file of each.

    `absent`: files that would be taken for a kernel instead, were they there.
    """

    units: tuple[Unit, ...]
    operators: tuple[dict[str, Any], ...]
    kernels: tuple[str, ...]
    levels: tuple[str, ...]
    absent: tuple[str, ...]
    notes: tuple[str, ...]  # what the author of the operators should know

    @property
    def holds(self) -> bool:
        """Whether the kernels are still where they were found."""
        found = all(Path(kernel).is_file() for kernel in self.kernels)
        return found and not any(Path(path).is_file() for path in self.absent)

    @property
    def names(self) -> tuple[str, ...]:
        """ONNX names of the operators."""
        return tuple(f"{o['domain']}::{o['op_type']}" for o in self.operators)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(record: Any) -> Plan:
        """The plan in a record. Raises KeyError or TypeError where it is none."""
        units = [
            Unit(**u | {"flags": tuple(u["flags"]), "include_dirs": tuple(u["include_dirs"])})
            for u in record["units"]
        ]
        return Plan(
            tuple(units),
            tuple(record["operators"]),
            tuple(record["kernels"]),
            tuple(record["levels"]),
            tuple(record["absent"]),
            tuple(record["notes"]),
        )


def make_plan(operators: Sequence[Operator], levels: Sequence[Level]) -> Plan:
    """The plan for these operators. Raises UsageError and DeclarationError with what stands in the way."""
    from ..native.generated import operator_table
    from ..native.shape_rules import shape_rules
    from ..native.signature import check_compilable
    from .manifest_writer import describe

    for op in operators:
        check_compilable(op)
        check_carried(op)
    kernels = [find_kernel(op) for op in operators]
    rules = {op.name: shape_rules(op) for op in operators}
    units = [
        u for op, k in zip(operators, kernels, strict=True) for u in _kernels(op, k, rules[op.name], levels)
    ]
    folders = (str(INCLUDE), str(NATIVE_CPP), str(ORT_CPP))
    table = operator_table(operators, rules, levels)
    for name, source in (
        ("operator table", table),
        ("ONNX Runtime adapter", '#include "cpu_target.h"\n#include "ort_adapter.cpp"\n'),
        ("C interface", '#include "c_interface.cpp"\n'),
    ):
        units.append(Unit(name, source, (), folders, None))
    return Plan(
        tuple(units),
        tuple(describe(op) for op in operators),
        tuple(map(str, kernels)),
        tuple(level.name for level in levels),
        tuple(
            str(place)
            for op, kernel in zip(operators, kernels, strict=True)
            for place in kernel_places(op, kernel.suffix)
            if not place.is_file()
        ),
        tuple(note for op in operators for note in shape_notes(op, rules[op.name])),
    )


def shape_notes(op: Operator, rules: dict[str, ShapeRule]) -> list[str]:
    """What the samples leave open of the shapes of the outputs."""
    from ..native.observed_shapes import untold_attributes
    from ..native.shape_rules import FromKernel

    if all(isinstance(rule, FromKernel) for rule in rules.values()):
        return []
    return [
        f"{op.name}: every sample has the same `{name}`, so whether other texts give outputs of other shapes was not "
        "seen: let a sample have another one"
        for name in untold_attributes(op)
    ]


def _kernels(op: Operator, kernel: Path, rules: dict[str, ShapeRule], levels: Sequence[Level]) -> list[Unit]:
    from ..native.generated import entries_symbol, kernel_entries
    from ..native.shape_rules import FromKernel
    from ..native.signature import signature

    by_kernel = [name for name, rule in rules.items() if isinstance(rule, FromKernel)]
    return [
        Unit(
            f"{op.name} ({level.name})",
            kernel_entries(op, kernel.name, level.name, by_kernel),
            level.flags,
            (str(INCLUDE), str(kernel.parent)),
            entries_symbol(op, level.name),
            op.name,
            signature(op, by_kernel),
        )
        for level in levels
    ]


def check_carried(op: Operator) -> None:
    """Raise DeclarationError for what no operator of ONNX Runtime can be."""
    for a in op.interface.attributes:
        if a.onnx_type == "STRINGS":
            raise DeclarationError(
                f"{op.name}: `{a.name}` is a list of texts, which ONNX Runtime's kernels cannot read; "
                "use one text with a separator"
            )
    kinds = {op.types.of_input[i.name] for i in op.interface.variadics}
    if len(kinds) > 1:
        names = ", ".join(i.name for i in op.interface.variadics)
        raise DeclarationError(
            f"{op.name}: its lists of tensors ({names}) have dtypes of their own; ONNX sees one list, of one dtype"
        )
