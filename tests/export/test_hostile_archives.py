"""Archives made to run code, write files or never end: each is refused before torch looks at it."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from deployops import inspect_model
from deployops.errors import DeployOpsError, ModelFileError
from deployops.export.model_files.load import load_model
from deployops.export.model_files.model_file import Kind, identify
from deployops.export.model_files.program_strings import Expressions, is_safe_guard, is_safe_size_expression

torch.set_num_threads(1)

Members = dict[str, bytes]


class Linear(torch.nn.Module):
    """A weight, a buffer that is a constant, and a variable dim."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.constant = torch.ones(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.constant


class Writes(torch.nn.Module):
    """Saves its input to a path given in its code."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.save(x, "MARKER")
        return x + 1


class Payload:
    """Harmless stand-in: unpickling it creates a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> Any:
        return (open, (self.marker, "w"))


@pytest.fixture
def marker(tmp_path: Path) -> Any:
    path = tmp_path / "code_ran"
    yield path
    assert not path.exists()


def members(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        return {name.split("/", 1)[1]: archive.read(name) for name in archive.namelist()}


def written(path: Path, content: Members) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(f"model/{name}", data)
    return path


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Members:
    path = tmp_path_factory.mktemp("program") / "model.pt2"
    batch = torch.export.Dim("batch", max=64)
    exported = torch.export.export(Linear(), (torch.ones(2, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(exported, path, extra_files={"note.txt": "hello"})
    return members(path)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Members:
    path = tmp_path_factory.mktemp("script") / "model.pt"
    torch.jit.script(Writes()).save(str(path))
    return members(path)


def refused(path: Path) -> str:
    """It is refused by both, and the first reason."""
    with pytest.raises(ModelFileError) as caught:
        load_model(path)
    with contextlib.suppress(ModelFileError):
        assert identify(path).unsafe_globals or identify(path).kind is not Kind.EXPORTED_PROGRAM
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Pickles in programs

CONFIG = "data/constants/model_constants_config.json"


def with_constant(program: Members, path_name: str, payload: bytes, *, config: str = CONFIG) -> Members:
    content = dict(program)
    entry = copy.deepcopy(next(iter(json.loads(content.pop(CONFIG))["config"].values())))
    entry |= {"path_name": path_name, "use_pickle": False, "is_param": False}
    entry["tensor_meta"]["dtype"] = 1  # bytes: a payload of any length
    content[config] = json.dumps({"config": {"evil": entry}}).encode()
    content[f"data/constants/{path_name}"] = payload
    return content


@pytest.mark.parametrize(
    "path_name",
    [
        "opaque_obj_0",
        "opaque_obj_x/payload.bin",
        "opaque_obj_0/../zz.bin",
        "opaque_obj_//b",
        "opaque_obj_0/",
        "opaque_obj_x/tensor_0",
        "opaque_obj_0.json",
        "custom_obj_x/y",
        "custom_obj_0",
        "tensor_x/../../../extra/a",
        "./opaque_obj_0",
        "/opaque_obj_0",
    ],
)
def test_a_constant_is_scanned_by_the_rule_that_torch_reads_it_by(
    program: Members, tmp_path: Path, marker: Path, path_name: str
) -> None:
    # torch goes by the first letters of `path_name`, whatever `use_pickle` says and wherever the path leads.
    for config in (
        CONFIG,
        "data/constants/model_CONSTANTS_config.json",
        "Data/constants/model_constants_config.json",
    ):
        content = with_constant(program, path_name, pickle.dumps(Payload(marker), 2), config=config)
        refused(written(tmp_path / "bad.pt2", content))


def test_torch_does_unpickle_such_a_constant(program: Members, tmp_path: Path) -> None:
    # Why the scan exists; if torch stops unpickling it, this test says so.
    ran = tmp_path / "ran"
    content = with_constant(program, "opaque_obj_x/payload.bin", pickle.dumps(Payload(ran), 2))
    with pytest.raises(Exception):  # noqa: B017  # a file object is no constant
        torch.export.load(written(tmp_path / "bad.pt2", content))
    assert ran.exists()


@pytest.mark.parametrize(
    "name",
    ["version_", "serialized_state_dict.pt", "data/weights/x/weight_0", "models/model.JSON", "models/a/b.json",
     "data/mtia/x", "data/constants/TENSOR_0", "data/weights/.pt", "extra/a b", "Extra/a"],
)  # fmt: skip
def test_a_member_of_no_known_role_is_not_passed_over(program: Members, tmp_path: Path, name: str) -> None:
    assert "member" in refused(written(tmp_path / "bad.pt2", {**program, name: b"{}"}))


@pytest.mark.parametrize(
    "change", [{"use_pickle": 0}, {"use_pickle": "no"}, {"path_name": 3}, {"path_name": "tensor_9"}]
)
def test_an_entry_must_point_to_a_member(program: Members, tmp_path: Path, change: dict[str, Any]) -> None:
    config = json.loads(program[CONFIG])
    next(iter(config["config"].values())).update(change)
    refused(written(tmp_path / "bad.pt2", {**program, CONFIG: json.dumps(config).encode()}))


def test_every_pickle_of_the_old_format_is_scanned(program: Members, tmp_path: Path, marker: Path) -> None:
    first = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({}, 2)
    content = {**program, "data/sample_inputs/model.pt": first + pickle.dumps(Payload(marker), 2)}
    assert "io.open" in refused(written(tmp_path / "bad.pt2", content))


def test_the_honest_program_is_left_alone(program: Members, tmp_path: Path) -> None:
    path = written(tmp_path / "good.pt2", program)
    assert identify(path).unsafe_globals == ()
    assert load_model(path).program is not None


# TorchScript

SPELLINGS: dict[str, Callable[[str], str]] = {
    "as torch writes it": lambda name: name,
    "PY": lambda name: name.replace(".py", ".PY"),
    "Code": lambda name: name.replace("code/", "Code/"),
    "CONSTANTS": lambda name: name.replace("constants.pkl", "CONSTANTS.pkl"),
    "Data": lambda name: name.replace("data.pkl", "Data.pkl"),
    "everything": lambda name: name.upper(),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_code_is_scanned_however_its_member_is_spelled(
    script: Members, tmp_path: Path, marker: Path, spelling: str
) -> None:
    content = {
        SPELLINGS[spelling](name): data.replace(b"MARKER", str(marker).encode())
        if name.endswith(".py")
        else data
        for name, data in script.items()
    }
    path = written(tmp_path / "bad.pt", content)
    assert identify(path).unsafe_globals
    refused(path)


@pytest.mark.parametrize(
    "call",
    [
        'torch.save(x, "MARKER")',
        'ops.aten.save(x, "MARKER")',
        'getattr(torch, "save")(x, "MARKER")',
        'getattr(ops.aten, "save")(x, "MARKER")',
        'getattr(getattr(ops, "aten"), "save")(x, "MARKER")',
        'getattr(torch, "sa" "ve")(x, "MARKER")',
        "getattr(torch, 'save')(x, \"MARKER\")",
        'getattr(torch, "\\163ave")(x, "MARKER")',
        'getattr (torch, "save")(x, "MARKER")',
        '(torch. # a comment\n      save)(x, "MARKER")',
        'y = torch.from_file("MARKER", True, 4)',
        "y = ops.c10d.barrier(x)",
        'y = getattr(ops, "c10d").barrier(x)',
        'y = rpc_sync("worker", x)',
    ],
)
def test_calls_that_reach_out_are_seen_however_they_are_written(
    script: Members, tmp_path: Path, marker: Path, call: str
) -> None:
    content = {
        name: data.replace(b'torch.save(x, "MARKER")', call.replace("MARKER", str(marker)).encode())
        for name, data in script.items()
    }
    refused(written(tmp_path / "bad.pt", content))


def test_getattr_does_reach_torch_save(script: Members, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    call = f'getattr(torch, "sa" "ve")(x, "{ran}")'.encode()
    content = {name: data.replace(b'torch.save(x, "MARKER")', call) for name, data in script.items()}
    torch.jit.load(str(written(tmp_path / "bad.pt", content)))(torch.ones(2))
    assert ran.exists()


@pytest.mark.parametrize("name", ["model.json", "code/x.txt", "code/../a.py", "libs/a", "extra/a b"])
def test_other_members_of_a_script_need_trust(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.pt"
    torch.jit.script(Linear()).save(str(path))
    refused(written(tmp_path / "bad.pt", {**members(path), name: b"{}"}))


def test_honest_scripts_need_no_trust(tmp_path: Path) -> None:
    deep = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), Linear())
    for index, made in enumerate((torch.jit.script(deep), torch.jit.trace(deep, torch.ones(2, 4)))):
        for form in (made, torch.jit.freeze(made.eval())):
            path = tmp_path / f"{index}.pt"
            torch.jit.save(form, path, _extra_files={"labels.txt": "cat"})
            assert identify(path).unsafe_globals == ()
            assert load_model(path).module is not None


# Expressions that never end


@pytest.mark.parametrize(
    "text",
    [
        "Pow(Pow(Pow(Pow(Integer(9), 64), 64), 64), 64)",
        "Pow(Integer(9), Mul(64, 64, 64, 64, 64, 64, 64))",
        "Pow(Integer(9), Add(64, 64))",
        "LShift(Integer(1), Mul(64, 64, 64, 64, 64, 64))",
        "RShift(Integer(1), Mul(64, 64, 64, 64, 64, 64))",
        "PowByNatural(Integer(2), Symbol('s0', integer=True))",
        "RoundDecimal(Symbol('s0'), Integer(999999999))",
        "Float('1.5', precision=99999999999)",
        "Float('1.5', 99999999999)",
        "Mod(Pow(Add(Symbol('a'), Symbol('b'), Symbol('c'), Symbol('d')), 30), Add(Symbol('a'), 1))",
        "Mul(" + ", ".join(f"Add(Symbol('a{i}'), Symbol('b{i}'))" for i in range(12)) + ")",
        "ExprCondPair(1, True) * 9999999999",
        "Tuple(1, 2) * 9999999999",
        "(1, 2) * 9999999999",
        "1 << 64 << 64 << 64 << 999999999",
        "2 ** 64 ** 64 ** 64",
        "(((9**64)**64)**64)**64",
        "Add(" + "1, " * 9000 + "1)",
    ],
)
def test_expressions_that_would_not_end_are_refused(text: str) -> None:
    started = time.monotonic()
    assert not is_safe_size_expression(text)
    assert not is_safe_guard(f"{text} > 1")
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    "text",
    [
        "math.factorial(99999999) > L['x'].size()[0]",
        "math.comb(100000000, 50000000) > L['x'].size()[0]",
        "math.perm(100000000) > 1",
        "round(L['x'].size()[0], -999999999) > 1",
        "max(L['x'].size(), L['x'].size()) * 9999999999 == 0",
        "L['x'].size() * 9999999999 == 0",
        "L['x'].stride() == 0",
        "1 << L['x'].size()[0] > 4",
    ],
)
def test_guards_that_would_not_end_are_refused(text: str) -> None:
    assert not is_safe_guard(text)


@pytest.mark.parametrize(
    "text",
    [
        "Piecewise((Integer(1), Eq(Symbol('s0'), 1)), (Integer(2), True))",
        "Piecewise(ExprCondPair(Integer(1), Eq(Symbol('s0'), 1)), ExprCondPair(Integer(2), True))",
        "Pow(Symbol('s0', integer=True), Integer(2))",
        "Pow(Symbol('s0'), Rational(1, 2))",
        "Mul(Symbol('s0'), Pow(Symbol('s1'), Integer(-1)))",
        "Float('0.5', precision=53)",
        "FloorDiv(Add(Symbol('s0'), Integer(-1)), Integer(2))",
        "s0**2*s1 + 3",
    ],
)
def test_honest_expressions_pass(text: str) -> None:
    assert is_safe_size_expression(text)


def test_the_expressions_of_one_program_are_bounded_together() -> None:
    seen = Expressions()
    long = "Max(" + "1, " * 1000 + "{})"
    verdicts = [seen.is_safe_size(long.format(number)) for number in range(1000)]
    assert verdicts[0]
    assert not verdicts[-1]
    assert seen.is_safe_size(long.format(0))


# What is printed


def test_names_in_a_checkpoint_move_no_cursor(tmp_path: Path) -> None:
    hostile = "\x1b[31mEVIL\x07"
    path, model = tmp_path / "model.pt", "torch.nn:Identity"
    for state in (
        {f"{hostile}.weight": torch.ones(4, 4)},
        {hostile: {"weight": torch.ones(2)}},
        {"weight": torch.ones(2), f"{hostile}_extra_state": {"a": 1}},
    ):
        torch.save(state, path)
        assert all(line.isprintable() for line in inspect_model(path).summary().split("\n"))
        for factory in (None, model):
            with pytest.raises(DeployOpsError) as caught:
                load_model(path, model=factory)
            assert all(line.isprintable() for line in str(caught.value).split("\n"))


def test_a_prefix_in_a_note_moves_no_cursor(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"\x1b[31m.weight": torch.ones(1), "\x1b[31m.bias": torch.ones(1)}, path)
    source = tmp_path / "net.py"
    source.write_text("import torch\ndef net(): return torch.nn.Linear(1, 1)\n")
    state = {f"\x1b[31m.{name}": value for name, value in torch.nn.Linear(1, 1).state_dict().items()}
    torch.save(state, path)
    notes = load_model(path, model=f"{source}:net").notes
    assert any("removed from the keys" in note for note in notes)
    assert all(note.isprintable() for note in notes)


def test_many_tensors_under_one_key_are_listed_at_once(tmp_path: Path) -> None:
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(tRq\x01"
    pickled = (
        b"\x80\x02}" + b"X\x01\x00\x00\x00a" + tensor + b"s" + b"(X\x01\x00\x00\x00ah\x01u" * 100_000 + b"."
    )
    started = time.monotonic()
    found = inspect_model(written(tmp_path / "model.pt", {"data.pkl": pickled, "version": b"3"}))
    assert found.weights
    assert time.monotonic() - started < 20
