"""What compilers say of the arguments of a generated call, in the terms of whoever declared them."""

from __future__ import annotations

import re

__all__ = [
    "is_about_attributes",
    "is_about_streams",
    "of_any_types",
    "plain_arguments",
    "workspace_signature",
]

# `Attribute` of operator_call.h, with up to two levels of templates within; and the expression that makes one
_CARRIER = "deployops::detail::Attribute<"
_ATTRIBUTE = re.compile(rf"(?:const )?{_CARRIER}((?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*?) ?>(?: ?&)?(?!\w|::|\()")
_EXPRESSION = re.compile(r"['‘][^'’]*exact\(\)['’] \(type (['‘][^'’]*['’])\)")
# `operator std::optional` there, which is deleted, and the optional's own constructor
_AMBIGUOUS = re.compile(r"^conversion from (\S.*?) to (\S.*) is ambiguous$")
_MORE_THAN_ONE = re.compile(r"^more than one user-defined conversion from (\S.*?) to (\S.*?) applies:.*$")
_ARGUMENT_TYPES = re.compile(r" \(argument types are: .*\)$")  # nvcc's


def is_about_attributes(message: str) -> bool:
    """Whether it names what carries an attribute to a parameter."""
    return _CARRIER in message


def is_about_streams(message: str) -> bool:
    """Whether it names what a launcher is called with that takes a plain stream and needs ours."""
    return "StreamAlone" in message


def plain_arguments(message: str) -> str:
    """The message, with the types of attributes in place of what carries them."""
    message = _ATTRIBUTE.sub(r"\1", _EXPRESSION.sub(r"\1", message))
    for said in (_AMBIGUOUS, _MORE_THAN_ONE):
        message = said.sub(r"cannot convert \1 to \2", message)
    return message


def of_any_types(message: str) -> str:
    """What it has in common with the same message about other types."""
    return re.sub(r"'[^']*'|‘[^’]*’", "…", _ARGUMENT_TYPES.sub("", message))


def workspace_signature(launcher: str, messages: list[str]) -> str:
    """How the function beside a launcher is declared that says its workspace, where these messages are about it.

    `launcher`: as by `cuda_signature`. Empty where they are not, and for kernels on the CPU.
    """
    name = re.search(r"\bcudaError_t (\w+)\(", launcher)
    if name is None or not any(f"{name[1]}_workspace" in message for message in messages):
        return ""
    return re.sub(r"\bcudaError_t (\w+)\(Stream stream(?:, )?", r"size_t \1_workspace(", launcher)
