"""Which nodes of a model can be narrower, and why the others cannot: one decision for each node, in the order of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .digits import Digits
from .flags import HUGE, INTEGERS, SUM, Flags, tensor_flag
from .narrow_weights import NarrowPrecision, narrowed
from .normalisers import Normalisers
from .plugin_dtypes import PluginDtypes
from .rules import (
    AS_THEY_ARE,
    CONTRACTS,
    DIVISORS,
    FLAGGED_SUMS,
    SENSITIVE,
    adds_up,
    form,
)
from .values import (
    DOUBLE,
    FLOAT,
    HALVES,
    NO_TENSOR,
    STANDARD,
    Findings,
    NarrowCalls,
    Value,
    element_types,
    short_name,
)

if TYPE_CHECKING:
    import onnx

__all__ = ["Decision", "Decisions", "row_of"]

_WHY = {
    INTEGERS: "computed from sizes, positions or indices, which only float32 holds exactly",
    SUM: "a step of a sum, or next to numbers too small, that stays float32",
    HUGE: "its values come from a constant beyond the range",
}
_NO_LIMIT = 3.4e38  # a Clip to the largest float32, or nearly, is to no limit


@dataclass(frozen=True, slots=True)
class Decision:
    """Of one node.

    Attributes:
        reason: why it stays float32; empty where it does not, or has nothing to be cast.
        flag: of what it makes: INTEGERS, HUGE, or a sum; what is computed from it at once stays float32 too.
        inputs, outputs: places that are narrow.
    """

    reason: str = ""
    flag: str = ""
    inputs: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()


@dataclass(slots=True)
class Decisions:
    """Decides for one model.

    Attributes:
        keep: names of nodes and operators that stay float32; those found are added to `kept_by_name`.
        optional: by function, the inputs that some call leaves out; None: its body cannot be cast.
        digits: values that are to be computed in float32, for what takes them.
        normalisers: sums of products that are divided, or divided by.
    """

    precision: NarrowPrecision
    opset: int
    flags: Flags
    plugins: Mapping[tuple[str, str], PluginDtypes]
    keep: frozenset[str]
    optional: Mapping[tuple[str, str], frozenset[int] | None]
    findings: Findings
    digits: Digits = field(default_factory=Digits)
    normalisers: Normalisers = field(default_factory=Normalisers)
    kept_by_name: set[str] = field(default_factory=set)

    def decide(
        self,
        node: onnx.NodeProto,
        given: list[Value | None],
        floats: list[int],
        float_outputs: list[int],
    ) -> Decision:
        """Why it stays float32 (empty: it does not), the flag of what it makes, and the inputs and outputs that get narrow."""
        operator = node.op_type if node.domain in STANDARD else f"{node.domain}::{node.op_type}"
        if named := self.keep & {node.name, operator, node.op_type}:
            self.kept_by_name |= named
            return Decision("you asked for it", self.flags.made_by(node, given, floats))
        if node.domain not in STANDARD:
            return self._custom(node, given, floats, float_outputs)
        if node.op_type == "Cast":
            return self._cast(node, given)
        flag = self.flags.made_by(node, given, floats)
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            self.findings.quantized = True
        if node.op_type in SENSITIVE:
            return Decision(SENSITIVE[node.op_type], flag or (SUM if node.op_type in FLAGGED_SUMS else ""))
        if adds_up(node):
            return Decision(SENSITIVE["ReduceSum"], flag or SUM)
        if why := self.normalisers.reason(node):
            return Decision(why, flag or (SUM if self.normalisers.is_sum(node) else ""))
        if node.op_type == "Range":
            return Decision(_WHY[INTEGERS], flag or INTEGERS)
        if why := self.flags.reaching(node, given, floats):
            if why == HUGE and node.op_type in CONTRACTS and not flag:
                self.findings.huge += [name for name in node.output if name]
            places = self.flags.places(node, given, floats)
            unfit = self._unfit([given[k] for k in places]) if why == HUGE else None
            return Decision(unfit[0] if unfit else _WHY[why], flag)
        if node.op_type == "Constant":  # a sparse one: others are weights
            return Decision("a sparse constant", self._of_sparse(node))
        if found := self._attributes(node, flag):
            return found
        if why := self.digits.reason(node):
            return Decision(why, flag)
        known = form(node.op_type, self.opset, self.precision)
        if known is None:
            return Decision(f"opset {self.opset} has no such operator that is known here")
        return self._standard(node, given, floats, float_outputs)

    def _standard(
        self, node: onnx.NodeProto, given: list[Value | None], floats: list[int], float_outputs: list[int]
    ) -> Decision:
        known = form(node.op_type, self.opset, self.precision)
        assert known is not None
        untouched = AS_THEY_ARE.get(node.op_type, frozenset())
        unknown = [v for v in given if v is not None and v.type is None]
        if unknown:
            return Decision(f"the type of its input {unknown[0].name} is not known")
        if any(known.of_output(k) in known.sequences for k in range(len(node.output))) or any(
            v is not None and v.type == NO_TENSOR for v in given
        ):
            return Decision("it takes or makes a sequence or an optional, which is not cast")
        bound = {known.of_input(k) for k in floats if k not in untouched}
        narrow = bound & known.narrow
        if node.op_type == "ConstantOfShape":
            return self._filled(node, bool(known.narrow), known.since)
        free = {known.of_output(k) for k in float_outputs} - bound - {"tensor(float)"}
        if free:
            return Decision("an attribute says that it makes float32")
        if not narrow:
            if known.since is not None:
                self.findings.newer[node.op_type] = known.since
            name = "float16" if self.precision == "fp16" else "bfloat16"
            later = f"; {known.since} does" if known.since is not None else ""
            return Decision(f"{node.op_type} of opset {self.opset} takes no {name}{later}")
        inputs = frozenset(k for k in floats if known.of_input(k) in narrow and k not in untouched)
        if reason := self._unfit([given[k] for k in sorted(inputs)]):
            # beyond the range and not passed on: a bound of Clip that makes nothing that large
            return Decision(reason[0], "" if reason[1] == HUGE else reason[1])
        if zero := self._divides_by_zero(node, given):
            return Decision(zero)
        outputs = frozenset(k for k in float_outputs if known.of_output(k) in narrow)
        return Decision(inputs=inputs, outputs=outputs)

    def _custom(
        self, node: onnx.NodeProto, given: list[Value | None], floats: list[int], float_outputs: list[int]
    ) -> Decision:
        key = (node.domain, node.op_type)
        plugin = self.plugins.get(key)
        if plugin is None:
            return Decision(
                "a custom operator of which no plugin library was given: its dtypes are not known"
            )
        if plugin.data_sizes:
            return Decision("the data decides how many values come out: rounded, it may select others")
        if any(self.flags.at(node, k, given[k]) == HUGE for k in floats):
            return Decision(_WHY[HUGE])
        found = _narrow_row(plugin, node, given, self.precision)
        if found is None:
            name = "float16" if self.precision == "fp16" else "bfloat16"
            return Decision(f"its plugin takes no {name} here")
        inputs, row = found
        narrow_inputs = frozenset(inputs) & frozenset(floats)
        left_out = self.optional.get(key, frozenset())
        if left_out is None or narrow_inputs & left_out:
            return Decision("its body in the file cannot be cast")
        if reason := self._unfit([given[k] for k in sorted(narrow_inputs)]):
            return Decision(*reason)
        short = short_name(self.precision)
        made = frozenset(
            k for k in float_outputs if k < len(plugin.outputs) and row[1].get(plugin.outputs[k]) == short
        )
        calls = self.findings.bodies.setdefault(key, NarrowCalls())
        calls.inputs |= narrow_inputs
        calls.outputs |= dict.fromkeys(made, min(narrow_inputs))
        return Decision(inputs=narrow_inputs, outputs=made)

    def _cast(self, node: onnx.NodeProto, given: list[Value | None]) -> Decision:
        target = next((a.i for a in node.attribute if a.name == "to"), 0)
        source = given[0]
        assert source is not None
        flag = self.flags.cast(node, source)
        if target != FLOAT:  # what it makes keeps its type
            return Decision(flag=flag)
        if flag:
            return Decision(_WHY[flag], flag)
        if source.type is None:
            return Decision("the type of its input is not known")
        if source.type == DOUBLE:
            return Decision("the model computes it in float64, for its digits", SUM)
        if HALVES.get(source.type, short_name(self.precision)) != short_name(self.precision):
            more = "a larger range than float16" if self.precision == "fp16" else "more digits than bfloat16"
            return Decision(f"it widens {HALVES[source.type]}, which has {more}")
        if why := self.digits.reason(node):
            return Decision(why)
        return Decision(inputs=frozenset({0} if source.type == FLOAT else ()), outputs=frozenset({0}))

    def _filled(self, node: onnx.NodeProto, can: bool, since: int | None) -> Decision:
        import numpy as np
        from onnx import numpy_helper

        if not can:
            if since is not None:
                self.findings.newer["ConstantOfShape"] = since
            return Decision(f"ConstantOfShape of opset {self.opset} makes no such type")
        value = next(
            (numpy_helper.to_array(a.t) for a in node.attribute if a.name == "value"), np.zeros(1, np.float32)
        )
        found = narrowed(np.asarray(value, np.float32), self.precision)
        if found.beyond or found.all_zero:
            return Decision(
                f"its value {found.largest:g} is outside the range", HUGE if found.beyond else SUM
            )
        if found.whole:
            return Decision(f"its value {found.largest:g} is a whole number that would be rounded", INTEGERS)
        return Decision(outputs=frozenset({0}))

    def _attributes(self, node: onnx.NodeProto, flag: str) -> Decision | None:
        """Why numbers in the node itself cannot be converted."""
        import numpy as np

        for attribute in node.attribute:
            numbers = np.asarray(
                [attribute.f, *attribute.floats], np.float32
            )  # f is 0 where it is not the one
            found = narrowed(numbers, self.precision)
            name = attribute.name
            if node.op_type == "Clip" and name in ("min", "max") and found.beyond:
                above = attribute.f > 0
                if abs(attribute.f) >= _NO_LIMIT and above == (name == "max"):
                    continue
                flag = HUGE if above == (name == "min") else flag
            elif found.beyond:
                flag = HUGE
            one = narrowed(np.asarray([attribute.f], np.float32), self.precision).all_one
            if found.beyond or found.all_zero or one:
                what = "is beyond the range" if found.beyond else f"would become {'1' if one else 'zero'}"
                number = f"{found.largest:.9g}" if one else f"{found.largest:g}"
                return Decision(
                    f"its attribute {name} ({number}) {what}", flag if found.beyond else flag or SUM
                )
        return None

    def _divides_by_zero(self, node: onnx.NodeProto, given: list[Value | None]) -> str:
        for place in DIVISORS.get(node.op_type, ()):
            value = given[place] if place < len(given) else None
            if value is not None and value.stored is not None and value.stored.narrow(self.precision).zeros:
                return f"values of its constant {value.name}, which it divides by, would become zero"
        return ""

    def _of_sparse(self, node: onnx.NodeProto) -> str:
        return next(
            (
                tensor_flag(a.sparse_tensor.values, self.precision)
                for a in node.attribute
                if a.HasField("sparse_tensor")
            ),
            "",
        )

    def _unfit(self, values: list[Value | None]) -> tuple[str, str] | None:
        """Why constants cannot be converted, and the flag of what is computed with them."""
        for value in values:
            if value is None or value.stored is None:
                continue
            found = value.stored.narrow(self.precision)
            limit = "65,504" if self.precision == "fp16" else "3.39e38"
            if found.beyond:
                some = f"{found.beyond} of {found.count} values" if found.count > 1 else "its value"
                return (
                    f"its constant {value.name} is beyond the range: {some} up to {found.largest:g}, the limit is {limit}",
                    HUGE,
                )
            if found.all_zero:
                return f"its constant {value.name} ({found.largest:g}) would become zero", SUM
            if found.all_one:
                return f"its constant {value.name} ({found.largest:.9g}) would become 1", SUM
        return None


def row_of(
    plugin: PluginDtypes, node: onnx.NodeProto, given: list[Value | None]
) -> tuple[Mapping[str, str], Mapping[str, str]] | None:
    """The row that takes the node's inputs as they are."""
    names = {v: k for k, v in element_types().items()}
    for row in plugin.rows:
        if all(
            v is None or v.type is None or row[0].get(plugin.name_of(k, len(given))) == names.get(v.type)
            for k, v in enumerate(given)
        ):
            return row
    return None


def _narrow_row(
    plugin: PluginDtypes, node: onnx.NodeProto, given: list[Value | None], precision: NarrowPrecision
) -> tuple[list[int], tuple[Mapping[str, str], Mapping[str, str]]] | None:
    """The row with most of the node's float32 inputs in the narrow type and everything else as it is."""
    names = {v: k for k, v in element_types().items()}
    short = short_name(precision)
    best: tuple[list[int], tuple[Mapping[str, str], Mapping[str, str]]] | None = None
    for row in plugin.rows:
        narrow = []
        for k, value in enumerate(given):
            wanted = row[0].get(plugin.name_of(k, len(given)))
            if value is None:
                continue
            if value.type is None or wanted is None:
                break
            if wanted == short and value.type == FLOAT:
                narrow.append(k)
            elif wanted != names.get(value.type):
                break
        else:
            if narrow and (best is None or len(narrow) > len(best[0])):
                best = narrow, row
    return best
