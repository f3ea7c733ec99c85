"""Graphs: from a traced program to ONNX IR, and the passes on it.

`translation` is the one file that touches torch's ONNX exporter, `passes` the one that optimises. Nothing here reads or
writes files.
"""
