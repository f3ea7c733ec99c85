"""CUDA kernels run on the processor, as they are written: parity, races, memory errors and barriers without a GPU.

`cpp/` is the emulation (a device, its headers, a detector of races), `build` compiles kernels for it, `library` runs
them in a process of their own (`child_process`), `check` judges them. What cannot be seen so is said in docs/emulation.md.
"""
