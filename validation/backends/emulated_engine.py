"""A model whose custom operators are run by their CUDA kernels on the CPU, and everything else by ONNX Runtime.

The kernels run in a process of the emulation's own, with its own time limit: what they do wrong is an error here.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from ...errors import DeclarationError, DeployOpsError, NotCheckedError, UsageError
from ...ort_ops.arrays import Slot, to_array
from ...ort_ops.engine import Engine, EngineError
from ...symbolic import registry
from ...symbolic.nested_graphs import graphs_within, nested_nodes
from .segments import Segment, cut
from .torch import described
from .torch_call import to_tensor

if TYPE_CHECKING:
    import onnx

    from ...symbolic.operator import Operator

__all__ = ["EmulatedEngine", "declared_nodes", "open_engine"]

Array = npt.NDArray[Any]
_MOST_BYTES = 2**31 - 1  # of one message


def open_engine(path: str, threads: int | None) -> EmulatedEngine:
    """For `serving`."""
    return EmulatedEngine(Path(path), threads)


def declared_nodes(model: onnx.ModelProto) -> list[Operator]:
    """The declared operators among the model's nodes, those inside of bodies and subgraphs included."""
    registry.load_builtin()
    registry.load_entry_points()
    found: dict[str, Operator] = {}
    for node in nested_nodes([*model.graph.node, *(n for f in model.functions for n in f.node)]):
        op = registry.by_onnx_name(node.domain, node.op_type) if node.domain else None
        if op is not None:
            found[op.name] = op
    return list(found.values())


