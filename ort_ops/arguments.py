"""Arguments of the public calls, refused in the user's words where they make no sense."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import UsageError

__all__ = ["expect", "expect_mapping", "expect_path", "expect_sequence", "listed_texts"]


def expect(name: str, value: Any, kinds: type | tuple[type, ...], what: str) -> None:
    """None, or a value of one of `kinds`; a bool is no number. Raises UsageError."""
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    wrong = not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
    if value is not None and wrong:
        raise UsageError(f"{name} is {what}, not {_described(value)}")


def expect_path(name: str, value: Any) -> None:
    """A path. Raises UsageError."""
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise UsageError(f"{name} is the path of a file, not {_described(value)}")


def expect_mapping(name: str, value: Any, what: str) -> None:
    """None, or a mapping with texts as keys. Raises UsageError."""
    if value is not None and not (isinstance(value, Mapping) and all(isinstance(k, str) for k in value)):
        raise UsageError(f"{name} is {what}, not {_described(value)}")


def expect_sequence(name: str, value: Any, kinds: type | tuple[type, ...], what: str) -> None:
    """None, or a list or tuple of `kinds`; a single text is none. Raises UsageError."""
    good = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    if value is not None and not (good and all(isinstance(v, kinds) for v in value)):
        raise UsageError(f"{name} is {what}, not {_described(value)}")


def listed_texts(value: Any) -> Any:
    """A single text as a list of one; anything else as it is."""
    return [value] if isinstance(value, str) else value


def _described(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
