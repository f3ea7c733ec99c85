"""Reading PTX: the text that nvcc wrote, as functions of instructions. Nothing is interpreted here.

The language: PTX ISA, "Syntax" and "Directives". A module is read whole; a function's body when it is asked for.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .faults import NotInterpreted

__all__ = ["Body", "Function", "Instruction", "Module", "Parameter", "Place", "Variable", "read_module"]

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_HEADER = re.compile(
    r"(?P<linking>(?:\.(?:visible|weak|extern|common)\s+)*)\.(?P<kind>entry|func)\s+"
    r"(?:\([^)]*\)\s*)?(?P<name>[\w$%]+)\s*(?P<parameters>\([^)]*\))?(?P<rest>[^{;]*)(?P<end>[{;])"
)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+"
    r"(?:\.ptr\s+(?:\.\w+\s+)*?(?:\.align\s+\d+\s+)?)?(?P<name>[\w$]+)(?:\[(?P<count>\d+)\])?"
)
_VARIABLE = re.compile(
    r"(?P<extern>\.extern\s+)?(?:\.(?:visible|weak|common)\s+)*\.(?P<space>global|const|shared|local)\s+"
    r"(?:\.attribute\([^)]*\)\s*)?(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+(?P<name>[\w$]+)"
    r"(?P<dimensions>(?:\[\d*\])*)\s*(?:=\s*(?P<initial>[^;]*))?$",
    re.S,
)
_STATEMENT = re.compile(
    r"\s*(?:(?P<directive>\.loc\b[^\n]*)|(?P<label>[\w$]+)\s*:(?!:)|(?P<open>\{)|(?P<close>\})"
    r"|(?P<text>[^;{}]*(?:\{[^{}]*\}[^;{}]*)*);)"
)
_OPERATION = re.compile(
    r"(?:@(?P<not>!?)(?P<guard>[%\w$]+)\s+)?(?P<opcode>[a-z][\w.:]*)\s*(?P<operands>.*)$", re.S
)
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,\s][^,]*")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*inlined_at\s+(\d+)\s+(\d+))?")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.M)
_NAME = re.compile(r"[%$\w.]+")


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the CUDA source, and the one into which it was inlined."""

    file: str
    line: int
    caller: tuple[str, int] | None = None

    def __str__(self) -> str:
        inlined = f", inlined at {self.caller[0]}:{self.caller[1]}" if self.caller else ""
        return f"{self.file}:{self.line}{inlined}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        opcode: split at its points: ("ld", "global", "nc", "v4", "b32").
        operands: as written, without spaces; scoped registers have names of their own.
        guard: the predicate register, and whether it is negated.
        line: in the PTX, from 1 on.
        place: in the CUDA source, where the PTX says so.
    """

    opcode: tuple[str, ...]
    operands: tuple[str, ...]
    line: int
    text: str
    guard: str | None = None
    negated: bool = False
    place: Place | None = None

    def __str__(self) -> str:
        source = f", {self.place}" if self.place else ""
        return f"PTX line {self.line}{source}: {self.text}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel's parameter. `kind`: its PTX type; `offset`: bytes, in the space of parameters."""

    name: str
    kind: str
    offset: int
    size: int
    align: int


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable. `size`: bytes, 0 for an array whose size the launch gives; `content`: None where it begins as 0."""

    name: str
    space: str
    size: int
    align: int
    content: bytes | None = None


@dataclass(slots=True)
class Body:
    """The instructions of a function. `labels`: name -> number of the instruction that follows."""

    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)  # name, or prefix with < -> type
    variables: list[Variable] = field(default_factory=list)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)  # .branchtargets

    def register_type(self, name: str) -> str | None:
        found = self.registers.get(name)
        if found is None and (m := re.fullmatch(r"(%?[A-Za-z_$]+)\d+", name)):
            found = self.registers.get(m[1] + "<")
        return found


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel (`.entry`). `most_threads`: of .maxntid; None where it does not say."""

    name: str
    parameters: tuple[Parameter, ...]
    most_threads: int | None
    _module: Module
    _begin: int
    _end: int

    @property
    def parameter_bytes(self) -> int:
        return max((p.offset + p.size for p in self.parameters), default=0)

    def body(self) -> Body:
        """Raises NotInterpreted for what the reader does not understand."""
        return _read_body(self._module, self._begin, self._end)


