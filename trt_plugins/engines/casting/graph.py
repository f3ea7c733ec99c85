"""The nodes of a graph, one after the other, in a narrower type where they can be, with casts between the two sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....symbolic.nested_graphs import graphs_within
from ..record import KeptFloat32
from .decisions import Decision, Decisions, row_of
from .flags import HUGE, INTEGERS, SUM, tensor_flag
from .narrow_weights import NarrowPrecision, element_type, narrowed
from .rules import form
from .values import (
    DOUBLE,
    FLOAT,
    HALVES,
    NO_TENSOR,
    STANDARD,
    WIDE_INTEGERS,
    Findings,
    Scope,
    Stored,
    Value,
    copied,
    element_types,
    numbers_of,
    short_name,
    to_tensor,
)

if TYPE_CHECKING:
    import onnx

__all__ = ["Casting"]

_CONSTANTS = ("value", "value_float", "value_floats")
_INT64 = 7
_AS_IT_COMES = ("Shape", "Size", "Cast")  # they take every type, so that nothing needs to be cast for them


@dataclass(slots=True)
class Casting:
    """A cast of one model.

    Attributes:
        types: element type of each value that shape inference found, `NO_TENSOR` for sequences.
        names: all that the model has; new ones are added.
        renamed: narrow constants that take the name of the original, which nothing uses any more.
        narrowed_values: values that kept their name and are narrow now.
    """

    decisions: Decisions
    types: Mapping[str, int]
    names: set[str]
    renamed: dict[str, str] = field(default_factory=dict)
    narrowed_values: set[str] = field(default_factory=set)

    @property
    def precision(self) -> NarrowPrecision:
        return self.decisions.precision

    @property
    def findings(self) -> Findings:
        return self.decisions.findings

    # --- a graph -------------------------------------------------------------------------------------------------

    def graph(
        self, graph: onnx.GraphProto, parent: Scope | None = None, flags: Sequence[str] = ()
    ) -> list[str]:
        """Cast a graph in place, and the graphs inside of its nodes. Its inputs and outputs keep their types.

        `flags`: of its inputs. Returns those of its outputs.
        """
        scope = Scope(parent, graph)
        given = {value.name for value in graph.input}
        for k, value in enumerate(graph.input):
            flag = flags[k] if k < len(flags) else ""
            scope.values[value.name] = Value(value.name, self._declared(value), flag=flag)
        for tensor in graph.initializer:
            found = self._constant(tensor, graph)
            if tensor.name in given and found.stored is not None:
                found.stored.wide_used = (
                    True  # its input stays float32; a narrow form of it gets a name of its own
                )
            scope.values[tensor.name] = found
        for sparse in graph.sparse_initializer:
            scope.values[sparse.values.name] = Value(
                sparse.values.name,
                sparse.values.data_type,
                flag=tensor_flag(sparse.values, self.precision),
            )
        outputs = {value.name for value in graph.output}
        for node in graph.node:
            self._node(node, scope, outputs)
        found_flags = [self._flag_of(scope.find(value.name)) for value in graph.output]
        self._finish(graph, scope, top=parent is None)
        return found_flags

    def _flag_of(self, value: Value | None) -> str:
        if value is None:
            return ""
        return tensor_flag(value.stored.tensor, self.precision) if value.stored is not None else value.flag

    def _finish(self, graph: onnx.GraphProto, scope: Scope, *, top: bool) -> None:
        for output in graph.output:
            value = scope.find(output.name)
            if value is None or value.type != FLOAT:
                continue
            if value.narrow and top:
                scope.nodes.append(self._cast_node(value.name, output.name, FLOAT))
            elif value.stored is not None or value.narrow:
                output.name = self._as(value, False, scope)
        del graph.node[:]
        graph.node.extend(scope.nodes)
        stored = {id(v.stored.tensor): v.stored for v in scope.values.values() if v.stored is not None}
        kept = [t for t in graph.initializer if id(t) not in stored]
        new = []
        for entry in stored.values():
            original = entry.tensor.name
            if entry.narrow_name and not entry.wide_used:
                self.renamed[entry.narrow_name] = original
            if entry.narrow_name:
                narrow = entry.narrow(self.precision)
                new.append(to_tensor(narrow, entry.narrow_name if entry.wide_used else original))
            if entry.wide_used or not entry.narrow_name:
                new.append(copied(entry.tensor))
        kept = [copied(t) for t in kept]
        del graph.initializer[:]
        graph.initializer.extend(kept + new)

    # --- a node --------------------------------------------------------------------------------------------------

    def _node(self, node: onnx.NodeProto, scope: Scope, outputs: set[str]) -> None:
        if self._take_constant(node, scope):
            return
        given = [scope.find(name) if name else None for name in node.input]
        if self._fold(node, given, scope):
            return
        made = [self._type_of_output(node, k, given) for k in range(len(node.output))]
        subgraphs = list(graphs_within(node))
        floats = [k for k, v in enumerate(given) if v is not None and v.type == FLOAT]
        float_outputs = [k for k, t in enumerate(made) if t == FLOAT and node.output[k]]
        found = Decision()
        if (floats or float_outputs) and subgraphs:
            found = Decision("values that enter and leave its graphs stay float32; the nodes inside are cast")
        elif floats or float_outputs:
            found = self.decisions.decide(node, given, floats, float_outputs)
        elif not subgraphs:
            found = Decision(flag=self.decisions.flags.passed_on(node, given))
        if found.reason:
            self._keep(node, found.reason)
        for k, value in enumerate(given):
            if value is not None and value.type == FLOAT:
                narrow = value.narrow if node.op_type in _AS_IT_COMES else k in found.inputs
                node.input[k] = self._as(value, narrow, scope)
                if narrow and not value.narrow:
                    self._note(value)
            elif value is not None:
                node.input[k] = value.name
                if value.stored is not None:
                    value.stored.wide_used = True
        flags = self._inside(node, given, subgraphs, scope)
        if found.inputs or found.outputs:
            self.findings.narrow_nodes += 1
            self._adjust(node)
        for k, name in enumerate(node.output):
            if not name:
                continue
            narrow = k in found.outputs
            own = self._fresh(name) if narrow and name in outputs and scope.parent is None else name
            node.output[k] = own
            if narrow and own == name:
                self.narrowed_values.add(name)
            if narrow and name in self.decisions.digits.why:
                self.findings.digits.append(f"{name} of {node.domain}::{node.op_type}")
            flag = flags[k] if k < len(flags) else found.flag
            content = given[0].content if node.op_type == "Identity" and given and given[0] else None
            carried = made[k] in (None, FLOAT, DOUBLE, NO_TENSOR, *HALVES, *WIDE_INTEGERS)
            if made[k] in WIDE_INTEGERS and floats and node.op_type != "Cast":
                carried = False  # where it is, not what it is
            scope.values[name] = Value(own, made[k], narrow, flag if carried else "", content=content)
        scope.nodes.append(node)

    def _inside(
        self, node: onnx.NodeProto, given: list[Value | None], graphs: list[onnx.GraphProto], scope: Scope
    ) -> list[str]:
        """Cast the graphs of a node. Returns the flags of the node's outputs: what any of the graphs gives them."""
        entering = [self._flag_of(value) for value in given]
        if node.op_type == "Loop":
            entering = ["", *entering[1:]]  # the number of the turn for how many there are
        elif node.op_type != "Scan":
            entering = []
        leaving = [self.graph(graph, scope, entering) for graph in graphs]
        if node.op_type == "Loop":
            leaving = [flags[1:] for flags in leaving]
        most = max(map(len, leaving), default=0)
        order = ("", SUM, INTEGERS, HUGE)
        found = [[flags[k] for flags in leaving if k < len(flags)] for k in range(most)]
        return [max(f, key=order.index) for f in found]

    def _adjust(self, node: onnx.NodeProto) -> None:
        """Attributes that name a type."""
        from onnx import helper

        if node.op_type == "Cast" and node.domain in STANDARD:
            for attribute in node.attribute:
                if attribute.name == "to":
                    attribute.i = element_type(self.precision)
        elif node.op_type == "ConstantOfShape" and node.domain in STANDARD:
            import numpy as np
            from onnx import numpy_helper

            old = [a for a in node.attribute if a.name == "value"]
            value = numpy_helper.to_array(old[0].t) if old else np.zeros(1, np.float32)
            for attribute in old:
                node.attribute.remove(attribute)
            made = to_tensor(narrowed(np.asarray(value, np.float32).reshape(1), self.precision), "value")
            node.attribute.append(helper.make_attribute("value", made))

    def _note(self, value: Value) -> None:
        if value.flag == INTEGERS:
            self.findings.integers.append(value.name)
        elif value.flag == HUGE:
            self.findings.huge.append(value.name)

    def _keep(self, node: onnx.NodeProto, reason: str) -> None:
        operator = node.op_type if node.domain in STANDARD else f"{node.domain}::{node.op_type}"
        name = node.name or next((o for o in node.output if o), "")
        self.findings.kept.append(KeptFloat32(name, operator, reason))

    # --- values --------------------------------------------------------------------------------------------------

    def _take_constant(self, node: onnx.NodeProto, scope: Scope) -> bool:
        """A Constant of floats is a weight like any other."""
        import numpy as np
        from onnx import numpy_helper

        if node.op_type != "Constant" or node.domain not in STANDARD or len(node.attribute) != 1:
            return False
        attribute = node.attribute[0]
        if attribute.name in ("value_int", "value_ints"):
            whole = np.asarray(
                attribute.i if attribute.name == "value_int" else list(attribute.ints), np.int64
            )
            scope.values[node.output[0]] = Value(node.output[0], _INT64, content=whole)
            scope.nodes.append(node)
            return True
        if attribute.name == "value" and attribute.t.data_type != FLOAT:
            tensor = attribute.t
            scope.values[node.output[0]] = Value(
                node.output[0],
                tensor.data_type,
                flag=self._huge_flag(tensor),
                content=numbers_of(tensor),
            )
            scope.nodes.append(node)
            return True
        if attribute.name not in _CONSTANTS:
            return False
        if attribute.name == "value":
            tensor = copied(attribute.t)
        else:
            number = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            tensor = numpy_helper.from_array(np.asarray(number, np.float32))
        tensor.name = node.output[0]
        scope.values[node.output[0]] = self._constant(tensor, scope.graph)
        return True

    def _constant(self, tensor: onnx.TensorProto, graph: onnx.GraphProto) -> Value:
        if tensor.data_type != FLOAT:
            return Value(
                tensor.name, tensor.data_type, flag=self._huge_flag(tensor), content=numbers_of(tensor)
            )
        return Value(tensor.name, FLOAT, stored=Stored(tensor, graph))

    def _huge_flag(self, tensor: onnx.TensorProto) -> str:
        """Whole numbers are flagged where they are cast to float32, for whatever is in them."""
        found = tensor_flag(tensor, self.precision)
        return "" if found == INTEGERS and tensor.data_type in WIDE_INTEGERS else found

    def _fold(self, node: onnx.NodeProto, given: list[Value | None], scope: Scope) -> bool:
        """A constant of another type that is cast to float32 is a weight. CastLike becomes Cast."""
        import numpy as np
        from onnx import helper, numpy_helper

        if node.domain not in STANDARD or not given or given[0] is None:
            return False
        if (
            node.op_type == "CastLike"
            and len(given) == 2
            and given[1] is not None
            and (given[1].type or 0) > 0
        ):
            node.attribute.append(helper.make_attribute("to", given[1].type))
            node.op_type = "Cast"
            del node.input[1:]
            del given[1:]
        content = given[0].content
        if given[0].stored is not None:
            content = numpy_helper.to_array(given[0].stored.tensor)
        if node.op_type != "Cast" or content is None:
            return False
        target = next((a.i for a in node.attribute if a.name == "to"), 0)
        name = node.output[0]
        with np.errstate(all="ignore"):
            if target == FLOAT:
                tensor = numpy_helper.from_array(np.asarray(content.astype(np.float32)), name)
                scope.values[name] = self._constant(tensor, scope.graph)
                return True
            if target != DOUBLE:
                return False
            content = content.astype(np.float64)
        node.input[0] = self._as(given[0], False, scope) if given[0].stored is not None else given[0].name
        flag = tensor_flag(numpy_helper.from_array(content), self.precision)
        scope.values[name] = Value(name, DOUBLE, flag=flag, content=content)
        scope.nodes.append(node)
        return True

    def _as(self, value: Value, narrow: bool, scope: Scope) -> str:
        """The name of a value in the type that is wanted, with a cast where there is none yet."""
        if value.stored is not None:
            return self._stored(value.stored, narrow)
        if value.narrow == narrow:
            return value.name
        found = scope.cast((value.name, narrow))
        if found is None:
            kind = element_type(self.precision) if narrow else FLOAT
            found = self._fresh(value.name, "" if narrow else "float32")
            scope.nodes.append(self._cast_node(value.name, found, kind))
            scope.casts[value.name, narrow] = found
        return found

    def _stored(self, stored: Stored, narrow: bool) -> str:
        if not narrow:
            stored.wide_used = True
            return stored.tensor.name
        if not stored.narrow_name:
            found = stored.narrow(self.precision)
            assert not found.beyond
            stored.narrow_name = self._fresh(stored.tensor.name)
            if found.zeros:
                self.findings.zeros[stored.tensor.name] = found.zeros, found.count
            if found.rounded:
                self.findings.rounded[stored.tensor.name] = found.rounded, found.count
            if found.subnormal:
                self.findings.subnormal[stored.tensor.name] = found.subnormal, found.count
        return stored.narrow_name

    def _cast_node(self, source: str, target: str, kind: int) -> onnx.NodeProto:
        from onnx import helper

        return helper.make_node(
            "Cast", [source], [target], name=self._fresh(f"{target}/cast", "node"), to=kind
        )

    def _fresh(self, name: str, suffix: str = "") -> str:
        wanted = f"{name}_{suffix or short_name(self.precision)}"
        found, k = wanted, 1
        while found in self.names:
            k += 1
            found = f"{wanted}_{k}"
        self.names.add(found)
        return found

    def _declared(self, value: onnx.ValueInfoProto) -> int | None:
        if value.type.HasField("tensor_type"):
            return int(value.type.tensor_type.elem_type) or None
        if value.type.WhichOneof("value") is None:
            return self.types.get(value.name)
        return NO_TENSOR

    def _type_of_output(self, node: onnx.NodeProto, place: int, given: list[Value | None]) -> int | None:
        """As inferred; where inference stopped at a custom operator, from the schema or the plugin's dtypes."""
        name = node.output[place]
        if name in self.types:
            return self.types[name]
        if node.domain not in STANDARD:
            plugin = self.decisions.plugins.get((node.domain, node.op_type))
            row = None if plugin is None else row_of(plugin, node, given)
            if plugin is None or row is None or place >= len(plugin.outputs):
                return None
            return element_types().get(row[1].get(plugin.outputs[place], ""))
        if node.op_type == "Cast":
            return next((int(a.i) for a in node.attribute if a.name == "to"), None)
        known = form(node.op_type, self.decisions.opset, self.precision)
        if known is None:
            return None
        kind = known.of_output(place)
        if kind.startswith("tensor("):
            return element_types().get({"float": "float32", "double": "float64"}.get(kind[7:-1], kind[7:-1]))
        for k, value in enumerate(given):
            if value is not None and known.of_input(k) == kind:
                return value.type
        return None
