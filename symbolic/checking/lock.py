"""Released signatures never change: a JSON file records them, and a check compares.

A model in the field names an operator and a version; a runtime library built from a later declaration must
still mean the same by it. So the file keeps every version that was ever locked, side by side::

    {"format": 1, "operators": {"acme::SwishBeta": {"1": {"torch": "acme::swish(Tensor x, ...", ...}}}}
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import DeclarationError, UsageError
from ..attributes import encode_attribute
from ..torch_schema import schema_text

if TYPE_CHECKING:
    from ..operator import Operator

__all__ = ["FILE_NAME", "Locked", "compare", "lock_file", "read", "signature", "write"]

FILE_NAME = "operators.lock.json"
Signature = Mapping[str, Any]
Locked = Mapping[str, Mapping[int, Signature]]
_FORMAT = 1
_SHIPPED = Path(__file__).parent.parent


def signature(op: Operator) -> dict[str, Any]:
    """What may not change within a version, as plain JSON values."""
    inputs = []
    for i in op.interface.inputs:
        variable = op.types.of_input[i.name]
        entry: dict[str, Any] = {
            "name": i.name,
            "form": i.form,
            "type": variable,
            "dtypes": list(op.types.variables[variable]),
        }
        inputs.append(entry | ({"mutated": True} if i.mutated else {}))
    attributes = []
    for a in op.interface.attributes:
        entry = {"name": a.name, "type": a.onnx_type, "optional": a.optional}
        if not a.required:
            entry["default"] = None if a.default is None else encode_attribute(op.name, a, a.default)
        attributes.append(entry)
    return {
        "name": op.onnx_name,
        "version": op.version,
        "torch": schema_text(op.overload._schema),
        "inputs": inputs,
        "attributes": attributes,
        "outputs": [
            {"name": o.name, "form": o.form} | ({} if o.mutates is None else {"mutates": o.mutates})
            for o in op.interface.outputs
        ],
    }


def lock_file(op: Operator) -> Path | None:
    """Where an operator's signature is locked: with deployops, or beside the file that declares it."""
    if not op.source:
        return None
    folder = Path(op.source).resolve().parent
    return (_SHIPPED if folder == (_SHIPPED / "operators").resolve() else folder) / FILE_NAME


def read(path: Path) -> Locked:
    """The locked signatures by ONNX name and version; none where there is no file. Raises UsageError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise UsageError(
                f"{path.name}: its format is {content['format']}; this deployops reads {_FORMAT}"
            )
        return {
            name: {int(v): dict(entry) for v, entry in versions.items()}
            for name, versions in content["operators"].items()
        }
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise UsageError(
            f"{path.name} is not a lock file ({type(e).__name__}: {e}): restore it from version control, "
            "or delete it and run `deployops ops lock`"
        ) from None


def write(path: Path, ops: Iterable[Operator], *, replace: bool = False) -> None:
    """Lock the signatures of `ops`; what is locked already stays, also where nothing declares it any more.

    Raises DeclarationError where that would change a locked signature; `replace` is for versions that were
    never released: it writes them anew, and forgets what `ops` does not declare.
    """
    ops, locked = list(ops), read(path)
    changed = [line for op in ops for line in _changes(op, locked)]
    if changed and not replace:
        raise DeclarationError("a locked signature changed:\n" + "\n".join(f"  - {line}" for line in changed))
    known = {op.onnx_name for op in ops}
    merged = {n: dict(versions) for n, versions in locked.items() if not replace or n in known}
    for op in ops:
        merged.setdefault(op.onnx_name, {})[op.version] = signature(op)
    text = json.dumps(
        {
            "format": _FORMAT,
            "operators": {n: {str(v): merged[n][v] for v in sorted(merged[n])} for n in sorted(merged)},
        },
        indent=2,
        ensure_ascii=False,
    )
    _write_whole(path, text + "\n")


def _write_whole(path: Path, text: str) -> None:
    """The old file or the new one, never half of it."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(temporary, 0o644)  # mkstemp's file is its owner's alone; this one is for version control
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def compare(ops: Iterable[Operator], locked: Locked) -> list[str]:
    """What differs between declarations and locked signatures, one sentence each; empty for nothing."""
    ops = list(ops)
    lines = []
    for op in ops:
        versions = locked.get(op.onnx_name, {})
        if op.version in versions:
            lines += _changes(op, locked)
        elif versions and op.version < max(versions):
            lines.append(
                f"{_title(op)} is declared, but version {max(versions)} is locked already: "
                f"a version goes up only; make it {max(versions)} or more"
            )
        else:
            lines.append(f"{_title(op)} is not locked yet: run `deployops ops lock`")
    declared = {op.onnx_name for op in ops}
    lines += [
        f"{name} v{max(versions)} is locked, but no longer declared: models in the field name it; restore it"
        for name, versions in sorted(locked.items())
        if name not in declared and versions
    ]
    return lines


def _title(op: Operator) -> str:
    return f"{op.onnx_name} v{op.version}"


def _changes(op: Operator, locked: Locked) -> list[str]:
    versions = locked.get(op.onnx_name, {})
    if op.version not in versions:
        return []
    now, then = signature(op), versions[op.version]
    advice = f"raise version to {max(versions) + 1} or restore it"
    return [f"{_title(op)}: {difference}: {advice}" for difference in _differences(now, then)]


def _differences(now: Signature, then: Signature) -> Iterator[str]:
    found = False
    for word, key in (("input", "inputs"), ("attribute", "attributes"), ("output", "outputs")):
        for difference in _list_differences(word, now[key], then.get(key, [])):
            found = True
            yield difference
    # Whatever else the schema says (an argument's place, keyword-only) changes how it is called.
    if not found and now["torch"] != then.get("torch"):
        yield f"its torch schema changed from `{then.get('torch')}` to `{now['torch']}`"


def _list_differences(word: str, now: Sequence[Signature], then: Sequence[Signature]) -> Iterator[str]:
    new, old = {e["name"]: e for e in now}, {e["name"]: e for e in then}
    yield from (f"{word} `{n}` is gone" for n in old if n not in new)
    yield from (f"{word} `{n}` is new" for n in new if n not in old)
    if set(new) == set(old) and list(new) != list(old):
        yield f"the {word}s changed their order from ({', '.join(old)}) to ({', '.join(new)})"
    for name in (n for n in new if n in old):
        for key in dict.fromkeys((*old[name], *new[name])):
            before, after = old[name].get(key, _ABSENT), new[name].get(key, _ABSENT)
            if before != after:
                yield f"{word} `{name}` changed its {key} from {_spelled(before)} to {_spelled(after)}"


_ABSENT = object()


def _spelled(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    if isinstance(value, list):
        return f"({', '.join(map(str, value))})"
    return repr(value) if isinstance(value, str) and not value.isidentifier() else str(value)
