"""The arithmetic, once: a C++ header per operator, named after it, and in `include/deployops/` what they stand on.

No header of torch, ONNX Runtime or TensorRT is included here. `native` compiles these files, `ort_ops` and `trt_plugins`
put them behind their runtimes. There is no Python here besides this line.
"""