@dataclass(slots=True)
class Module:
    """A PTX file. `variables`: those outside functions."""

    text: str
    kernels: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    files: Mapping[int, str] = field(default_factory=dict)
    lines: list[int] = field(default_factory=list)  # where each line begins

    def line_of(self, offset: int) -> int:
        return bisect_right(self.lines, offset)


def read_module(text: str) -> Module:
    """The kernels and variables of a PTX file. Raises NotInterpreted where it is none."""
    if not re.search(r"^\s*\.version\s+\d", text, re.M):
        raise NotInterpreted("a text without .version, which is no PTX")
    plain = _COMMENT.sub(lambda m: "\n" * m[0].count("\n"), text)
    # Offsets are those of `plain`, which has the lines of `text`.
    module = Module(plain)
    module.lines = [0, *(m.end() for m in re.finditer(r"\n", plain))]
    module.files = {int(n): path.rpartition("/")[2] for n, path in _FILE.findall(plain)}
    position, outside = 0, []
    while (m := _HEADER.search(plain, position)) is not None:
        outside.append(plain[position : m.start()])
        position = m.end()
        if m["end"] == ";":
            continue
        end = _matching(plain, m.end() - 1)
        if m["kind"] == "entry":
            most = re.search(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", m["rest"])
            threads = None if most is None else int(most[1]) * int(most[2] or 1) * int(most[3] or 1)
            parameters = tuple(_parameters(m["parameters"] or ""))
            module.kernels[m["name"]] = Function(m["name"], parameters, threads, module, m.end(), end)
        position = end + 1
    outside.append(plain[position:])
    for part in outside:
        for statement in re.sub(r"\.section[^{]*\{[^}]*\}", "", part).split(";"):
            variable = _variable(
                re.sub(r"^\s*\.(?:version|target|address_size|file)\b[^\n]*", "", statement, flags=re.M)
            )
            if variable is not None:
                module.variables[variable.name] = variable
    return module


def _matching(text: str, opening: int) -> int:
    depth = 0
    for m in re.compile(r"[{}]").finditer(text, opening):
        depth += 1 if m[0] == "{" else -1
        if depth == 0:
            return m.start()
    raise NotInterpreted("a function that does not end")


def _parameters(text: str) -> Iterator[Parameter]:
    offset = 0
    for m in _PARAMETER.finditer(text):
        width = bits_of(m["type"]) // 8
        size = width * int(m["count"] or 1)
        align = int(m["align"] or width)
        offset = -(-offset // align) * align
        yield Parameter(m["name"], m["type"], offset, size, align)
        offset += size


def bits_of(kind: str) -> int:
    """The width of a PTX type: 32 for `b32`, `f16x2`."""
    if kind == "pred":
        return 8
    m = re.fullmatch(r"(?:bf|[busf])(\d+)(x2)?", kind)
    if m is None:
        raise NotInterpreted(f".{kind}")
    return int(m[1]) * (2 if m[2] else 1)


def _variable(statement: str) -> Variable | None:
    m = _VARIABLE.match(statement.strip())
    if m is None:
        return None
    width = bits_of(m["type"]) // 8
    count = 1
    for n in re.findall(r"\[(\d*)\]", m["dimensions"]):
        count *= int(n or 0)
    content = None
    if m["initial"]:
        numbers = re.findall(r"[^\s{},]+", m["initial"])
        try:
            values = [int(n[2:], 16) if re.match(r"0[fFdD][0-9a-fA-F]{8}", n) else int(n, 0) for n in numbers]
        except ValueError:
            # the address of something; a kernel that uses it is not interpreted
            return Variable(m["name"], "unknown", width * count, width)
        content = b"".join((v % (1 << 8 * width)).to_bytes(width, "little") for v in values)
        count = max(count, len(values))
        content = content.ljust(width * count, b"\0")
    return Variable(m["name"], m["space"], width * count, int(m["align"] or width), content)


def _read_body(module: Module, begin: int, end: int) -> Body:
    body = Body()
    scopes: list[dict[str, str]] = []
    place: Place | None = None
    position, made = begin, 0
    text = module.text
    while (m := _STATEMENT.match(text, position, end)) is not None:
        position = m.end()
        if m["directive"]:
            place = _place(module, m["directive"]) or place
        elif m["label"]:
            if m["label"] in body.labels:
                raise NotInterpreted(f"the label {m['label']}, which is there twice")
            body.labels[m["label"]] = len(body.instructions)
        elif m["open"]:
            scopes.append({})
        elif m["close"]:
            scopes.pop()
        else:
            statement = m["text"].strip()
            made += 1
            line = module.line_of(m.start("text") + len(m["text"]) - len(m["text"].lstrip()))
            _read_statement(body, statement, line, place, scopes, made)
    rest = text[position:end].strip()
    if rest:
        raise NotInterpreted(rest.splitlines()[0][:60])
    return body


def _place(module: Module, directive: str) -> Place | None:
    m = _LOC.match(directive)
    if m is None or int(m[1]) not in module.files:
        return None
    caller = (module.files[int(m[3])], int(m[4])) if m[3] and int(m[3]) in module.files else None
    return Place(module.files[int(m[1])], int(m[2]), caller)


def _read_statement(
    body: Body, statement: str, line: int, place: Place | None, scopes: list[dict[str, str]], number: int
) -> None:
    if not statement:
        return
    if statement.startswith(".reg"):
        _read_registers(body, statement, scopes, number)
    elif statement.startswith((".shared", ".local")):
        variable = _variable(statement)
        if variable is None:
            raise NotInterpreted(statement)
        body.variables.append(variable)
    elif statement.startswith(".branchtargets"):
        # its label comes before it
        name = next(n for n, at in reversed(body.labels.items()) if at == len(body.instructions))
        body.targets[name] = tuple(n.strip() for n in statement.removeprefix(".branchtargets").split(","))
    elif statement.startswith((".pragma", ".callprototype")):
        return
    elif statement.startswith("."):
        raise NotInterpreted(statement.split()[0])
    else:
        body.instructions.append(_read_instruction(statement, line, place, scopes))


def _read_registers(body: Body, statement: str, scopes: list[dict[str, str]], number: int) -> None:
    m = re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", statement, re.S)
    if m is None:
        raise NotInterpreted(statement)
    for name in (n.strip() for n in m[2].split(",")):
        if name.endswith(">"):
            body.registers[name.partition("<")[0] + "<"] = m[1]
        elif scopes:
            scopes[-1][name] = f"%scoped{number}.{name.lstrip('%')}"
            body.registers[scopes[-1][name]] = m[1]
        else:
            body.registers[name] = m[1]


def _read_instruction(
    statement: str, line: int, place: Place | None, scopes: list[dict[str, str]]
) -> Instruction:
    m = _OPERATION.match(statement)
    if m is None:
        raise NotInterpreted(statement)
    known = {name: new for scope in scopes for name, new in scope.items()}

    def renamed(text: str) -> str:
        return _NAME.sub(lambda n: known.get(n[0], n[0]), text) if known else text

    operands = tuple(renamed("".join(o.split())) for o in _OPERAND.findall(m["operands"]))
    opcode = tuple(m["opcode"].replace("::", ":").split("."))
    guard = renamed(m["guard"]) if m["guard"] else None
    return Instruction(opcode, operands, line, " ".join(statement.split()), guard, bool(m["not"]), place)
