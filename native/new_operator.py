"""Start a new operator: a declaration, its kernel with the exact signature, and a test that runs."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from .cpp_types import identifier
from .generated import template
from .kernel_files import kernel_places
from .output_files import replace_file
from .shape_rules import FromKernel, shape_rules
from .signature import check_compilable, function_name, signature

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["DEFAULT_SIGNATURE", "new_kernel", "new_operator"]

DEFAULT_SIGNATURE = "(x: Tensor, scale: float = 1.0) -> Tensor"
_VALUES = {"float": "1.0", "int": "1", "bool": "True", "str": '""', "torch.dtype": "torch.float32"}


def new_operator(name: str, folder: Path, python_signature: str = DEFAULT_SIGNATURE) -> list[Path]:
    """Write `NAME.py`, `kernels/NAME.h` and `test_NAME.py` into `folder`; returns them.

    Args:
        name: the torch operator, `acme::hard_swish`.
        python_signature: of the function, `(x: Tensor, bias: Tensor | None = None, alpha: float = 1.0) -> Tensor`.

    The operator copies its first tensor, in the reference as in the kernel: it compiles and its test passes before
    anything is written. Raises UsageError where a file is there already, or the signature has no place in ONNX.
    """
    namespace, _, short = name.partition("::")
    if not all(p.isidentifier() and p.isascii() and not keyword.iskeyword(p) for p in (namespace, short)):
        raise UsageError(f"{name!r}: an operator is called `namespace::name`, both identifiers")
    declaration, test = folder / f"{short}.py", folder / f"test_{short}.py"
    kernel = folder / "kernels" / f"{identifier(short)}.h"
    _refuse_existing((declaration, test, kernel))
    text = _declaration(name, short, python_signature)
    _write(declaration, text)
    try:
        op = _loaded(declaration, name)
        _write(kernel, _kernel(op, copying=True))
    except BaseException:
        declaration.unlink(missing_ok=True)
        raise
    _write(test, _test(op, declaration.name))
    return [declaration, kernel, test]


def new_kernel(op: Operator) -> list[Path]:
    """Write the kernel and the test of an operator that is declared already; returns them.

    The kernel refuses to run until it is written. Raises UsageError where one is there already.
    """
    check_compilable(op)
    places = kernel_places(op, ".h")
    if not places:
        raise UsageError(f"{op.name} was declared in no file, so its kernel has no place")
    test = Path(op.source).with_name(f"test_{function_name(op)}.py")
    _refuse_existing((*places, test))
    _write(places[0], _kernel(op, copying=False))
    _write(test, _test(op, Path(op.source).name))
    return [places[0], test]


def _declaration(name: str, short: str, python_signature: str) -> str:
    try:
        tree = ast.parse(f"def {short}{python_signature.strip().removesuffix(':')}: ...")
    except SyntaxError as e:
        raise UsageError(f"the signature {python_signature!r} is no Python: {e.msg}") from None
    function = tree.body[0]
    if len(tree.body) != 1 or not isinstance(function, ast.FunctionDef):
        raise UsageError(f"the signature {python_signature!r} is no function's signature")
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    tensors = [a.arg for a in arguments if _annotation(a).startswith(("Tensor", "list[Tensor"))]
    required = [a for a in arguments if _annotation(a) in ("Tensor", "list[Tensor]")]
    returns = ast.unparse(function.returns) if function.returns else ""
    count = _results(returns)
    if not required or count == 0:
        raise UsageError(
            f"the signature {python_signature!r} has no tensor to start from, or returns none; "
            f"one such as `{DEFAULT_SIGNATURE}` is expected"
        )
    first = required[0].arg + ("[0]" if _annotation(required[0]).startswith("list") else "")

    def each(expression: str) -> str:
        return ", ".join([expression] * count)

    return template("new_declaration.py.j2").render(
        name=name,
        function=short,
        signature=python_signature.strip().removesuffix(":").strip(),
        parameters=", ".join(a.arg for a in arguments),
        results="a copy" if count == 1 else f"{count} copies",
        first=f"`{first}`",
        returned=each(f"{first}.clone()"),
        empty=each(f"torch.empty_like({first})"),
        identity=each(f"op.Identity({first})"),
        call=_sample_call(function.args, tensors),
    )


def _sample_call(arguments: ast.arguments, tensors: Sequence[str]) -> str:
    """A call with every tensor, and with what has no default: `draw(SHAPE), alpha=1.0`."""
    plain = [*arguments.posonlyargs, *arguments.args]
    without = {a.arg for a in plain[: len(plain) - len(arguments.defaults)]}
    without |= {a.arg for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is None}
    pieces = []
    for a in [*plain, *arguments.kwonlyargs]:
        kind = _annotation(a)
        if a.arg in tensors:
            value = "[draw(SHAPE), draw(SHAPE)]" if kind.startswith("list") else "draw(SHAPE)"
        elif a.arg in without:
            element = kind.removeprefix("list[").removesuffix("]")
            value = _VALUES.get(element, "None")
            value = f"[{value}, {value}]" if kind.startswith("list") else value
        else:
            continue
        pieces.append(f"{a.arg}={value}")
    return ", ".join(pieces)


def _annotation(a: ast.arg) -> str:
    text = ast.unparse(a.annotation) if a.annotation else ""
    return re.sub(r"\btorch\.Tensor\b", "Tensor", text.replace("Sequence[", "list["))


def _results(returns: str) -> int:
    if returns.replace("torch.", "") == "Tensor":
        return 1
    return len(re.findall(r"\bTensor\b", returns)) if returns.startswith("tuple[") else 0


def _loaded(declaration: Path, name: str) -> Operator:
    from ..symbolic import registry

    found = [op for op in registry.load([str(declaration)]) if op.name == name]
    if not found:
        raise UsageError(f"{declaration} declares no {name}")
    return found[0]


def _kernel(op: Operator, *, copying: bool) -> str:
    by_kernel = [n for n, rule in shape_rules(op).items() if isinstance(rule, FromKernel)]
    text = signature(op, by_kernel)
    # What is not used yet is no reason for a warning.
    head, _, parameters = text.partition("(")
    pieces = re.split(r", (?![^<]*>)", parameters.removesuffix(")"))
    first = next(i for i in op.interface.inputs if i.form != "optional")
    copied = identifier(first.name) + ("[0]" if first.form == "variadic" else "")
    outputs = [p.rpartition(" ")[2] for p in pieces[-len(op.interface.outputs) :]]
    used = {"par", identifier(first.name), *outputs} if copying else set()
    named = [p if p.rpartition(" ")[2] in used else f"[[maybe_unused]] {p}" for p in pieces]
    lines = f"{head}({', '.join(named)})"
    return template("new_kernel.h.j2").render(
        name=op.name, signature=_wrapped(lines), copied=copied if copying else None, outputs=outputs
    )


def _wrapped(text: str) -> str:
    """A declaration broken at its commas, 110 characters a line."""
    lines = [""]
    for piece in re.split(r"(?<=,) (?![^<]*>)", text):
        if len(lines[-1]) + len(piece) > 108:
            lines.append("    " + piece)
        else:
            lines[-1] += (" " if lines[-1] else "") + piece
    return "\n".join(lines)


def _test(op: Operator, declaration: str) -> str:
    return template("new_test.py.j2").render(
        name=op.name, function=function_name(op), declaration=declaration
    )


def _refuse_existing(paths: Sequence[Path]) -> None:
    there = [str(p) for p in paths if p.exists()]
    if there:
        raise UsageError(f"{', '.join(there)} is there already; nothing was written")


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UsageError(f"{path.parent} cannot be made: {e.strerror}") from None
    replace_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
