"""TensorRT's messages without what only its authors can use: places in its sources, functions, numbers of errors."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .child import Said

__all__ = ["MOST_LENGTH", "errors_in", "plain", "shortened"]

MOST_LENGTH = 600

# `ModelImporter.cpp:965: `, `[network.cpp::validate::2684] `, `[pass.cpp:337: check] `
_PLACE = re.compile(
    r"^(?:\[[\w./-]+\.(?:cpp|h|hpp|inl|cu)[^\]]*\]|[\w./-]+\.(?:cpp|h|hpp|inl|cu)(?:::?\w+)*):?\s+"
)
# The same after a semicolon: `…; [tactic.cpp:264: run] Error during tactic selection`
_INNER_PLACE = re.compile(r"; \[[\w./-]+\.(?:cpp|h|hpp|inl|cu)[^\]]*\] ")
# `IBuilder::buildSerializedNetwork: Error Code 1: Myelin (…)`
_CODE = re.compile(r"^(?:\w+(?:::\w+)*: )?Error Code \d+: [\w ]+ \((?P<text>.*)\)\.?$", re.DOTALL)
_SOURCE = re.compile(r"\.? In \w+ at \S+\.(?:cpp|h|hpp|inl|cu):\d+")
_INVALID = re.compile(r"^Invalid Node - .*$")
_ASSERTION = re.compile(
    r"^Assertion failed: .*?(?:&& \"(?P<quoted>[^\"]+)\"|: (?P<told>[A-Z].*))$", re.DOTALL
)
# What every machine without a GPU says once, beside the error itself.
_NO_DRIVER = re.compile(r"cudaError 35\b")
# What the parser logs beside its errors, and what follows from an earlier one.
_BESIDE = re.compile(
    r"^(While parsing node number|--- (Begin|End) node ---|ERROR: |input: |Failed to parse|In node \d+)"
    r"|enginePtr != nullptr|Network must have at least one output|Network validation failed"
)


def plain(text: str) -> str:
    """One message on one line, in its own words."""
    lines = [line for raw in text.strip().splitlines() if (line := _line(raw.strip()))]
    told = [line for line in lines if not _NO_DRIVER.search(line)]
    return " ".join(told or lines)


def _line(text: str) -> str:
    while (place := _PLACE.match(text)) is not None:
        text = text[place.end() :]
    if _INVALID.match(text):
        return ""
    code = _CODE.match(text)
    if code is not None:
        return _line(code["text"])
    assertion = _ASSERTION.match(text)
    if assertion is not None:
        text = assertion["quoted"] or assertion["told"]
    return _INNER_PLACE.sub("; ", _SOURCE.sub("", text))


def errors_in(said: Sequence[Said]) -> list[str]:
    """The errors of a log, the first one first, each once, without those that only go with another."""
    errors = [text for kind, text in said if kind == "error" and text.strip()]
    first = [text for text in errors if not _BESIDE.search(_line(text.splitlines()[0].strip()) or text)]
    told = [text for text in first if not _NO_DRIVER.search(text)]
    return list(dict.fromkeys(plain(text) for text in told or first or errors))


def shortened(text: str, most: int = MOST_LENGTH) -> str:
    """For a terminal: printable, and not without end."""
    shown = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    return shown if len(shown) <= most else f"{shown[:most]}…"
