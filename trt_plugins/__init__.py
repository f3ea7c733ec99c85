"""TensorRT plugins from CUDA kernels, and engines. Nothing is here yet: models are exported so that plugins can follow.

The attributes, names and versions that an export writes obey TensorRT's rules already (see `symbolic.interface`).
"""
