"""Values beside their annotations: dataclasses to plain JSON values, and the keys of JSON held against the dataclasses.

JSON has no NaN and no infinities. In a field that is annotated `float` they are the strings "nan", "inf", "-inf"; a field
that is annotated `str` may hold the same letters, so only the annotation tells which is meant.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, Literal, Union, cast

from ...errors import ModelFileError

__all__ = ["SPECIAL", "decode", "encode"]

SPECIAL = ("nan", "inf", "-inf")

Computed = Mapping[
    str, frozenset[str]
]  # dataclass name -> keys that are written for readers and are no field


def encode(value: Any, hint: Any) -> Any:
    """Plain JSON values, the same ones for equal values: fields in their order, free keys sorted."""
    return _encoder(hint)(value)


@lru_cache(maxsize=256)
def _encoder(hint: Any) -> Callable[[Any], Any]:
    """A function for one annotation: a report has some hundred thousand values and some forty annotations."""
    if is_dataclass(hint):
        parts = [(k, _encoder(h)) for k, h in _hints(cast(Hashable, hint)).items()]
        return lambda value: {k: f(getattr(value, k)) for k, f in parts}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        inner = _encoder(_something(arguments))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        if _endless(arguments):
            inner = _encoder(arguments[0])
            return lambda value: [inner(v) for v in value]
        each = [_encoder(a) for a in arguments]
        return lambda value: [f(v) for f, v in zip(each, value, strict=True)]
    if origin is dict:
        inner = _encoder(arguments[1])
        return lambda value: {_text(k): inner(value[k]) for k in sorted(value)}
    if origin is Literal or hint is str:
        return _text
    plain: dict[Any, Callable[[Any], Any]] = {bool: bool, int: int, float: _number}
    return plain.get(hint, _free)


def decode(value: Any, hint: Any, computed: Computed) -> Any:
    """What a strict reader takes: special floats as floats, `computed` keys dropped.

    Types are not checked here but by the reader. Raises ModelFileError for a key that no field has.
    """
    return _decoder(hint, tuple(sorted((k, tuple(sorted(v))) for k, v in computed.items())))(value, "")


@lru_cache(maxsize=256)
def _decoder(hint: Any, computed: tuple[tuple[str, tuple[str, ...]], ...]) -> Callable[[Any, str], Any]:
    if is_dataclass(hint):
        parts = {k: _decoder(h, computed) for k, h in _hints(cast(Hashable, hint)).items()}
        extra = frozenset(dict(computed).get(getattr(hint, "__name__", ""), ()))

        def fields_of(value: Any, path: str) -> Any:
            if not isinstance(value, dict):
                return value
            unknown = value.keys() - parts.keys() - extra
            if unknown:
                raise ModelFileError(
                    f"the report has `{path}{min(unknown)[:60]}`, which this version of deployops does not know. "
                    "It was changed by hand, or written by a newer version: read it with that one"
                )
            return {
                k: parts[k](v, f"{path}{k}.") if type(v) in (list, dict, str) else v
                for k, v in value.items()
                if k in parts
            }

        return fields_of
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        inner = _decoder(_something(arguments), computed)
        return lambda value, path: None if value is None else inner(value, path)
    if origin is tuple and _endless(arguments):
        inner = _decoder(arguments[0], computed)
        return lambda value, path: (
            [inner(v, f"{path}{k}.") for k, v in enumerate(value)] if isinstance(value, list) else value
        )
    if origin is dict:
        inner = _decoder(arguments[1], computed)
        return lambda value, path: (
            {k: inner(v, f"{path}{k[:60]}.") for k, v in value.items()} if isinstance(value, dict) else value
        )
    if origin is tuple:
        each = [_decoder(a, computed) for a in arguments]
        return lambda value, path: (
            [*(f(v, path) for f, v in zip(each, value, strict=False)), *value[len(each) :]]
            if isinstance(value, list)
            else value
        )
    if hint is float:
        return lambda value, path: float(value) if isinstance(value, str) and value in SPECIAL else value
    return lambda value, path: value


@lru_cache(maxsize=64)
def _hints(kind: Any) -> dict[str, Any]:
    found = typing.get_type_hints(kind)
    return {f.name: found[f.name] for f in fields(kind)}


def _something(arguments: tuple[Any, ...]) -> Any:
    """`X` of `X | None`: the records have no other unions."""
    return next(a for a in arguments if a is not type(None))


def _endless(arguments: tuple[Any, ...]) -> bool:
    return len(arguments) == 2 and arguments[1] is Ellipsis


def _number(value: Any) -> float | str:
    value = float(value)
    return value if math.isfinite(value) else str(value)


def _text(value: Any) -> str:
    """JSON in UTF-8 has no lone surrogates, which file names may: they are shown as \\udc80."""
    return str(value).encode("utf-8", "backslashreplace").decode()


def _free(value: Any) -> Any:
    """A value that only says `Any`: what JSON has, everything else as text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, dict):
        return {_text(k): _free(v) for k, v in sorted(value.items(), key=lambda item: str(item[0]))}
    if isinstance(value, list | tuple):
        return [_free(v) for v in value]
    return _text(value)
