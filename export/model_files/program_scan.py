"""Find what a torch.export archive (.pt2) would run when it is loaded, without loading it.

Measured with torch 2.13, `torch.export.load` and `ExportedProgram.module()` run code from the file in these
ways:

- pickles: weights and constants marked `use_pickle`; constants whose path begins with `custom_obj_` or
  `opaque_obj_`, marked or not; sample inputs (the restricted unpickler is tried first, then the unrestricted one);
- symbolic sizes: every `expr_str` goes through `sympy.sympify`, which evaluates it as Python;
- `guards_code`: compiled by `.module()` and executed when the result is called;
- names of values, inputs and parameters: pasted into the Python source of the graph module;
- operator targets: any attribute path below `torch`, `torch.os.system` for one, becomes a call;
- tree specs: `defaultdict` and enum contexts import the module they name;
- compiled code (`data/aotinductor/`): opened as a shared library.

So each of these strings must match a narrow grammar; what does not is listed.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .archive import DamagedFileError, open_archive
from .archive_members import CONSTANT_PATH, WEIGHT_PATH, unknown_program_members
from .pickle_scan import scan_pickle, unsafe_globals
from .program_strings import Expressions, is_plain_text, unsafe_in_tree_spec
from .script_scan import HOSTILE_NAMESPACES, HOSTILE_OPERATORS

__all__ = ["ProgramScan", "scan_program", "scan_saved_object"]

_COMPARISONS = "eq ne le ge lt gt neg pos mul add sub floordiv mod pow truediv and_ or_ lshift rshift getitem"
_SIZE_FUNCTIONS = "sym_not sym_int sym_float sym_ite sym_max sym_min sym_sqrt _sym_sqrt"
_SYMBOLIC_OPERATORS = frozenset(
    [f"_operator.{name}" for name in _COMPARISONS.split()]
    + [f"torch.{name}" for name in _SIZE_FUNCTIONS.split()]
    + ["math.trunc", "math.floor", "math.ceil", "math.sqrt"]
)
_HIGHER_ORDER = (
    "cond while_loop scan map_impl associative_scan invoke_subgraph wrap wrap_with_set_grad_enabled "
    "wrap_with_autocast auto_functionalized auto_functionalized_v2 with_effects flex_attention strict_mode"
)
_OPERATOR = re.compile(r"torch\.ops\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)", re.ASCII)
_HIGHER_ORDER_OPERATOR = re.compile(r"torch\.ops\.higher_order\.([a-z]\w*)", re.ASCII)
_PREDISPATCH = re.compile(r"torch\._functorch\.predispatch\._[a-z]\w*", re.ASCII)

# Dictionaries whose keys are names of the model, not fields of the format.
_MAPS = (
    "tensor_values sym_int_values sym_float_values sym_bool_values custom_obj_values range_constraints "
    "opset_version config as_string_to_argument treespec_namedtuple_fields"
)
_NUMBERS = {"as_int": int, "min_val": int, "max_val": int, "as_bool": bool}
_LABELS = "parameter_name buffer_name tensor_constant_name custom_obj_name user_input_name fqn"


@dataclass(frozen=True, slots=True)
class ProgramScan:
    """`globals` of all pickles; `unsafe`: globals and other findings; `operators` as `ns::op.overload`."""

    globals: tuple[str, ...]
    unsafe: tuple[str, ...]
    operators: tuple[str, ...]


def scan_program(names: Iterable[str], read: Callable[[str], bytes]) -> ProgramScan:
    """Scan an archive given the names of its members below the root and a function that reads one.

    Raises DamagedFileError where a member is not what its place in the archive says.
    """
    names = list(names)
    findings = {f"member {name!r}": None for name in unknown_program_members(names)}
    imported: dict[str, None] = {}
    operators: set[str] = set()
    pickled: set[str] = set()
    expressions = Expressions()
    for name in names:
        folded = name.casefold()  # as torch's reader compares
        config = folded.startswith(("data/weights/", "data/constants/")) and folded.endswith("_config.json")
        if folded.startswith("models/") or config:
            walk = _Walk(findings, operators, expressions)
            content = _json(read(name), name)
            walk.value(content, key="")
            if config:
                pickled |= _payloads(content, folded, frozenset(names), findings)
    for name in names:
        if _is_unpickled(name, pickled) and (saved := read(name)):
            imported.update(dict.fromkeys(scan_saved_object(saved, name)))
    unsafe = (*unsafe_globals(imported), *sorted(findings))
    return ProgramScan(tuple(sorted(imported)), unsafe, tuple(sorted(operators)))


def _json(content: bytes, name: str) -> Any:
    try:
        return json.loads(content.decode())
    except RecursionError:
        raise DamagedFileError(f"{name!r} is nested too deeply") from None
    except ValueError:
        raise DamagedFileError(f"{name!r} is not JSON") from None


def _payloads(config: Any, where: str, names: frozenset[str], findings: dict[str, None]) -> set[str]:
    """The members that entries of a configuration say are pickles; entries that torch could take otherwise are found.

    torch opens `folder + path_name`, and goes by the first letters of `path_name`, not by those of the file's name.
    """
    folder, path = (
        where.rpartition("/")[0] + "/",
        WEIGHT_PATH if where.startswith("data/weights/") else CONSTANT_PATH,
    )
    pickled = set()
    entries = config.get("config") if isinstance(config, dict) else None
    for entry in entries.values() if isinstance(entries, dict) else [entries]:
        fields = entry if isinstance(entry, dict) else {}
        name, is_pickle = fields.get("path_name"), fields.get("use_pickle")
        if not isinstance(name, str) or not path.fullmatch(name) or not isinstance(is_pickle, bool):
            text = repr(name)
            findings[f"payload {text if len(text) <= 80 else text[:77] + '...'}"] = None
        elif folder + name not in names:
            raise DamagedFileError(f"{where!r} names the member {folder + name!r}, which is missing")
        elif is_pickle:
            pickled.add(folder + name)
    return pickled


def _is_unpickled(name: str, pickled: set[str]) -> bool:
    """Whether torch could unpickle the member, under any of its rules and whatever the spelling."""
    folded = name.casefold()
    if not folded.startswith("data/") or folded.endswith(".json"):
        return False
    if name in pickled or next(unknown_program_members([name]), ""):
        return True
    return folded.endswith(".pt") or folded.rpartition("/")[2].startswith(("custom_obj_", "opaque_obj_"))


def scan_saved_object(content: bytes, name: str) -> list[str]:
    """The globals of what `torch.save` or `pickle.dumps` wrote, with an entry for what cannot be read."""
    if not content.startswith(b"PK\x03\x04"):
        return _bare_pickles(content, name)
    inner = open_archive(io.BytesIO(content), len(content))
    found: list[str] = []
    for member in inner.names:
        if member.casefold().endswith(".pkl"):
            scan = scan_pickle(inner.read(member))
            found += scan.globals
            if scan.error:
                found.append(f"(unreadable pickle in {name!r})")
    if not any(member == "data.pkl" for member in inner.names):
        found.append(f"(no pickle in {name!r})")
    return found


def _bare_pickles(content: bytes, name: str) -> list[str]:
    # torch's old format is five pickles in a row; pickle.loads reads the first one only.
    stream, found = io.BytesIO(content), list[str]()
    for _ in range(5):
        scan = scan_pickle(stream)
        found += scan.globals
        if scan.error:
            return [*found, f"(unreadable pickle in {name!r})"]
        if stream.tell() == len(content):
            break
    return found


class _Walk:
    """One pass over the JSON of a program; the rules go by field name, as the format's schema does."""

    def __init__(self, findings: dict[str, None], operators: set[str], expressions: Expressions) -> None:
        self.findings, self.operators, self.expressions = findings, operators, expressions

    def report(self, what: str, text: object) -> None:
        shown = repr(text)
        self.findings[f"{what} {shown if len(shown) <= 80 else shown[:77] + '...'}"] = None

    def value(self, value: Any, key: str) -> None:
        if isinstance(value, dict):
            if key == "metadata":  # comments of the exporter: never evaluated
                return
            for field, item in value.items():
                self.value(item, key="" if key in _MAPS.split() else field)
        elif isinstance(value, list):
            for item in value:
                # The text of a constant input is pasted into the guards; that of an operator's argument is
                # not.
                if (
                    key == "inputs"
                    and isinstance(item, dict)
                    and not is_plain_text(item.get("as_string", ""))
                ):
                    self.report("input", item["as_string"])
                self.value(item, key)
        for what in self._faults(value, key):
            self.report(what, value)

    def _faults(self, value: Any, key: str) -> Iterator[str]:
        if value is None:
            return
        if key == "expr_str" and not (isinstance(value, str) and self.expressions.is_safe_size(value)):
            yield "size expression"
        elif (
            key == "guards_code"
            and not isinstance(value, list)
            and not _is_text(value, self.expressions.is_safe_guard)
        ):
            yield "guard"
        elif key in ("name", "as_name") and value != "" and not _is_text(value, str.isidentifier):
            yield "name"
        elif key in ("forward_arg_names", "field_names") and not isinstance(value, list):
            if not _is_text(value, str.isidentifier):
                yield "argument name"
        elif key in _LABELS.split() and not _is_text(value, is_plain_text):
            yield "label"
        elif key in _NUMBERS and not isinstance(value, _NUMBERS[key]):
            yield f"field {key}"
        elif key == "hint" and not isinstance(value, dict):
            yield "hint"
        elif key in ("in_spec", "out_spec"):
            for part in unsafe_in_tree_spec(value, of_inputs=key == "in_spec"):
                yield f"tree spec ({part})"
        elif key in ("target", "as_operator") and not (isinstance(value, str) and self._is_operator(value)):
            yield "operator"

    def _is_operator(self, target: str) -> bool:
        if target in _SYMBOLIC_OPERATORS or _PREDISPATCH.fullmatch(target):
            return True
        if match := _HIGHER_ORDER_OPERATOR.fullmatch(target):
            return match[1] in _HIGHER_ORDER.split()
        match = _OPERATOR.fullmatch(target)
        if match is None or match[1] in HOSTILE_NAMESPACES or match[2] in HOSTILE_OPERATORS:
            return False
        self.operators.add(f"{match[1]}::{match[2]}.{match[3]}")
        return True


def _is_text(value: Any, rule: Callable[[str], bool]) -> bool:
    return isinstance(value, str) and rule(value)
