"""How the inputs of a model, by flat names, become the arguments of its `forward`.

A flat name is `x`, or a path into a nested argument: `xs.0` for an item of a list or tuple, `d.key` for a
value of a dict. Names that are parameters of `forward` are passed by name, names that are none of them by
position.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from ...errors import UsageError

__all__ = ["Forward", "flatten", "forward_parameters", "mismatch", "nest", "place", "script_arguments"]

Forward: TypeAlias = Callable[..., Any] | inspect.Signature | None

_CONTAINERS: dict[type, str] = {list: "list", tuple: "tuple", dict: "dict"}


def flatten(value: Any, name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The leaves of nested lists, tuples and dicts by flat name, and the kind of each container by path."""
    kind = _CONTAINERS.get(type(value))
    if kind is None:
        return {name: value}, {}
    leaves: dict[str, Any] = {}
    containers = {name: kind}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if kind == "dict" and (not isinstance(key, str) or "." in key):
            raise UsageError(
                f"The dict given for {name!r} has the key {key!r}; keys must be strings without '.'."
            )
        below, kinds = flatten(item, f"{name}.{key}")
        leaves |= below
        containers |= kinds
    return leaves, containers


def nest(leaves: Mapping[str, Any], containers: Mapping[str, str]) -> dict[str, Any]:
    """Undo `flatten` for all inputs. A container of unknown kind is a list if its keys are 0, 1, …"""
    tree: dict[str, Any] = {}
    for path in containers:
        _branch(tree, path.split("."), path)
    for path, leaf in leaves.items():
        parts = path.split(".")
        branch = _branch(tree, parts[:-1], path)
        if parts[-1] in branch:
            raise UsageError(f"Two inputs are named {path!r}, or one is an item of the other.")
        branch[parts[-1]] = leaf
    return {name: _rebuilt(item, name, containers) for name, item in tree.items()}


class _Branch(dict[str, Any]):
    """A container under construction, told apart from the dicts a leaf may be."""


def _branch(tree: dict[str, Any], parts: list[str], path: str) -> dict[str, Any]:
    for part in parts:
        tree = tree.setdefault(part, _Branch())
        if not isinstance(tree, _Branch):
            raise UsageError(f"The input {path!r} is an item of another input, which is not a list or dict.")
    return tree


def _rebuilt(item: Any, path: str, containers: Mapping[str, str]) -> Any:
    if not isinstance(item, _Branch):
        return item
    values = {key: _rebuilt(below, f"{path}.{key}", containers) for key, below in item.items()}
    kind = containers.get(path) or ("list" if all(key.isdecimal() for key in values) else "dict")
    if kind == "dict":
        return values
    indices = [str(index) for index in range(len(values))]
    if sorted(values) != sorted(indices):
        raise UsageError(
            f"The items of {path!r} must be numbered {path}.0, {path}.1, …; got {', '.join(values)}."
        )
    ordered = [values[index] for index in indices]
    return tuple(ordered) if kind == "tuple" else ordered


def forward_parameters(forward: Forward) -> inspect.Signature | None:
    """The parameters of `forward`, of a module's `forward`, or of a TorchScript method; None if unknown."""
    if forward is None or isinstance(forward, inspect.Signature):
        return forward
    forward = getattr(forward, "forward", forward)
    schema = getattr(forward, "schema", None)
    if schema is not None and hasattr(schema, "arguments"):
        # inspect sees (*args, **kwargs) of a TorchScript method, or drops its first parameter.
        return inspect.Signature(
            [
                inspect.Parameter(
                    argument.name,
                    inspect.Parameter.KEYWORD_ONLY if argument.kwarg_only else _BY_EITHER,
                    default=argument.default_value
                    if argument.has_default_value()
                    else inspect.Parameter.empty,
                )
                for argument in script_arguments(forward)
            ]
        )
    try:
        return inspect.signature(forward)
    except (TypeError, ValueError):
        return None


def script_arguments(method: Any) -> list[Any]:
    """The arguments in the schema of a TorchScript method, without the module, whatever its class calls it."""
    arguments = list(method.schema.arguments)
    return arguments if type(method).__name__ == "ScriptFunction" else arguments[1:]


_BY_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, _BY_EITHER)


def place(names: Iterable[str], signature: inspect.Signature | None) -> tuple[list[str], list[str]]:
    """Which top-level names are passed by position, in order, and which by name.

    `*name` at the front marks a sequence to spread over the positional parameters. Raises `UsageError` for
    unknown and missing names, listing the parameters of `forward` with their defaults.
    """
    given = list(names)
    if signature is None:
        return given, []
    parameters = signature.parameters
    spread = next((p.name for p in parameters.values() if p.kind is p.VAR_POSITIONAL), None)
    takes_any_name = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = [p.name for p in parameters.values() if p.kind is not p.VAR_KEYWORD and p.name in given]
    unknown = [name for name in given if name not in named]
    if unknown and not named and not (takes_any_name and spread is None):
        return _by_position(given, signature)
    if unknown and not takes_any_name:
        raise UsageError(mismatch(signature, unknown=unknown))
    missing = [
        p.name
        for p in parameters.values()
        if p.name not in named and p.default is p.empty and p.kind in (*_BY_POSITION, p.KEYWORD_ONLY)
    ]
    if missing:
        raise UsageError(mismatch(signature, missing=missing))
    return _by_name(named, unknown, signature)


def _by_position(given: list[str], signature: inspect.Signature) -> tuple[list[str], list[str]]:
    parameters = list(signature.parameters.values())
    slots = [p for p in parameters if p.kind in _BY_POSITION]
    unlimited = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    required = [p.name for p in slots if p.default is p.empty]
    needed_by_name = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    missing = required[len(given) :] + needed_by_name
    unknown = [] if unlimited else given[len(slots) :]
    if missing or unknown:
        raise UsageError(mismatch(signature, unknown=unknown or given, missing=missing))
    return given, []


def _by_name(
    named: list[str], others: list[str], signature: inspect.Signature
) -> tuple[list[str], list[str]]:
    """By position as long as no parameter is left out, then by name."""
    positional: list[str] = []
    skipped: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind in _BY_POSITION:
            if parameter.name not in named:
                skipped.append(parameter.name)
            elif not skipped:
                positional.append(parameter.name)
            elif parameter.kind is parameter.POSITIONAL_ONLY:
                raise UsageError(mismatch(signature, missing=skipped))
        elif parameter.kind is parameter.VAR_POSITIONAL and parameter.name in named:
            if skipped:
                raise UsageError(mismatch(signature, missing=skipped))
            positional.append(f"*{parameter.name}")
    placed = {name.lstrip("*") for name in positional}
    return positional, [name for name in named if name not in placed] + others


def mismatch(signature: inspect.Signature, unknown: Iterable[str] = (), missing: Iterable[str] = ()) -> str:
    """What to tell the user, with the parameters of `forward` and their defaults."""
    lines = ["The inputs do not fit the model's forward."]
    for name in unknown:
        close = difflib.get_close_matches(name, signature.parameters, n=1)
        lines.append(
            f"  {name!r} is no parameter of it" + (f"; did you mean {close[0]!r}?" if close else ".")
        )
    lines += [f"  {name!r} is required and was not given." for name in missing]
    # Annotations make the list unreadable; names and defaults are what the user needs.
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    shown = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return "\n".join([*lines, f"  Its parameters: forward{shown}"])
