"""A declared operator alone, on its declared samples: a module that calls it, exported like any model, for each dtype.

Samples of one structure (attributes, absent inputs, lengths of lists, ranks) share a file; the sizes in which they differ
stay open in it. Every combination of arguments goes through the exporter once, and one in each further dtype: an
export takes a second, and the rest of the files differ in nothing that it decides. Those are written as bare nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DeployOpsError, ExportError
from ..export.exporter import export_model
from ..symbolic.checking.sample_runs import SampleRun, accepted_dtypes
from .backends import Sample
from .bare_node import write_bare_node
from .record import NOT_CHECKED, Cell

if TYPE_CHECKING:
    import torch

    from ..symbolic.operator import Operator

__all__ = ["OperatorSubject", "operator_subjects"]


@dataclass(frozen=True, slots=True)
class OperatorSubject:
    """One file to compare with the operator, and the calls to compare on.

    Attributes:
        name: of the operator, for `Cell.subject`.
        dtype: in which the samples were drawn.
        module: the original; its one argument is a dict of tensors by name.
        onnx: None where nothing could be exported: then there are no samples either.
        unchecked: a cell for each sample that has no file, with the reason.
        notes: for the report.
    """

    name: str
    dtype: str
    module: Any
    onnx: Path | None
    samples: tuple[Sample, ...]
    unchecked: tuple[Cell, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Call:
    """A sample as the module takes it: tensors by name (lists of them too), and what is fixed in the module."""

    run: SampleRun
    tensors: dict[str, Any]
    constants: dict[str, Any]

    @property
    def label(self) -> str:
        return f"{self.run.dtype}, sample {self.run.index} ({self.run.described()})"

    @property
    def leaves(self) -> list[tuple[str, torch.Tensor]]:
        """Tensors by the names that the exporter gives them."""
        found: list[tuple[str, torch.Tensor]] = []
        for name, value in self.tensors.items():
            items = enumerate(value) if isinstance(value, list) else [("", value)]
            found += [(f"inputs.{name}.{k}" if k != "" else f"inputs.{name}", t) for k, t in items]
        return found

    @property
    def arguments(self) -> Any:
        """Which tensors are there, and the values of everything else."""
        return tuple(n for n, _ in self.leaves), tuple((n, repr(v)) for n, v in self.constants.items())

    @property
    def structure(self) -> Any:
        """Equal for the calls that may share a file: the arguments, and dtype and rank of every tensor."""
        return self.arguments, tuple((str(t.dtype), t.dim()) for _, t in self.leaves)

    @property
    def shapes(self) -> Any:
        return tuple(tuple(t.shape) for _, t in self.leaves)

    def sample(self) -> Sample:
        return Sample(self.label, (self.tensors,), {}, tuple(n for n, _ in self.leaves))


def operator_subjects(
    op: Operator, dtypes: Sequence[str] | None, folder: Path, seed: int = 0
) -> Iterator[OperatorSubject]:
    """Files and samples of an operator, for each dtype in which it is declared (or of `dtypes`).

    `folder`: where the files are written. Raises nothing for a sample: what cannot be exported is *not checked*.
    """
    if op.sample_function is None:
        yield _nothing(op, "", "no samples are declared (`@operator.samples`)")
        return
    if op.stateful:
        yield _nothing(op, "", "stateful: two runs need not agree")
        return
    known = accepted_dtypes(op)
    exported: set[Any] = set()
    for dtype in dtypes if dtypes is not None else known:
        if dtype not in known:
            yield _nothing(op, dtype, f"{dtype} is not declared; declared are {', '.join(known)}")
            continue
        try:
            samples = op.make_samples(dtype, seed)
        except Exception as error:  # the user's function
            yield _nothing(op, dtype, f"the samples cannot be drawn: {type(error).__name__}: {error}")
            continue
        yield from _of_dtype(
            op, dtype, [SampleRun(op, dtype, i, s) for i, s in enumerate(samples)], folder, exported
        )


def _nothing(op: Operator, dtype: str, reason: str) -> OperatorSubject:
    cell = Cell(dtype or "*", "*", "pytorch", NOT_CHECKED, reason, subject=op.name)
    return OperatorSubject(op.name, dtype, None, None, (), (cell,))


def _of_dtype(
    op: Operator, dtype: str, runs: Sequence[SampleRun], folder: Path, exported: set[Any]
) -> Iterator[OperatorSubject]:
    """`exported`: the structures that went through the exporter in an earlier dtype; one more does in each."""
    groups: dict[Any, list[_Call]] = {}
    unchecked: list[Cell] = []
    for run in runs:
        if run.misfit:
            label = f"{dtype}, sample {run.index} ({run.described()})"
            unchecked.append(Cell(label, "*", "pytorch", NOT_CHECKED, run.misfit, subject=op.name))
            continue
        call = _call(op, run)
        groups.setdefault(call.structure, []).append(call)
    if unchecked:
        yield OperatorSubject(op.name, dtype, None, None, (), tuple(unchecked))
    through_exporter = False
    for number, calls in enumerate(groups.values()):
        module = _module(op, calls[0].constants)
        stem = folder / f"{op.op_type}-{dtype}-{number}"
        notes: tuple[str, ...] = ()
        if not through_exporter or calls[0].arguments not in exported:
            through_exporter = True
            exported.add(calls[0].arguments)
            path, done, notes = _by_the_exporter(module, calls, stem)
            if path is not None:
                yield OperatorSubject(
                    op.name, dtype, module, path, tuple(c.sample() for c in done), (), notes
                )
                calls = [c for c in calls if c not in done]
        if calls:
            yield _bare(op, dtype, module, calls, Path(f"{stem}-bare.onnx"), notes)


def _by_the_exporter(
    module: Any, calls: Sequence[_Call], stem: Path
) -> tuple[Path | None, Sequence[_Call], tuple[str, ...]]:
    """A file with open dims for all calls, else one of the first call's sizes; the calls it is for; what to note."""
    axes = _open_axes(calls)
    traced = _traced(calls, axes)
    if traced is not None and axes:
        try:
            return _exported(module, traced, Path(f"{stem}.onnx"), axes), calls, ()
        except DeployOpsError:
            pass  # sizes that depend on each other: alone, then
    first = calls[0]
    try:
        path = _exported(module, first, Path(f"{stem}.onnx"), {})
    except DeployOpsError as error:
        # an export that finds its own file wrong refuses it: the bare node's comparison says by how much
        return None, (), (f"{first.run.op.name}, {first.label}: export refuses it: {error}",)
    return path, [c for c in calls if c.shapes == first.shapes], ()


