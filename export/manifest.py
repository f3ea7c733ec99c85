"""The manifest in an exported file's metadata: what it needs, and what made it. No paths, no dates.

`onnx_file.integrity` reads it back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .onnx_file.integrity import MANIFEST_KEY

if TYPE_CHECKING:
    import onnx_ir as ir

    from ..symbolic.operator import Operator
    from .inputs.signature import Signature

__all__ = ["write_manifest"]


def write_manifest(model: ir.Model, signature: Signature, used: Mapping[Any, Operator]) -> None:
    """Write what the model was exported from and needs into its metadata."""
    import torch

    from .. import __version__

    model.producer_name, model.producer_version = "deployops", __version__
    model.doc_string = None
    model.metadata_props[MANIFEST_KEY] = json.dumps(
        {
            "deployops": __version__,
            "torch": str(torch.__version__).split("+")[0],
            "inputs": [str(spec) for spec in signature.specs],
            "operators": {
                op.onnx_name: {"version": op.version, "torch": op.schema}
                for op in sorted(used.values(), key=lambda o: o.onnx_name)
            },
        },
        sort_keys=True,
    )
