"""Validation of files: the model file as the export reads it, the inputs from the user or from the ONNX file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import UsageError
from ..export.integrity import read_model, verify_digest
from ..export.source import Source, open_source, read_signature
from ..symbolic import registry
from .report import Report
from .validate import validate

__all__ = ["validate_files"]

StrPath = str | os.PathLike[str]


def validate_files(
    model: Any,
    onnx: StrPath,
    inputs: Sequence[str] | None = None,
    *,
    data: Mapping[str, Any] | None = None,
    factory: str | None = None,
    trust: bool = False,
    **options: Any,
) -> Report:
    """`validate` for a model file of any kind (see `export_model` for `factory`, `trust`, `data`).

    Without `inputs` the ones written into the ONNX file at its export are used, else the file's examples.
    The ONNX file's digest is verified first. `options` are those of `validate`.
    """
    registry.load_builtin()
    registry.load_entry_points()
    verify_digest(onnx)
    source = open_source(model, trust=trust, factory=factory)
    specs = inputs or (None if data else _recorded_inputs(onnx)) or None
    signature = read_signature(source, specs, data=data)
    report = validate(source.callable(), onnx, signature=signature, **options)
    return _with_notes(report, source)


def _recorded_inputs(onnx: StrPath) -> list[str]:
    """The input specs in the manifest of a file that `export_model` wrote."""
    metadata = {p.key: p.value for p in read_model(onnx).metadata_props}
    try:
        specs = json.loads(metadata.get("deployops.manifest", "{}")).get("inputs", [])
    except (ValueError, AttributeError):
        raise UsageError(f"{onnx}: its manifest cannot be read: give the inputs with --input") from None
    if not isinstance(specs, list):
        return []
    return [s for s in specs if isinstance(s, str)]


def _with_notes(report: Report, source: Source) -> Report:
    import dataclasses

    return dataclasses.replace(report, notes=(*(str(n) for n in source.notes), *report.notes))
