"""ONNX Runtime: sessions that explain why they cannot be opened.

`session.py` opens a model, `engine.py` runs one on arrays, `arrays.py` carries tensors in and out, `diagnosis.py`
finds the reason when the runtime refuses. Comparing what a session
computes with the original is the business of `validation`.
"""

from __future__ import annotations

from .session import session

__all__ = ["session"]
