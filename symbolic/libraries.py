"""C++ operator libraries (`TORCH_LIBRARY`), loaded only where the user named them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError

__all__ = ["load_library", "load_named"]


def load_library(path: str) -> None:
    """Load a library, which registers its operators with torch. Raises UsageError with the loader's reason."""
    import torch

    file = Path(path)
    if not file.is_file():
        raise UsageError(f"--load-library {path}: there is no such file")
    try:
        torch.ops.load_library(str(file.resolve()))
    except OSError as e:
        reason = str(e).replace(str(file.resolve()), path)
        with file.open("rb") as stream:
            elf = stream.read(4) == b"\x7fELF"
        hint = (
            "It was built for another platform, torch or CUDA: rebuild it against this torch "
            f"({torch.__version__})" if elf else "It is no shared library of this platform"
        )  # fmt: skip
        raise UsageError(f"--load-library {path}: {reason}. {hint}") from None
    except RuntimeError as e:  # a second definition of the same operator, say
        raise UsageError(f"--load-library {path}: {str(e).splitlines()[0]}") from None


def load_named(packs: Sequence[str], libraries: Sequence[str]) -> None:
    """Run what the user named: libraries first, which packs may adopt from. Raises UsageError."""
    for library in libraries:
        load_library(library)
    if packs:
        from .registry import load

        load(packs)
