"""ONNX files on disk: written whole or not at all, with a digest, read back safely."""
