"""Is a model file what was written? Digest, structure, and the side files that belong to it.

What is checked stands in `symbolic/graph_inspection/file_integrity.py`: a session asks for it too, without this package.
"""

from __future__ import annotations

from ...symbolic.graph_inspection.file_integrity import (
    DATA_KEY,
    DIGEST_KEY,
    DIGEST_MARK,
    FITTED_KEY,
    MANIFEST_KEY,
    NO_DIGEST,
    PRODUCER,
    EditedFileError,
    read_manifest,
    read_model,
    verify_digest,
    verify_structure,
)

__all__ = [
    "DATA_KEY",
    "DIGEST_KEY",
    "DIGEST_MARK",
    "FITTED_KEY",
    "MANIFEST_KEY",
    "NO_DIGEST",
    "PRODUCER",
    "EditedFileError",
    "read_manifest",
    "read_model",
    "verify_digest",
    "verify_structure",
]
