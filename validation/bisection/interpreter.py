"""A traced graph run operator by operator, each value kept: in the deployed dtype, in float64, or from changed values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..backends.torch import cast, described
from .reference import Fragment, Unmappable
from .traced_graph import TracedGraph

if TYPE_CHECKING:
    import torch

__all__ = ["Interpreter"]

_KEY = "metadata_props_values"  # of torch's placeholder for an ONNX node: the key of the call
_SKIPPED = ("aten::_assert", "aten::sym_constrain")


class Interpreter:
    """The graph's nodes, and the value of each on one sample.

    Attributes:
        nodes: by name.
        values: by node, in the deployed dtype: tensors, lists of them, numbers.
        results: the nodes (or constants) that the model returns, in order.
        target: placeholder's name to parameter, buffer or constant.
    """

    def __init__(self, traced: TracedGraph, inputs: Iterable[Any]) -> None:
        program = traced.program
        self._calls = traced.calls
        self._order = list(program.graph.nodes)
        self._position = {node: k for k, node in enumerate(self._order)}
        self._module = program.graph_module
        self.nodes = {node.name: node for node in self._order}
        self.target: dict[str, str] = {}
        self.values = self._bound(program, list(inputs))
        for node in self._order:
            if node.op != "output" and node not in self.values:
                self.values[node] = self._call(node, self.values)
        self.results = _results(program)

    def _bound(self, program: Any, inputs: list[Any]) -> dict[Any, Any]:
        from torch.export.graph_signature import InputKind

        values = {}
        given = iter(inputs)
        for spec in program.graph_signature.input_specs:
            node = self.nodes[spec.arg.name]
            if spec.kind is InputKind.USER_INPUT:
                values[node] = next(given)
            elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                held = program.state_dict if spec.target in program.state_dict else program.constants
                values[node] = held[spec.target].detach()
                self.target[node.name] = spec.target
            else:
                raise Unmappable(f"the traced original takes {spec.kind.name.lower()}, which is no tensor")
        return values

    def returned(self, values: Mapping[Any, Any] | None = None) -> list[Any]:
        """What the model returns, from the values of its nodes."""
        import torch

        values = self.values if values is None else values
        found = [values.get(r, self.values[r]) if isinstance(r, torch.fx.Node) else r for r in self.results]
        return [value for value in found if value is not None]

    def is_tensor(self, node: Any) -> bool:
        """Whether the value of a node, or of what is returned in its place, is a real tensor."""
        import torch

        value = self.values.get(node) if isinstance(node, torch.fx.Node) else None
        return isinstance(value, torch.Tensor) and not value.is_complex()

    @cached_property
    def deployed(self) -> torch.dtype:
        """The narrowest floating dtype of 16 bits or more among inputs, parameters and buffers."""
        import torch

        floats = [
            self.values[node].dtype
            for node in self._order
            if node.op == "placeholder"
            and isinstance(self.values[node], torch.Tensor)
            and self.values[node].is_floating_point()
            and self.values[node].dtype.itemsize > 1
        ]
        return min(floats, key=lambda d: d.itemsize, default=torch.float32)

    def behind_inputs(self) -> set[Any]:
        """The nodes whose values depend on an input of the model."""
        found: set[Any] = set()
        for node in self._order:
            is_input = node.op == "placeholder" and node.name not in self.target
            if is_input or any(source in found for source in node.all_input_nodes):
                found.add(node)
        return found

    def needs(self, node: Any, known: Collection[Any] = ()) -> set[Any]:
        """The nodes that `node` is computed from, itself included, those `known` not looked behind."""
        found: set[Any] = set()
        todo = [node]
        while todo:
            now = todo.pop()
            if now not in found:
                found.add(now)
                if now is node or now not in known:
                    todo += now.all_input_nodes
        return found

    def wide(self, wanted: Iterable[Any], known: Collection[Any]) -> dict[Any, Any]:
        """`wanted` in float64, from the values of `known` in the deployed dtype; None where it does not run so.

        Each is computed from `known`, also where another of the `wanted` is among them.
        """
        memo: dict[Any, Any] = {}
        found = {}
        for node in sorted(wanted, key=self._position.__getitem__):
            try:
                found[node] = self._wide(node, known, memo)
            except Exception:  # noqa: PERF203 - kernels, of C++ and Python, refuse a dtype in many ways
                found[node] = None
        return found

    def _wide(self, wanted: Any, known: Collection[Any], memo: dict[Any, Any]) -> Any:
        import torch
        from torch.utils import _pytree

        def widened(value: Any) -> Any:
            return _pytree.tree_map(lambda v: cast(v, torch.float64), value)

        def computed(node: Any) -> Any:
            if node.op != "call_function" or not _has_tensor(self.values[node]):
                return widened(self.values[node])
            return widened(self._call(node, memo, widen=True))

        for node in sorted(self.needs(wanted, known), key=self._position.__getitem__):
            if node is not wanted and node not in memo:
                memo[node] = widened(self.values[node]) if node in known else computed(node)
        if wanted in known:
            return computed(wanted)
        if wanted not in memo:
            memo[wanted] = computed(wanted)
        return memo[wanted]

    def carried_on(self, changed: Mapping[Any, Any]) -> list[Any]:
        """What the model returns with other values at some nodes; every other value as it was."""
        values = dict(changed)
        for node in self._order:
            if node.op != "call_function" or node in values:
                continue
            if any(source in values for source in node.all_input_nodes):
                try:
                    values[node] = self._call(node, {**_of(node, self.values), **_of(node, values)})
                except Exception as error:
                    raise Unmappable(f"the original does not run on it: {described(error)}") from error
        return self.returned(values)

    def fragment(self, node: Any, known: Collection[Any]) -> Fragment | None:
        """What computes `node` from the values of `known`, as a module; None where it has a declared operator in it."""
        import torch

        needed = sorted(self.needs(node, known), key=self._position.__getitem__)
        module, graph = torch.nn.Module(), torch.fx.Graph()
        made: dict[Any, Any] = {}
        inputs: list[Any] = []
        for n in needed:
            value = self.values[n]
            inner = n is node or n not in known
            if n.op == "call_function" and inner:
                if _KEY in n.kwargs:
                    return None
                made[n] = graph.node_copy(n, made.__getitem__)
            elif not isinstance(value, torch.Tensor):
                made[n] = value
            elif n.name in self.target or n.op == "get_attr":
                held = f"held_{len(made)}"
                module.register_buffer(held, value)
                made[n] = graph.get_attr(held)
            else:
                made[n] = graph.placeholder(f"given_{len(inputs)}")
                inputs.append(value)
        if not isinstance(made[node], torch.fx.Node):
            return None
        graph.output(made[node])
        return Fragment(torch.fx.GraphModule(module, graph), tuple(inputs))

    def declared(self, node: Any, known: Collection[Any]) -> tuple[str, str, Mapping[str, Any]] | None:
        """ONNX domain, type and attributes of the declared operator between `known` and `node`, where there is one."""
        calls = [n for n in self.needs(node, known) if _KEY in n.kwargs and (n is node or n not in known)]
        if len(calls) != 1:
            return None
        op, attributes = self._calls[calls[0].kwargs[_KEY][0]]
        return op.domain, op.op_type, attributes

    def _call(self, node: Any, values: Mapping[Any, Any], widen: bool = False) -> Any:
        import torch

        if node.op == "get_attr":
            found: Any = self._module
            for part in str(node.target).split("."):
                found = getattr(found, part)
            return found
        if node.op != "call_function":
            raise Unmappable(f"the traced original has a node of kind {node.op}")
        target: Any = node.target
        if isinstance(target, torch._ops.OpOverload) and str(target.name()).startswith(_SKIPPED):
            return None
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
        if _KEY in node.kwargs:
            return self._declared(node, args[0])
        if widen:
            from torch.utils import _pytree

            args, kwargs = _pytree.tree_map(self._wide_dtype, (args, kwargs))
        return target(*args, **kwargs)

    def _declared(self, node: Any, flat: list[Any]) -> list[Any]:
        """The results of a declared operator, in the order of its ONNX node."""
        import torch

        op, attributes = self._calls[node.kwargs[_KEY][0]]
        tensors = op.interface.unflatten(flat, attributes)
        for i in op.interface.inputs:
            if i.mutated:
                tensors[i.name] = tensors[i.name].clone()
        args, kwargs = op.interface.call_arguments(tensors, attributes)
        result = op.overload(*args, **kwargs)
        fresh: list[Any] = []
        returns = result if isinstance(result, tuple) else [result]
        for one, declared in zip(returns, op.overload._schema.returns, strict=False):
            if declared.alias_info is None:
                fresh += one if isinstance(one, list | tuple) else [one]
        mutated = [tensors[i.name] for i in op.interface.inputs if i.mutated]
        return [t for t in (*fresh, *mutated) if isinstance(t, torch.Tensor)]

    def _wide_dtype(self, value: Any) -> Any:
        """float64 for a dtype written into the model; narrower than the deployed one, the rounding is meant."""
        import torch

        if isinstance(value, torch.dtype) and value.is_floating_point:
            return torch.float64 if value.itemsize >= self.deployed.itemsize else value
        return value


def _of(node: Any, values: Mapping[Any, Any]) -> dict[Any, Any]:
    return {source: values[source] for source in node.all_input_nodes if source in values}


def _has_tensor(value: Any) -> bool:
    import torch

    if isinstance(value, list | tuple):
        return any(_has_tensor(v) for v in value)
    return isinstance(value, torch.Tensor)


def _results(program: Any) -> list[Any]:
    """Nodes or constants, in the order in which the model returns them; writes to buffers left out."""
    from torch.export.graph_signature import OutputKind

    returned = program.graph.output_node().args[0]
    specs = program.graph_signature.output_specs
    return [value for value, spec in zip(returned, specs, strict=True) if spec.kind is OutputKind.USER_OUTPUT]
