"""From the instructions of a kernel to steps that the machine takes, in blocks that begin where lanes may come together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .collectives import COLLECTIVES, Collective, collective
from .faults import NotInterpreted
from .source import Body, Function, Instruction, Module, Variable, bits_of
from .steps import Run, step_of
from .values import Array

__all__ = ["Block", "Compiler", "Program", "Step", "compile_kernel"]

_SPECIAL = (
    *(f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"),
    "%laneid", "%warpid", "%nwarpid",
    *(f"%lanemask_{which}" for which in ("eq", "le", "lt", "ge", "gt")),
)  # fmt: skip
_VARIABLES_AT = 0x6F0000000000


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction, ready to run. `guard`: the register of its predicate; −1: none."""

    run: Run
    guard: int
    negated: bool
    instruction: Instruction


@dataclass(slots=True)
class Block:
    """Steps that the same lanes take.

    Attributes:
        collective: what they meet at first; with a `guard`, those for whom it holds (`negated`: does not), and nothing else is
            in the block.
        condition: the register that says who goes to `target`; −1: all do, or the choice is `table`'s.
        target, next: numbers of blocks; −1: the end of the kernel.
    """

    steps: list[Step] = field(default_factory=list)
    collective: Collective | None = None
    guard: int = -1
    instruction: Instruction | None = None  # of the collective, or of the first step
    condition: int = -1
    negated: bool = False
    target: int = -1
    next: int = -1
    table: tuple[int, ...] = ()
    index: int = -1


@dataclass(frozen=True, slots=True)
class Program:
    """A kernel, ready to run.

    Attributes:
        registers: what each holds at the beginning; constants are registers that nobody writes.
        special: name of a special register -> its number.
        shared_size, local_size: bytes for each block, without what the launch gives; for each thread.
        granule: bytes of the smallest access to shared memory.
        variables: of the module, with their addresses.
    """

    function: Function
    blocks: tuple[Block, ...]
    registers: tuple[Array, ...]
    special: Mapping[str, int]
    shared_size: int
    local_size: int
    granule: int
    variables: tuple[tuple[Variable, int], ...]


