"""Casting an ONNX model to float16 or bfloat16, as a strongly typed TensorRT wants it.

`cast_model.py` does it; `rules.py` says which operators stay float32 and why, `flags.py` follows values that must not be
narrowed (huge, whole numbers, sums), `digits.py` finds what computes coordinates, `decisions.py` decides for a node,
`graph.py` writes the casts. `input.py` refuses what cannot be cast and inlines bodies, `narrow_weights.py` casts weights,
`plugin_dtypes.py` says what plugins take; `values.py` holds what they share.
"""
