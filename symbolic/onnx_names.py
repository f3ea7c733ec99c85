"""The ONNX name of an operator, `domain::Type`: made from its torch name, or given; and which names are refused."""

from __future__ import annotations

import re

from ..errors import DeclarationError

__all__ = ["camel_case", "free_type", "read_onnx_name"]

# Domains that are not anybody's to declare in: standard ONNX, its old spelling, and the runtimes' own.
_FOREIGN_DOMAINS = ("", "ai.onnx", "com.microsoft", "com.ms.", "pkg.", "onnx_symbolic", "org.pytorch.aten")


def camel_case(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def free_type(name: str) -> str:
    """A type for an operator of this name that `read_onnx_name` takes: `ClipOp` for `clip`, as `Clip` is ONNX's own."""
    import onnx.defs

    op_type = camel_case(name)
    return f"{op_type}Op" if onnx.defs.has(op_type) else op_type


def read_onnx_name(name: str, onnx_name: str) -> tuple[str, str]:
    """Domain and type; refuses names that a runtime would take for another operator."""
    import onnx.defs

    domain, separator, op_type = onnx_name.rpartition("::")
    if not separator or not re.fullmatch(r"[A-Za-z_]\w*", op_type) or not re.fullmatch(r"[\w.\-]+", domain):
        raise DeclarationError(
            f"{name}: onnx = {onnx_name!r}: expected `domain::Type`, as in `acme::SwishBeta`"
        )
    if any(domain == d or (d.endswith(".") and domain.startswith(d)) for d in _FOREIGN_DOMAINS):
        raise DeclarationError(f"{name}: the domain `{domain}` belongs to ONNX or a runtime; use your own")
    if onnx.defs.has(op_type):
        raise DeclarationError(
            f"{name}: `{op_type}` is a standard ONNX operator, and TensorRT's parser takes the standard one "
            f"whatever the domain; name it otherwise, as in `{domain}::{op_type}Op`"
        )
    return domain, op_type