class Compiler:
    """Numbers of registers, constants and variables, while a kernel is compiled."""

    def __init__(self, module: Module, function: Function, body: Body) -> None:
        self._body = body
        self._numbers: dict[str, int] = {}
        self.registers: list[Array] = []
        self.special: dict[str, int] = {}
        self.symbols: dict[str, int] = {}
        self._unknown = {v.name for v in module.variables.values() if v.space == "unknown"}
        self.variables: list[tuple[Variable, int]] = []
        self.shared_size = self.local_size = 0
        at = _VARIABLES_AT
        for v in module.variables.values():
            if v.space in ("global", "const"):
                at = -(-at // max(v.align, 256)) * max(v.align, 256)
                self.symbols[v.name] = at
                self.variables.append((v, at))
                at += v.size + 256
        for v in (*body.variables, *(v for v in module.variables.values() if v.space == "shared" and v.size)):
            if v.space == "shared":
                self.shared_size = -(-self.shared_size // v.align) * v.align
                self.symbols[v.name] = self.shared_size
                self.shared_size += v.size
            else:
                self.local_size = -(-self.local_size // v.align) * v.align
                self.symbols[v.name] = self.local_size
                self.local_size += v.size
        # What the launch gives comes behind, aligned as CUDA promises.
        self.shared_size = -(-self.shared_size // 16) * 16
        for v in module.variables.values():
            if v.space == "shared" and not v.size:
                self.symbols[v.name] = self.shared_size
        for p in function.parameters:
            self.symbols[p.name] = p.offset

    def width(self, name: str, instruction: Instruction) -> int:
        """Bytes of a register."""
        kind = self._body.register_type(name)
        if kind is None:
            raise NotInterpreted(f"{instruction.text} (the operand {name})")
        return 1 if kind == "pred" else bits_of(kind) // 8

    def target(self, name: str, instruction: Instruction) -> int:
        """The number of a register that is written."""
        found = self._numbers.get(name)
        if found is None:
            size = self.width(name, instruction)
            is_predicate = self._body.register_type(name) == "pred"
            # nobody has written it yet: no number
            nothing = np.False_ if is_predicate else np.dtype(f"u{size}").type((1 << 8 * size) - 1)
            found = self._numbers[name] = self._new(nothing)
        return found

    def _new(self, value: Array) -> int:
        self.registers.append(value)
        return len(self.registers) - 1

    def source(self, text: str, dtype: np.dtype[Any], instruction: Instruction) -> int:
        """The number of a register that is read, or that holds a constant."""
        if text in _SPECIAL:
            if text not in self.special:
                self.special[text] = self._new(np.uint32(0))
            return self.special[text]
        if self._body.register_type(text) is not None:
            return self.target(text, instruction)
        key = f"{dtype.str} {text}"
        if key not in self._numbers:
            self._numbers[key] = self._new(self._constant(text, dtype, instruction))
        return self._numbers[key]

    def _constant(self, text: str, dtype: np.dtype[Any], instruction: Instruction) -> Array:
        if m := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})", text):
            single = m[1] is not None
            bits = np.uint32(int(m[1], 16)) if single else np.uint64(int(m[2], 16))
            if dtype.itemsize == bits.dtype.itemsize:
                return bits.view(dtype)
            if dtype.kind == "f":
                return bits.view(np.float32 if single else np.float64).astype(dtype)
        elif m := re.fullmatch(r"(-?)(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?", text):
            digits = m[2]
            octal = re.fullmatch(r"0[0-7]+", digits)
            value = int(digits, 8) if octal else int(digits, 0)
            value = -value if m[1] else value
            if dtype.kind == "b":
                return np.bool_(value != 0)
            return np.dtype(f"u{dtype.itemsize}").type(value % (1 << 8 * dtype.itemsize)).view(dtype)
        elif text == "WARP_SZ":
            return dtype.type(32)
        else:
            name, _, offset = text.partition("+")
            if name in self.symbols and dtype.kind in "iu":
                return dtype.type(self.symbols[name] + int(offset or 0))
        raise NotInterpreted(f"{instruction.text} (the operand {text})")

    def address(self, text: str, instruction: Instruction) -> tuple[int, int]:
        """The register and the offset of `[…]`."""
        m = re.fullmatch(r"\[([^+\]]+)(?:\+(-?\w+))?\]", text)
        if m is None:
            raise NotInterpreted(f"{instruction.text} (the address {text})")
        return self.source(m[1], np.dtype("u8"), instruction), int(m[2] or "0", 0)


def compile_kernel(module: Module, function: Function) -> Program:
    """Raises NotInterpreted for an instruction, or a construct, that is not known."""
    body = function.body()
    compiler = Compiler(module, function, body)
    blocks, starts = _empty_blocks(body)
    for number, (begin, end) in enumerate(starts):
        _fill(compiler, body, blocks, number, begin, end, {first: n for n, (first, _) in enumerate(starts)})
    return Program(
        function,
        tuple(blocks),
        tuple(compiler.registers),
        compiler.special,
        compiler.shared_size,
        compiler.local_size,
        _granule(body),
        tuple(compiler.variables),
    )


def _granule(body: Body) -> int:
    sizes = [
        bits_of(i.opcode[-1]) // 8
        for i in body.instructions
        if i.opcode[0] in ("ld", "st", "atom", "red")
        and not {"global", "param", "local", "const"} & set(i.opcode)
    ]
    return min([4, *sizes])


def _empty_blocks(body: Body) -> tuple[list[Block], list[tuple[int, int]]]:
    """Where each block begins and ends, in instructions."""
    cuts = {0, len(body.instructions), *body.labels.values()}
    for n, i in enumerate(body.instructions):
        if i.opcode[0] in ("bra", "brx", "ret", "exit", "trap"):
            cuts.add(n + 1)
        if i.opcode[0] in COLLECTIVES:
            cuts.add(n)
            if i.guard is not None:
                cuts.add(n + 1)
    ordered = sorted(cuts)
    spans = [(a, b) for a, b in zip(ordered, [*ordered[1:], ordered[-1]], strict=True) if a < b]
    return [Block() for _ in spans], spans


def _fill(
    compiler: Compiler,
    body: Body,
    blocks: list[Block],
    number: int,
    begin: int,
    end: int,
    starts: Mapping[int, int],
) -> None:
    block = blocks[number]
    block.target = block.next = starts.get(end, -1)
    for i in body.instructions[begin:end]:
        block.instruction = block.instruction or i
        name = i.opcode[0]
        guard = -1 if i.guard is None else compiler.source(i.guard, np.dtype(bool), i)
        if name in ("bra", "brx", "ret", "exit"):
            if name == "brx":
                if guard >= 0:
                    raise NotInterpreted.of(i)
                block.index = compiler.source(i.operands[0], np.dtype("u4"), i)
                block.table = tuple(_block_at(body, starts, n) for n in _branch_targets(body, i))
            else:
                block.target = _block_at(body, starts, i.operands[0]) if name == "bra" else -1
                block.condition, block.negated = guard, i.negated
            continue
        if name in COLLECTIVES:
            block.collective = collective(compiler, i)
            block.guard, block.negated = guard, i.negated
            continue
        block.steps.append(Step(step_of(compiler, i), guard, i.negated, i))


def _branch_targets(body: Body, i: Instruction) -> tuple[str, ...]:
    name = i.operands[1]
    if name not in body.targets:
        raise NotInterpreted(i.text)
    return body.targets[name]


def _block_at(body: Body, starts: Mapping[int, int], label: str) -> int:
    if label not in body.labels:
        raise NotInterpreted(f"a branch to {label}")
    return starts.get(body.labels[label], -1)
