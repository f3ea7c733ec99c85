"""Files that are not models of PyTorch, by their first bytes, and what to do with each."""

from __future__ import annotations

__all__ = ["by_magic"]

# (offset, bytes, what it is and what to do)
_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras, perhaps); it holds no PyTorch model"),
    (0, b"GGUF", "a GGUF file (llama.cpp); it holds no PyTorch model"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (4, b"PTMF", "a TorchScript model for mobile (flatbuffer); export the original instead"),
    (0, b"ftrt", "a serialized TensorRT engine; it is built from ONNX and cannot be turned back"),
    (0, b"ptrt", "a serialized TensorRT engine; it is built from ONNX and cannot be turned back"),
    (4, b"ORTM", "an ONNX Runtime model in ORT format; use the ONNX file it was made from"),
    (0, b"\x93NUMPY", "a NumPy array (.npy)"),
    (0, b"\x1f\x8b", "a gzip archive; unpack it first"),
    (0, b"BZh", "a bzip2 archive; unpack it first"),
    (0, b"\xfd7zXZ\x00", "an xz archive; unpack it first"),
    (0, b"\x28\xb5\x2f\xfd", "a zstandard archive; unpack it first"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive; unpack it first"),
    (0, b"Rar!\x1a\x07", "a RAR archive; unpack it first"),
    (257, b"ustar", "a tar archive; unpack it first"),
    (0, b"\x7fELF", "a native library or program (ELF); a library of operators goes to --load-library"),
    (0, b"MZ", "a Windows program or library"),
    (0, b"\x89PNG", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"GIF8", "a GIF image"),
    (0, b"%PDF", "a PDF document"),
)


def by_magic(head: bytes, size: int) -> tuple[str, str] | None:
    """(kind, description) of a file that its first bytes give away, else None."""
    if head.startswith(b"version https://git-lfs.github.com/"):
        real = next((line[5:] for line in head.split(b"\n") if line.startswith(b"size ")), b"")
        size_text = f" ({int(real):,} bytes)" if real.isdigit() and len(real) < 16 else ""
        return "lfs-pointer", f"a Git LFS pointer, not the file itself{size_text}; run `git lfs pull`"
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:32].lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml")):
        return "html", "a web page (a login or error page, perhaps), not the file itself; download it again"
    for offset, magic, description in _MAGIC:
        if head[offset : offset + len(magic)] == magic:
            return "other", description
    return None
