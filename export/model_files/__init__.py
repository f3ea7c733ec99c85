"""Model files of PyTorch: what kind a file is, told without running it, and how each kind is loaded safely.

`model_file` identifies, `load` loads; the rest is what they read, scan and refuse. Nothing here traces or exports.
"""
