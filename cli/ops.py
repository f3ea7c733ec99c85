"""deployops ops: list, check, new, lock"""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from ..errors import UsageError
from .options import chosen_operators, declared, json_option, packs_option, print_json

__all__ = ["ops"]


@click.group()
def ops() -> None:
    """The declared operators."""


@ops.command("list")
@packs_option()
@json_option()
def ops_list(packs: tuple[str, ...], as_json: bool) -> None:
    """List the declared operators."""
    operators = declared(packs)
    if as_json:
        from ..symbolic.checking.lock import signature

        print_json([signature(op) for op in operators])
        return
    rows = [(op.name, f"{op.onnx_name} v{op.version}", "(" + op.schema.partition("(")[2]) for op in operators]
    widths = [max(len(r[k]) for r in rows) for k in (0, 1)] if rows else [0, 0]
    for name, onnx_name, text in rows:
        click.echo(f"{name:{widths[0]}}  {onnx_name:{widths[1]}}  {text}")


@ops.command("check")
@click.argument("names", nargs=-1)
@packs_option()
@click.option("--library", type=click.Path(), metavar="LIB.so", help="Check the kernels in this library too.")
@json_option()
def ops_check(names: tuple[str, ...], packs: tuple[str, ...], library: str | None, as_json: bool) -> None:
    """Check declarations: opcheck, gradients, fake kernel, body and lock, on every sample and dtype.

    NAMES limits it to some operators; without it, those of --ops, or the shipped ones where none are given.

    Exit codes: 0 nothing failed (what was not checked is told), 1 a check failed, 2 wrong use.
    """
    from ..symbolic.checking import operator_check

    chosen = chosen_operators(names, packs)
    results = [r for op in chosen for r in operator_check.check_operator(op)]
    if library is not None:
        from ..ort_ops.kernel_check import check_kernels

        results += check_kernels(library, chosen)
    print_json([dataclasses.asdict(r) for r in results]) if as_json else click.echo(
        operator_check.render(results)
    )
    click.get_current_context().exit(operator_check.exit_code(results))


@ops.command("new")
@click.argument("name")
@click.option(
    "--signature",
    metavar="PYTHON",
    help="Of the function: '(x: Tensor, bias: Tensor | None = None, alpha: float = 1.0) -> Tensor'.",
)
@click.option(
    "--into", type=click.Path(), default=".", show_default=True, metavar="DIR", help="Where the files go."
)
@packs_option(
    "Python that declares NAME already: only its kernel and test are written. Repeatable; it is run."
)
def ops_new(name: str, signature: str | None, into: str, packs: tuple[str, ...]) -> None:
    """Start the operator NAME (acme::hard_swish): a declaration, a kernel, and a test that runs.

    The three agree and compile as they are written: the operator copies its first tensor. Change them together.
    """
    from pathlib import Path

    from ..native.new_operator import DEFAULT_SIGNATURE, new_kernel, new_operator

    if packs:
        if signature is not None:
            raise UsageError("--signature is for a new operator; --ops declares one already")
        files = [f for op in chosen_operators((name,), packs) for f in new_kernel(op)]
    else:
        files = new_operator(name, Path(into), signature or DEFAULT_SIGNATURE)
    for file in files:
        click.echo(str(file))


@ops.command("lock")
@click.option(
    "--ops",
    "packs",
    multiple=True,
    metavar="FILE",
    help="Python that declares operators; the lock stands beside it.",
)
def ops_lock(packs: tuple[str, ...]) -> None:
    """Record the signatures of new operators, which from then on never change."""
    from ..symbolic.checking import lock

    files: dict[Any, list[Any]] = {}
    for op in chosen_operators((), packs):
        files.setdefault(lock.lock_file(op), []).append(op)
    for path, operators in files.items():
        if path is None:
            raise UsageError(
                f"{operators[0].name} was declared in no file: there is no place for a lock beside it"
            )
        lock.write(path, operators)
        click.echo(f"{path}: {len(operators)} operator{'' if len(operators) == 1 else 's'}")
    click.echo(
        "A locked signature stays: `deployops ops check` says whether the declarations hold.", err=True
    )
