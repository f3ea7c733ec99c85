"""Whether an exported model still computes what its PyTorch original does.

`validate.py` has the steps, `original.py` what the original says, `backends/` how each side runs,
`metrics.py` the differences as data, `parity.py` the budget and the judgement, `latency.py` the timing,
`report.py` the verdict. Nothing here exports or repairs a model.
"""

from __future__ import annotations

# At once, not on first use: the submodule `validate` would hide the function once anything imports it.
# This costs numpy; torch, onnx and onnxruntime are imported by the calls that need them.
from .backends import Sample
from .report import Report
from .validate import validate

__all__ = ["Report", "Sample", "validate"]
