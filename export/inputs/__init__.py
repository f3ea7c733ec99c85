"""The inputs of a model: specs, example values and sizes, and what a trace assumed of the sizes.

`signature` is what others use. Nothing here knows ONNX.
"""
