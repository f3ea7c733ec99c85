"""Profiles as the user gives them, as text or as plain data, become `Profile`s; nothing is known of the model here.

    profile := entry (";" entry)*                       one profile; several are given one by one
    entry   := input "=" shape ["," shape "," shape]    the smallest, the best, the largest; one alone: that and no other
    shape   := size ("x" size)*                         for an input that holds sizes itself: its values

Examples: `x=1x3x224x224,8x3x224x224,32x3x224x224`, `ids=1x16,4x64,8x512; mask=1x16,4x64,8x512`, `size=64x64,224x224,512x512`.
The name of an input may hold any character: what is before the last `=` of an entry is the name.
"""

from __future__ import annotations

import numbers
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import UsageError
from .record import Profile, Shape

__all__ = ["GRAMMAR", "profile_text", "read_profile", "shape_text"]

GRAMMAR = "'x=1x3x224x224,8x3x224x224,32x3x224x224' (the smallest, the best and the largest shape)"

_ENTRY = re.compile(r"\s*(?P<name>.+?)\s*=(?P<shapes>[-0-9x,\s]*)(?:;|$)", re.DOTALL)
_WRONG_ENTRY = re.compile(r"\s*(?P<name>.+?)\s*=(?P<shapes>[^=;]*)(?:;|$)", re.DOTALL)
_SHAPE = re.compile(r"-?[0-9]{1,10}(x-?[0-9]{1,10})*")
_LARGEST = 2**31 - 1  # TensorRT's sizes; its values of shape inputs too
_MOST_TEXT = 10_000
_TEXTS = (str, bytes, bytearray, memoryview)


def read_profile(given: str | Mapping[str, Any]) -> Profile:
    """A profile from text, or from ``{"x": ((1, 3), (8, 3), (32, 3))}``; ``{"x": (8, 3)}`` is one shape and no other.

    Raises UsageError.
    """
    if isinstance(given, str):
        return _from_text(given)
    if not isinstance(given, Mapping):
        raise UsageError(
            f"a profile is a text such as {GRAMMAR}, or a dict of shapes by input; got {type(given).__name__}"
        )
    return {str(name): _from_data(str(name), shapes) for name, shapes in given.items()}


def shape_text(shape: Sequence[int | str]) -> str:
    """`1x3x224x224`."""
    return "x".join(map(str, shape))


def profile_text(profile: Profile) -> str:
    """The profile as `--profile` takes it."""
    return "; ".join(
        f"{name}={','.join(map(shape_text, dict.fromkeys(shapes) if len(set(shapes)) == 1 else shapes))}"
        for name, shapes in profile.items()
    )


def _from_text(text: str) -> Profile:
    if len(text) > _MOST_TEXT:
        raise UsageError(f"a profile has {len(text):,} characters; at most {_MOST_TEXT:,} are read")
    found: dict[str, tuple[Shape, Shape, Shape]] = {}
    at = 0
    while text[at:].strip():
        entry = _ENTRY.match(text, at) or _WRONG_ENTRY.match(text, at)
        if entry is None:
            raise UsageError(
                f"the profile {text!r:.80} cannot be read at {text[at:]!r:.80}: expected {GRAMMAR}"
            )
        name, listed = entry["name"], [part.strip() for part in entry["shapes"].split(",")]
        if name in found:
            raise UsageError(
                f"the profile {text!r:.80} has `{name}` twice; several profiles are given one by one"
            )
        wrong = next((part for part in listed if not _SHAPE.fullmatch(part)), None)
        if wrong is not None:
            raise UsageError(
                f"the profile {text!r:.80}: {wrong!r:.80} is no shape of `{name}`; expected sizes such as 1x3x224x224"
                + _meant(wrong)
            )
        shapes = [tuple(map(int, part.split("x"))) for part in listed]
        found[name] = _three(name, shapes)
        at = entry.end()
    if not found:
        raise UsageError(f"an empty profile; expected {GRAMMAR}")
    return found


def _meant(part: str) -> str:
    """What a shape looks like that is written with other digits, another multiplication sign, or blanks."""
    plain = unicodedata.normalize("NFKC", part).lower().replace("×", "x").replace("*", "x")
    plain = "".join(str(unicodedata.digit(c, c)) for c in plain if not c.isspace())
    return f"; did you mean {plain}?" if _SHAPE.fullmatch(plain) else ""


def _from_data(name: str, shapes: Any) -> tuple[Shape, Shape, Shape]:
    if not isinstance(shapes, Sequence) or isinstance(shapes, _TEXTS):
        raise UsageError(f"profile, `{name}`: expected three shapes, or one; got {shapes!r:.100}")
    listed = [shapes] if all(isinstance(size, numbers.Integral) for size in shapes) else list(shapes)
    if not all(
        isinstance(shape, Sequence) and not isinstance(shape, _TEXTS) and all(_is_whole(s) for s in shape)
        for shape in listed
    ):
        raise UsageError(f"profile, `{name}`: shapes are of whole numbers; got {shapes!r:.100}")
    return _three(name, [tuple(int(size) for size in shape) for shape in listed])


def _is_whole(size: Any) -> bool:
    return isinstance(size, numbers.Integral) and not isinstance(size, bool)  # numpy's too


def _three(name: str, shapes: Sequence[Shape]) -> tuple[Shape, Shape, Shape]:
    if len(shapes) not in (1, 3):
        raise UsageError(
            f"profile, `{name}`: {len(shapes)} shapes; expected three (the smallest, the best, the largest), or one for a "
            "shape that does not vary"
        )
    largest = max((abs(size) for shape in shapes for size in shape), default=0)
    if largest > _LARGEST:
        raise UsageError(f"profile, `{name}`: {largest} is beyond TensorRT's sizes, at most {_LARGEST}")
    least, best, most = shapes if len(shapes) == 3 else (shapes[0],) * 3
    return least, best, most
