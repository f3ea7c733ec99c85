"""Engines: an ONNX model and plugin libraries become a serialised engine, with a sidecar that says what it is.

`build.py` makes one, `record.py` is what is known of it, `sidecar.py` reads and writes that, `portability.py` says whether it
runs here. Running one is the validation backends' (`validation/backends/tensorrt.py`).
"""
