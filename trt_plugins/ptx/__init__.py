"""What nvcc made of the kernels, checked without a GPU: its PTX is interpreted, launch by launch, in numpy.

`build` compiles the launchers as nvcc does and links them with a CUDA runtime of our own, which hands each launch to the
interpreter. `source` reads PTX, `program` and `steps` turn a kernel into what `machine` runs over many threads at once.
`arithmetic`, `integers`, `conversions`, `comparisons`, `collectives` and `accesses` hold what the instructions mean, and
`rounding` how a result is rounded once. `check` judges the outputs. What is not interpreted is said, never guessed.
"""