class EmulatedEngine:
    """`serving.Opened` around the pieces of a model."""

    def __init__(self, path: Path, threads: int | None) -> None:
        import onnx
        import onnx.inliner
        import onnxruntime

        from ...trt_plugins.emulation.library import emulated_library

        start = time.perf_counter()
        self._threads, self._name = threads, path.name
        model = onnx.load(str(path), load_external_data=False)
        operators = declared_nodes(model)
        self._library = emulated_library(operators)
        self.notes: list[str] = []
        usable = {(op.domain, op.op_type): op for op in self._usable(operators)}
        # what has no kernel for CUDA runs by its body
        self._model = onnx.inliner.inline_selected_functions(model, list(usable), exclude=True)
        onnx.load_external_data_for_model(self._model, str(path.parent))
        self._operators = usable
        graph = self._model.graph
        self._segments = cut(graph, lambda node: (node.domain, node.op_type) in usable)
        if not any(s.alone for s in self._segments):
            raise NotCheckedError(
                "the custom operators of this model are all in subgraphs, where none is emulated yet"
            )
        self._refuse_subgraphs()
        self._initializers = {t.name: t for t in graph.initializer}
        self._folder = tempfile.TemporaryDirectory(prefix="deployops-segments-")
        self._engines: dict[int, Engine] = {}
        self._constants: dict[str, Array] = {}
        self.load_ms = (time.perf_counter() - start) * 1e3
        self.inputs = [_slot(i) for i in graph.input if i.name not in self._initializers]
        self.outputs = [_slot(o) for o in graph.output]
        emulated = sorted(
            {f"{s.alone.domain}::{s.alone.op_type}" for s in self._segments if s.alone is not None}
        )
        self.versions = {"onnxruntime": onnxruntime.__version__, "emulated": ", ".join(emulated)}
        self.pools = {} if threads is None else {"onnxruntime intra-op": threads}

    def run(self, arrays: Mapping[str, Array], call: Any = None) -> list[Array]:
        """Run the pieces in their order."""
        values = dict(arrays)
        for index, segment in enumerate(self._segments):
            if segment.alone is not None:
                values |= self._run_kernel(segment.alone, values)
            else:
                engine = self._engine(index, segment, values)
                results = engine.run({n: values[n] for n in segment.inputs})
                values |= dict(zip((n for n, _ in engine.outputs), results, strict=True))
        return [values[n] if n in values else self._constant(n) for n, _ in self.outputs]

    def time(self) -> float:
        raise NotCheckedError("the time of an emulated kernel says nothing of a GPU's")

    def profile(self, runs: int) -> str:
        raise NotCheckedError("the time of an emulated kernel says nothing of a GPU's")

    def close(self) -> None:
        self._library.close()
        self._engines.clear()
        self._folder.cleanup()

    def _usable(self, operators: Sequence[Operator]) -> list[Operator]:
        failed = self._library.built.failed
        for error in failed.values():
            if not isinstance(
                error, (UsageError, DeclarationError)
            ):  # it has a kernel, which does not compile
                raise EngineError(str(error))
        usable = [op for op in operators if op.name not in failed]
        if not usable:
            # the whole message on one line: where its first line ends in a colon, the reason is in the next ones
            reasons = "; ".join(" ".join(str(e).split())[:300] for e in failed.values())
            raise NotCheckedError(reasons or "the model has no declared operator")
        if failed:
            self.notes.append(
                f"run by their bodies, as they have no CUDA kernel: {', '.join(sorted(failed))}"
            )
        return usable

    def _refuse_subgraphs(self) -> None:
        # a subgraph runs inside of ONNX Runtime, which has no kernel for what was not inlined there
        inner = {
            f"{n.domain}::{n.op_type}"
            for s in self._segments
            for node in s.nodes
            for g in graphs_within(node)
            for n in nested_nodes(g.node)
            if (n.domain, n.op_type) in self._operators
        }
        if inner:
            raise NotCheckedError(
                f"{', '.join(sorted(inner))} in a subgraph (If, Loop, Scan) cannot be emulated yet"
            )

    def _run_kernel(self, node: onnx.NodeProto, values: Mapping[str, Array]) -> dict[str, Array]:
        import onnx

        op = self._operators[node.domain, node.op_type]
        flat = [
            None if not n else to_tensor(values[n] if n in values else self._constant(n)) for n in node.input
        ]
        attributes = {a.name: _plain(onnx.helper.get_attribute_value(a)) for a in node.attribute}
        args, kwargs = op.interface.call_arguments(op.interface.unflatten(flat, attributes), attributes)
        try:
            results = self._library.run(op, args, kwargs)
        except NotCheckedError:
            raise
        except DeployOpsError as error:  # the kernel refused the inputs, or did something wrong
            raise EngineError(str(error)) from error
        except Exception as error:  # the fake kernel, which tells the shapes, raises what it likes
            raise EngineError(f"{op.onnx_name} refuses its inputs: {described(error)}") from error
        return {name: to_array(t) for name, t in zip(node.output, results, strict=False) if name}

    def _engine(self, index: int, segment: Segment, values: Mapping[str, Array]) -> Engine:
        """A session for a segment, made at its first run: then the types of its inputs are known."""
        if index not in self._engines:
            import onnx
            from onnx import helper

            inputs = [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(values[n].dtype), None)
                for n in segment.inputs
            ]
            outputs = [helper.make_empty_tensor_value_info(n) for n in segment.outputs]
            stored = [self._initializers[n] for n in segment.initializers]
            graph = helper.make_graph(segment.nodes, f"segment {index}", inputs, outputs, stored)
            model = helper.make_model(
                graph, opset_imports=self._model.opset_import, ir_version=self._model.ir_version
            )
            if model.ByteSize() > _MOST_BYTES:
                raise NotCheckedError(
                    "a part of this model is above 2 GB, which the emulation does not split yet"
                )
            path = Path(self._folder.name) / f"{index}.onnx"
            onnx.save(model, str(path))
            try:
                self._engines[index] = Engine(path, threads=self._threads, optimize=True)
            except DeployOpsError as error:  # of the user's file it must speak, not of a file of ours
                where = f"{self._name} ({_first_and_last(segment)})"
                raise type(error)(str(error).replace(path.name, where)) from error
            finally:
                path.unlink()
        return self._engines[index]

    def _constant(self, name: str) -> Array:
        import numpy as np
        from onnx import numpy_helper

        if name not in self._constants:  # copied: torch wants memory that it may write to
            self._constants[name] = np.array(numpy_helper.to_array(self._initializers[name]))
        return self._constants[name]


def _first_and_last(segment: Segment) -> str:
    first, last = segment.nodes[0], segment.nodes[-1]
    names = [f"{n.op_type} `{n.name or next(iter(n.output), '')}`" for n in (first, last)]
    return f"its part from {names[0]} to {names[1]}" if first is not last else names[0]


def _slot(value: onnx.ValueInfoProto) -> Slot:
    import onnx

    element = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    return value.name, f"tensor({element})"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list | tuple):
        return [v.decode() if isinstance(v, bytes) else v for v in value]
    return value
