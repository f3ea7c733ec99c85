"""What it takes to build native code from declarations: compilers, a cache of objects, generated C++.

Both native sides, `ort_ops` and `trt_plugins`, stand on it and neither on the other. `signature.py` says what a
kernel of an operator looks like in C++, `shape_rules.py` what its outputs' shapes are, by what `observed_shapes.py` saw
of its fake kernel, `kernel_files.py` where it is; `generated.py` writes the C++ around it from `templates/`. `cpp/` holds
what every CPU library contains besides kernels. The kernels themselves are in `kernels/`, what is particular to a runtime
in the package of that runtime.
"""
