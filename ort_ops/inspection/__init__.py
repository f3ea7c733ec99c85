"""What of an ONNX model would fail in ONNX Runtime, and where its custom nodes hurt; read, and nothing run.

`check.py` collects the findings; each other file finds one kind: nodes without a kernel,
faults of opsets and attributes, types that the runtime has no kernel for, fusions that custom nodes cut, shapes that are
lost behind them. `runtime_limits.py` reads what was measured of each runtime. Printing is the caller's business.
"""

from __future__ import annotations

__all__: list[str] = []
