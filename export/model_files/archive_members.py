"""Which members an archive of torch may have, and what torch does with each of them.

torch's reader compares names without regard to case, joins paths as the file system does, and picks the way to read
a payload by the first letters of its path. So only the exact spellings that torch itself writes are known here;
whatever else is in an archive is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

__all__ = ["CONSTANT_PATH", "WEIGHT_PATH", "unknown_program_members", "unknown_script_members"]

_COMMON = r"version|byteorder|\.format_version|\.storage_alignment|\.data/(version|serialization_id)"
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.\-]*"
WEIGHT_PATH = re.compile(r"weight_[0-9]+")
"""`path_name` of a weight: raw bytes, or a pickle if the entry says so."""
CONSTANT_PATH = re.compile(r"(tensor|custom_obj|opaque_obj)_[0-9]+")
"""`path_name` of a constant: torch unpickles the last two kinds whatever the entry says."""

_PROGRAM = re.compile(
    rf"{_COMMON}|archive_format|archive_version|models/{_NAME}\.json|extra/({_NAME}/)*{_NAME}"
    rf"|data/weights/({WEIGHT_PATH.pattern}|{_NAME}_weights_config\.json|{_NAME}\.pt)"
    rf"|data/constants/({CONSTANT_PATH.pattern}|{_NAME}_constants_config\.json|{_NAME}\.pt)"
    rf"|data/sample_inputs/{_NAME}\.pt"
)
_SCRIPT = re.compile(
    rf"{_COMMON}|(data|constants|traced_inputs|attributes|bytecode|mobile_debug_handles)\.pkl"
    r"|(data|constants|traced_inputs|bytecode)/[0-9]+"
    rf"|code/([^/\\\x00-\x1f]+/)*[^/\\\x00-\x1f]+\.py(\.debug_pkl)?|extra/({_NAME}/)*{_NAME}"
)
_DOTS = re.compile(r"(^|/)\.{0,2}(/|$)")  # components that a path can be written without


def unknown_program_members(names: Iterable[str]) -> Iterator[str]:
    """The members of a torch.export archive that torch.export.save does not write, or not so spelled."""
    return _unknown(names, _PROGRAM)


def unknown_script_members(names: Iterable[str]) -> Iterator[str]:
    """The members of a TorchScript archive that torch.jit.save does not write, or not so spelled."""
    return _unknown(names, _SCRIPT)


def _unknown(names: Iterable[str], known: re.Pattern[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        folded = name.casefold()
        if not known.fullmatch(name) or _DOTS.search(name) or folded in seen:
            yield name
        seen.add(folded)
