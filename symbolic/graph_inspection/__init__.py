"""An ONNX graph looked at for what a runtime would make of it: what all runtimes share. Nothing of it is run, and no torch.

`node_uses.py` reads every node with its types and place, `standard_types.py` the schemas of ONNX, `graph_view.py` who makes
and reads a value; `structure.py` finds graphs that do not hang together; `findings.py` says what a finding is, and
`report.py` prints them; `file_kind.py` says what a file is that holds no graph at all. What one runtime takes is that
runtime's: `ort_ops/inspection`, `trt_plugins/inspection`.
"""

from __future__ import annotations

__all__: list[str] = []
