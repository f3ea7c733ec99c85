"""Start a new operator: a declaration, its kernel with the exact signature, and a test that runs."""

from __future__ import annotations

import ast
import importlib.util
import keyword
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from .cpp_types import identifier
from .kernel_files import kernel_places
from .output_files import replace_file
from .rendering import template
from .shape_rules import FromKernel, shape_rules
from .signature import check_compilable, function_name, signature

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["DEFAULT_SIGNATURE", "new_kernel", "new_operator"]

DEFAULT_SIGNATURE = "(x: Tensor, scale: float = 1.0) -> Tensor"
_LONGEST = 100  # characters of a name: files are called after it, and file names end at 255 bytes
# The names that the generated files use themselves, and what they would be mistaken for.
_TAKEN_ARGUMENTS = {
    "op": "the ONNX body's first parameter",
    "par": "the kernel's first parameter",
    "torch": "the module that the declaration uses",
}
_TAKEN_FUNCTIONS = ("Any", "Iterator", "Tensor", "_")  # other modules' names in the declaration
_VALUES = {"float": "1.0", "int": "1", "bool": "True", "str": '""', "torch.dtype": "torch.float32"}


def new_operator(name: str, folder: Path, python_signature: str = DEFAULT_SIGNATURE) -> list[Path]:
    """Write `NAME.py`, `kernels/NAME.h` and `test_NAME.py` into `folder`; returns them.

    Args:
        name: the torch operator, `acme::hard_swish`.
        python_signature: of the function, `(x: Tensor, bias: Tensor | None = None, alpha: float = 1.0) -> Tensor`.

    The operator copies its first tensor, in the reference as in the kernel: it compiles and its test passes before
    anything is written. Raises UsageError where a file is there already, the name or an argument's stands for
    something else, or the signature has no place in ONNX. What the signature says is not run: it holds types and
    literal defaults, or is refused.
    """
    namespace, _, short = name.partition("::")
    if not all(p.isidentifier() and p.isascii() and not keyword.iskeyword(p) for p in (namespace, short)):
        raise UsageError(f"{name!r}: an operator is called `namespace::name`, both identifiers")
    if len(namespace) > _LONGEST or len(short) > _LONGEST:
        raise UsageError(f"{name[:40]}…: a namespace or a name has at most {_LONGEST} characters")
    declaration, test = folder / f"{short}.py", folder / f"test_{short}.py"
    kernel = folder / "kernels" / f"{identifier(short)}.h"
    _refuse_existing((declaration, test, kernel))
    _refuse_shadowing(name, short)
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
    for attribute in op.interface.attributes:
        if attribute.is_list and attribute.onnx_type.startswith("STRING"):
            raise UsageError(f"{op.name}: {_no_texts(attribute.name)}")
    places = kernel_places(op, ".h")
    if not places:
        raise UsageError(f"{op.name} was declared in no file, so its kernel has no place")
    test = Path(op.source).with_name(f"test_{function_name(op)}.py")
    _refuse_existing((*places, test))
    _write(places[0], _kernel(op, copying=False))
    _write(test, _test(op, Path(op.source).name))
    return [places[0], test]


def _declaration(name: str, short: str, python_signature: str) -> str:
    function = _parsed(short, python_signature)
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    for a in arguments:
        if a.arg in _TAKEN_ARGUMENTS:
            raise UsageError(
                f"an argument cannot be called `{a.arg}`, as {_TAKEN_ARGUMENTS[a.arg]} is: give it another name"
            )
        if len(a.arg) > _LONGEST:
            raise UsageError(f"the argument {a.arg[:40]}… has a name of more than {_LONGEST} characters")
        if re.search(r"\blist\[str\b", _annotation(a)):
            raise UsageError(_no_texts(a.arg))
    tensors = [a.arg for a in arguments if _annotation(a).startswith(("Tensor", "list[Tensor"))]
    given = [a.arg for a in arguments if a.arg in tensors and "None" not in _annotation(a)]
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
        call_without=_sample_call(function.args, given) if len(given) < len(tensors) else None,
    )


