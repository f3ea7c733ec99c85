"""What the functions of a declaration take and return: refused where it is not what they will be given or asked for.

A reference, fake kernel, backward or body is the user's own code. Its parameters are compared with the
operator's arguments when it is declared, its results with the operator's outputs whenever it is run.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import DeclarationError
from . import dtypes

if TYPE_CHECKING:
    from .operator import Operator

__all__ = [
    "Returns",
    "call_with",
    "check_parameters",
    "checked_fake",
    "checked_reference",
    "checked_result",
    "refuse_second",
]

Returns = Sequence[tuple[str, bool]]  # name, and whether it is a list of tensors

_STARS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


# --- parameters ----------------------------------------------------------------------------------------------


def check_parameters(
    name: str, what: str, function: Callable[..., Any], arguments: Sequence[str], leading: Sequence[str] = ()
) -> None:
    """Raise DeclarationError where `function` is not ``f(*leading, *arguments)``.

    The names of `leading` are the author's choice. Defaults need not be repeated, `*args` and `**kwargs` stand
    for what is not named, and parameters of its own need a default.
    """
    parameters = _parameters(function)
    if parameters is None:
        return
    positional = [p for p in parameters if p.kind not in (*_STARS, p.KEYWORD_ONLY)]
    by_keyword = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    has_star, has_stars = (any(p.kind is kind for p in parameters) for kind in _STARS)
    named = [p.name for p in positional[len(leading) :]]
    if has_star or has_stars:
        wanted = [n for n in arguments if n not in {p.name for p in by_keyword}]
        fits = named == wanted[: len(named)] and (has_star or has_stars or len(named) >= len(wanted))
        own = by_keyword
    else:
        every = [*positional[len(leading) :], *by_keyword]
        fits = len(positional) >= len(leading) and [p.name for p in every[: len(arguments)]] == list(
            arguments
        )
        own = every[len(arguments) :]
    if fits and all(p.default is not p.empty or p.name in arguments for p in own):
        return
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
    given = ", ".join(stars.get(p.kind.name, "") + p.name for p in parameters)
    raise DeclarationError(
        f"{name}: the {what} takes ({given}); expected ({', '.join([*leading, *arguments])})"
    )


def refuse_second(name: str, what: str, before: Any, function: Any) -> None:
    """Raise DeclarationError for a second function of one kind in one file; the same one again (a notebook's cell) is fine.

    The last one would count without a word. Of two bounds, one meant as something else, memory for too few would be there; of
    two bodies or samples, what was checked before would not be what is exported.
    """
    if not callable(function):
        raise DeclarationError(f"{name}: @op.{what} is of a function; got {type(function).__name__}")
    was, now = getattr(before, "__code__", None), getattr(function, "__code__", None)
    if was is None or now is None or was.co_filename != now.co_filename:
        return
    if was.co_firstlineno != now.co_firstlineno:
        raise DeclarationError(
            f"{name}: @op.{what} is declared twice, in lines {was.co_firstlineno} and {now.co_firstlineno} of {now.co_filename}; "
            "leave one"
        )


def call_with(
    function: Callable[..., Any],
    leading: Sequence[Any],
    values: Mapping[str, Any],
    keyword_only: frozenset[str],
) -> Any:
    """Call `function` with its leading arguments and the operator's own, in the operator's order."""
    parameters = {p.name: p for p in _parameters(function) or ()}
    kinds = {p.kind for p in parameters.values()}
    takes_any, takes_more = inspect.Parameter.VAR_KEYWORD in kinds, inspect.Parameter.VAR_POSITIONAL in kinds
    args, kwargs = list(leading), {}
    for name, value in values.items():
        parameter = parameters.get(name)
        if parameter is None:
            by_keyword = takes_any and not (takes_more and name not in keyword_only)
        else:
            by_keyword = parameter.kind is parameter.KEYWORD_ONLY or name in keyword_only
        if by_keyword or (name in keyword_only and not parameters):
            kwargs[name] = value
        else:
            args.append(value)
    return function(*args, **kwargs)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in C
        return None


# --- results -------------------------------------------------------------------------------------------------


def checked_result(name: str, what: str, result: Any, returns: Returns, kind: type) -> Any:
    """`result` if it is what `returns` says, several as a tuple; raises DeclarationError."""
    if not returns:
        fits = result is None
    elif len(returns) == 1:
        fits = _is_output(result, returns[0][1], kind)
    else:
        fits = isinstance(result, (tuple, list)) and len(result) == len(returns)
        if fits:
            result = tuple(result)
            fits = all(_is_output(r, one[1], kind) for r, one in zip(result, returns, strict=True))
    if not fits:
        raise DeclarationError(
            f"{name}: the {what} returned {_described(result, kind)}; expected {expected_text(returns)}"
        )
    return result


def expected_text(returns: Returns) -> str:
    """What an operator returns, in words: ``2 tensors, in this order: `y`, `mask```."""
    if not returns:
        return "nothing (the operator is declared `-> None`)"
    names = [f"`{name}`" + (" (a list of tensors)" if is_list else "") for name, is_list in returns]
    if len(returns) == 1:
        return f"a list of tensors, {names[0].split(' ')[0]}" if returns[0][1] else f"one tensor, {names[0]}"
    return f"{len(returns)} results, in this order: {', '.join(names)}"


def _is_output(value: Any, is_list: bool, kind: type) -> bool:
    if is_list:
        return isinstance(value, (list, tuple)) and all(isinstance(v, kind) for v in value)
    return isinstance(value, kind)


def _described(value: Any, kind: type) -> str:
    if value is None:
        return "nothing (None): is a `return` missing?"
    if isinstance(value, kind):
        return "one tensor"
    if isinstance(value, (list, tuple)):
        items = ", ".join("tensor" if isinstance(v, kind) else type(v).__name__ for v in value)
        return f"a {type(value).__name__} of {len(value)}" + (f" ({items})" if items else "")
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def checked_reference(
    name: str, function: Callable[..., Any], returns: Callable[[], Returns]
) -> Callable[..., Any]:
    """The reference, refusing results that are not the declared outputs."""

    @functools.wraps(function)
    def reference(*args: Any, **kwargs: Any) -> Any:
        import torch

        return checked_result(name, "reference", function(*args, **kwargs), returns(), torch.Tensor)

    return reference


def checked_fake(op: Operator, function: Callable[..., Any]) -> Callable[..., Any]:
    """The fake kernel, given every argument explicitly (defaults too), its results checked."""
    arguments = list(op.overload._schema.arguments)
    positional = [a.name for a in arguments if not a.kwarg_only]

    @functools.wraps(function)
    def fake(*args: Any, **kwargs: Any) -> Any:
        import torch

        given = dict(zip(positional, args, strict=False)) | kwargs
        values = {a.name: given[a.name] if a.name in given else _default(a) for a in arguments}
        result = call_with(function, (), values, op.interface.keyword_only)
        return checked_result(op.name, "fake kernel", result, op.returns, torch.Tensor)

    return fake


def _default(argument: Any) -> Any:
    value = argument.default_value
    is_dtype = str(argument.real_type) in ("ScalarType", "Optional[ScalarType]")
    return dtypes.from_scalar_type(value) if is_dtype and value is not None else value
