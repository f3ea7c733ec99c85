"""What is validated: a model in memory or a file of any kind, with the inputs of the user or of the ONNX file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ModelFileError, UsageError
from ..export.model_files.model_file import Kind, identify
from ..export.onnx_file.integrity import read_manifest, read_model, verify_digest
from ..export.source import open_source, read_signature
from ..ort_ops import arguments
from ..symbolic import registry
from .record import Report
from .steps import compare

__all__ = ["validate"]

StrPath = str | os.PathLike[str]


def validate(
    model: Any,
    onnx: StrPath,
    inputs: Any = None,
    *,
    signature: Any = None,
    samples: Iterable[Any] | None = None,
    data: Mapping[str, Any] | None = None,
    factory: str | None = None,
    trust: bool = False,
    atol: float | None = None,
    rtol: float | None = None,
    latency: bool = True,
    seed: int = 0,
    sizes: int = 3,
    threads: int | None = None,
    libraries: Sequence[StrPath] = (),
    isolate: bool = True,
) -> Report:
    """Compare an ONNX file on ONNX Runtime CPU with the PyTorch original it was made from.

    ::

        report = validate(net, "net.onnx", (torch.randn(2, 3, 32, 32),))
        print(report.text())
        sys.exit(report.exit_code)

    The original runs in eval mode on the CPU (modes are restored), twice, and once more in float64: the
    budget of each output follows from its own rounding error (see `parity`). The candidate runs every
    sample, and the first one also without the runtime's optimiser, which can hide faults of the file.
    The file's digest is verified first.

    Args:
        model: a model file of any kind, an `nn.Module`, `ScriptModule`, `ExportedProgram`, or any callable on
            CPU tensors.
        onnx: the file. Its external data must lie next to it.
        inputs: example inputs (a tensor, a tuple of arguments, a dict of keyword arguments); or texts such as
            ``["x:float32[batch,3]"]``. Dims that the file leaves open are also tried at other sizes. None: the
            inputs recorded in the file at its export, else the examples stored in the model file.
        signature: an `export.signature.Signature`, instead of `inputs`.
        samples: `Sample` objects or (label, args[, kwargs]), instead of `inputs`.
        data: real samples by input name.
        factory, trust: as for `export_model`.
        atol, rtol: the user's own tolerance instead of the derived budget; the report says so.
        latency: measure medians on the first sample.
        seed: of everything random here.
        sizes: how many sizes to try, the example's included.
        threads: of both sides; None takes PyTorch's current number.
        libraries: custom-operator libraries of ONNX Runtime.
        isolate: run ONNX Runtime in a child process, so that a crash or a hang is a finding and not the end.

    Raises:
        UsageError, ModelFileError: arguments that make no sense, a file that is no ONNX model, or damaged.
    """
    arguments.expect_path("onnx", onnx)
    arguments.expect_mapping("data", data, "arrays by input name")
    arguments.expect("factory", factory, str, "a text, 'PKG.MOD:CALLABLE'")
    for name, number in (("atol", atol), ("rtol", rtol)):
        arguments.expect(name, number, (int, float), "a number")
    for name, count in (("seed", seed), ("sizes", sizes), ("threads", threads)):
        arguments.expect(name, count, int, "a number")
    for name, flag in (("trust", trust), ("latency", latency), ("isolate", isolate)):
        arguments.expect(name, flag, bool, "True or False")
    libraries = arguments.listed_texts(libraries)
    arguments.expect_sequence("libraries", libraries, (str, os.PathLike), "a list of paths")
    inputs = arguments.listed_texts(inputs)
    _existing(onnx)
    verify_digest(onnx)
    notes: list[str] = []
    title = ""
    if isinstance(model, (str, os.PathLike)):
        registry.load_builtin()
        registry.load_entry_points()
        source = open_source(model, trust=trust, factory=factory)
        title = Path(model).name
        notes = [str(n) for n in source.notes]
        given = inputs is not None or signature is not None or samples is not None
        if not given or (data and signature is None and samples is None):
            specs = inputs or (None if data else _recorded_inputs(onnx)) or None
            signature, inputs = read_signature(source, specs, data=data), None
        model = source.callable()
    elif inputs is None and signature is None and samples is None:
        from ..export.inputs.signature import signature_from_specs

        recorded = _recorded_inputs(onnx)
        if not (recorded or data):
            raise UsageError("no inputs are given, and the ONNX file records none: give `inputs`")
        signature = signature_from_specs(recorded, data)
    return compare(
        model,
        onnx,
        inputs,
        signature=signature,
        samples=samples,
        atol=atol,
        rtol=rtol,
        latency=latency,
        seed=seed,
        sizes=sizes,
        threads=threads,
        libraries=libraries,
        isolate=isolate,
        notes=notes,
        title=title,
    )


def _existing(onnx: StrPath) -> None:
    if not Path(onnx).is_file():
        raise UsageError(f"{onnx}: " + ("not a file" if Path(onnx).exists() else "no such file"))
    found = identify(onnx)
    if found.kind is not Kind.ONNX:
        raise ModelFileError(f"{onnx} is {found.description}, not an ONNX model")


def _recorded_inputs(onnx: StrPath) -> list[str]:
    """The input specs that `export_model` wrote into the file. Raises ModelFileError for a damaged manifest."""
    specs = read_manifest(read_model(onnx), onnx).get("inputs", [])
    return [s for s in specs if isinstance(s, str)] if isinstance(specs, list) else []