def _parsed(short: str, python_signature: str) -> ast.FunctionDef:
    """The signature as Python reads it. What it says is loaded afterwards, so nothing in it may run code."""
    head = python_signature.strip().removesuffix(":")
    try:
        tree = ast.parse(f"def {short}{head}:\n    ...\n")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise UsageError(
            f"the signature {python_signature!r} is no Python: {getattr(e, 'msg', None) or e}"
        ) from None
    function = tree.body[0]
    alone = len(tree.body) == 1 and head.startswith("(")
    if (
        not alone
        or not isinstance(function, ast.FunctionDef)
        or [ast.unparse(s) for s in function.body] != ["..."]
    ):
        raise UsageError(f"the signature {python_signature!r} is no function's signature")
    args = function.args
    if args.vararg or args.kwarg:
        raise UsageError(f"the signature {python_signature!r}: an operator takes no *args and no **kwargs")
    for default in [*args.defaults, *(d for d in args.kw_defaults if d is not None)]:
        if not _is_literal(default):
            raise UsageError(
                f"the signature's default `{ast.unparse(default)}` is no literal: a number, text, True, False, None, "
                "a list of these, or a dtype such as torch.float32 is expected"
            )
    annotations = [a.annotation for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    for annotation in [*annotations, function.returns]:
        if annotation is not None and not _is_type(annotation):
            raise UsageError(
                f"the signature's annotation `{ast.unparse(annotation)}` is no type that an operator takes: "
                "names, `torch.dtype`, `list[int]`, `Tensor | None` and `tuple[Tensor, Tensor]` are expected"
            )
    return function


def _is_literal(node: ast.expr) -> bool:
    if _is_of_torch(node):
        return True
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return False
    return True


def _is_of_torch(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch"


def _is_type(node: ast.expr) -> bool:
    """Whether an annotation is made of names alone: a text would be evaluated when the operator is declared."""
    if isinstance(node, ast.Subscript):
        return _is_type(node.value) and _is_type(node.slice)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitOr) and _is_type(node.left) and _is_type(node.right)
    if isinstance(node, ast.Tuple):
        return all(_is_type(e) for e in node.elts)
    if isinstance(node, ast.Constant):
        return node.value is None
    return isinstance(node, ast.Name) or _is_of_torch(node)


def _no_texts(argument: str) -> str:
    return f"`{argument}` is a list of texts, which a native library cannot carry: pass one str, or numbers"


def _sample_call(arguments: ast.arguments, tensors: Sequence[str]) -> str:
    """A call with these tensors, and with what has no default: `x=draw(SHAPE), alpha=1.0`."""
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
    taken = {p.rpartition(" ")[2] for p in pieces}
    i, begin, end = (_free(name, taken) for name in ("i", "begin", "end"))
    return template("new_kernel.h.j2").render(
        name=op.name, signature=_wrapped(lines), copied=copied if copying else None, outputs=outputs,
        i=i, begin=begin, end=end,
    )  # fmt: skip


def _free(name: str, taken: set[str]) -> str:
    """A name for a variable of the kernel that hides none of its parameters."""
    while name in taken:
        name += "_"
    return name


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


def _refuse_shadowing(name: str, short: str) -> None:
    """Python would find the declaration NAME.py where it looks for a module of that name."""
    try:
        module = short in sys.stdlib_module_names or importlib.util.find_spec(short) is not None
    except ValueError:  # imported already, by other means than its name
        module = True
    if module:
        raise UsageError(
            f"{name}: its file {short}.py would stand in for the Python module `{short}` that is there already: "
            "give the operator another name"
        )
    if short in _TAKEN_FUNCTIONS:
        raise UsageError(
            f"{name}: the declaration uses `{short}` for something else: give the operator another name"
        )


def _refuse_existing(paths: Sequence[Path]) -> None:
    try:
        there = [str(p) for p in paths if p.exists()]
    except OSError as e:
        raise UsageError(f"{paths[0].parent} cannot be written into: {e.strerror}") from None
    if there:
        raise UsageError(f"{', '.join(there)} is there already; nothing was written")


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UsageError(f"{path.parent} cannot be made: {e.strerror}") from None
    replace_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