def _bare(
    op: Operator, dtype: str, module: Any, calls: Sequence[_Call], path: Path, notes: tuple[str, ...]
) -> OperatorSubject:
    """The node and its body alone, every dim open."""
    samples = tuple(c.sample() for c in calls)
    try:
        write_bare_node(op, calls[0].run, [n for n, _ in calls[0].leaves], path)
    except Exception as error:  # the reference does not run, the body cannot be built: the user's code
        reason = f"no file can be made: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        cells = [Cell(s.label, "*", "pytorch", NOT_CHECKED, reason, subject=op.name) for s in samples]
        return OperatorSubject(op.name, dtype, module, None, (), tuple(cells), notes)
    return OperatorSubject(op.name, dtype, module, path, samples, (), notes)


def _call(op: Operator, run: SampleRun) -> _Call:
    """Present tensors are inputs of the module; attributes, absent tensors and empty lists are fixed in it."""
    inputs = {i.name for i in op.interface.inputs}
    tensors: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for name, value in run.arguments.items():
        if name in inputs and value is not None and not (isinstance(value, (list, tuple)) and not value):
            tensors[name] = list(value) if isinstance(value, (list, tuple)) else value
        else:
            constants[name] = value
    return _Call(run, tensors, constants)


def _module(op: Operator, constants: dict[str, Any]) -> Any:
    import torch

    written = [i.name for i in op.interface.inputs if i.mutated]

    def call(inputs: dict[str, Any]) -> Any:
        values = {**constants, **inputs}
        for name in written:
            values[name] = values[name].clone()
        outputs = op.flatten_outputs(op.overload(**values), values)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    class OperatorAlone(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._call: Callable[..., Any] = call  # a function: copies of the module share the operator

        def forward(self, inputs: dict[str, Any]) -> Any:
            return self._call(inputs)

    return OperatorAlone().eval()


def _open_axes(calls: Sequence[_Call]) -> dict[str, dict[int, str]]:
    """A name for each axis whose size differs among the calls; axes of equal sizes in all of them share it."""
    names: dict[tuple[int, ...], str] = {}
    axes: dict[str, dict[int, str]] = {}
    for position, (leaf, tensor) in enumerate(calls[0].leaves):
        for axis in range(tensor.dim()):
            sizes = tuple(c.leaves[position][1].shape[axis] for c in calls)
            if len(set(sizes)) > 1:
                axes.setdefault(leaf, {})[axis] = names.setdefault(sizes, f"d{len(names)}=0..")
    return axes


def _traced(calls: Sequence[_Call], axes: dict[str, dict[int, str]]) -> _Call | None:
    """The call to trace: torch.export fixes sizes 0 and 1, and takes equal sizes for one."""

    def sizes(call: _Call) -> dict[str, int]:
        leaves = dict(call.leaves)
        return {name: leaves[leaf].shape[axis] for leaf, at in axes.items() for axis, name in at.items()}

    fit = [c for c in calls if all(size >= 2 for size in sizes(c).values())]
    return max(fit, key=lambda c: len(set(sizes(c).values())), default=None)


def _exported(module: Any, call: _Call, path: Path, axes: dict[str, dict[int, str]]) -> Path:
    example = {
        n: [t.clone() for t in v] if isinstance(v, list) else v.clone() for n, v in call.tensors.items()
    }
    try:
        return export_model(module, (example,), dynamic=axes or None, out=path).path
    except DeployOpsError:
        raise
    except Exception as error:  # torch's own, from deep inside a trace
        raise ExportError(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}") from error
