"""Run every model of a folder with whatever ONNX Runtime is imported here: python run_models.py FOLDER LIBRARY.

Beside each NAME.onnx lie its inputs, NAME.in.npz; the outputs go to NAME.out.npz, a refusal to NAME.error.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

folder, library = Path(sys.argv[1]), sys.argv[2]
print(ort.__version__)
for path in sorted(folder.glob("*.onnx")):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    try:
        options.register_custom_ops_library(library)
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        outputs = session.run(None, dict(np.load(path.with_suffix(".in.npz"))))
        np.savez(path.with_suffix(".out.npz"), *outputs)
    except Exception as error:
        path.with_suffix(".error").write_text(f"{type(error).__name__}: {error}")
