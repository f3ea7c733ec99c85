"""ONNX Runtime: libraries of native operators, and sessions that explain why they cannot be opened.

`library.py` compiles declared operators (`build_plan.py`: what there is to compile; `cpp/`: the adapter around the
kernels; `manifest_writer.py`: what is written beside the library), `cuda_library.py` and `cuda_plan.py` do so for the
CUDA provider, `kernel_check.py` holds kernels against their references, `torch_kernels.py` lends them to torch.
`session.py` opens a model, `engine.py` runs one on arrays, `arrays.py` carries tensors in and out, `diagnosis.py`
finds the reason when the runtime refuses. Comparing what a session computes with the original is the business of
`validation`.
"""

from __future__ import annotations

from .kernel_check import check_kernels
from .library import Library, compile_library, ort_library
from .session import session
from .torch_kernels import use_in_torch

__all__ = ["Library", "check_kernels", "compile_library", "ort_library", "session", "use_in_torch"]
