"""Model files load into what they were saved from, and nothing of them runs unless it is trusted."""

from __future__ import annotations

import collections
import io
import json
import os
import pickle
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from deployops.errors import ModelFileError, UsageError
from deployops.export.model_files.load import load_model
from deployops.export.model_files.model_file import Kind, identify

torch.set_num_threads(1)
warnings.filterwarnings("ignore", category=DeprecationWarning)

SOURCE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        self.head = torch.nn.Linear(4, 2)
        self.register_buffer("shift", torch.full((4,), 0.5))
        self.register_buffer("scratch", torch.ones(4), persistent=False)
        self.constant = torch.full((4,), 2.0)

    def forward(self, x, *, scale=None):
        y = self.body(x + self.shift + self.scratch) * self.constant
        return self.head(y if scale is None else y * scale)

class Namespace:
    @staticmethod
    def half():
        return Net().half()

def needs_argument(width):
    return Net()

def not_a_module():
    return 3

def on_meta():
    with torch.device("meta"):
        return Net()

instance = 3
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the user's module `nets_of_test_load`, importable while this module's tests run."""
    folder = tmp_path_factory.mktemp("code")
    (folder / "nets_of_test_load.py").write_text(SOURCE)
    return folder


@pytest.fixture(scope="module")
def net(code: Path) -> Any:
    sys.path.insert(0, str(code))
    try:
        import nets_of_test_load

        torch.manual_seed(1)
        made = nets_of_test_load.Net()
        made(torch.randn(8, 4))  # moves the running statistics
        yield made.eval()
    finally:
        sys.path.remove(str(code))


MODEL = "nets_of_test_load:Net"
X = torch.arange(12.0).reshape(3, 4)


def saved(content: Any, folder: Path, **options: Any) -> Path:
    path = folder / "weights.bin"
    torch.save(content, path, **options)
    return path


def same(module: torch.nn.Module | None, net: torch.nn.Module) -> bool:
    assert module is not None
    return torch.equal(module.eval()(X), net(X))


# State dicts and checkpoints

PREFIXED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "plain": dict,
    "ordered": collections.OrderedDict,
    "module": lambda state: {f"module.{key}": value for key, value in state.items()},
    "compiled": lambda state: {f"_orig_mod.{key}": value for key, value in state.items()},
    "both": lambda state: {f"module._orig_mod.{key}": value for key, value in state.items()},
    "both, other way": lambda state: {f"_orig_mod.module.{key}": value for key, value in state.items()},
    "compiled inside": lambda state: {key.replace("body.", "body._orig_mod."): v for key, v in state.items()},
    "lightning": lambda state: {
        "state_dict": {f"model.{key}": value for key, value in state.items()},
        "epoch": 1,
    },
    "network prefix": lambda state: {f"network.{key}": value for key, value in state.items()},
    "averaged": lambda state: {"n_averaged": torch.tensor(3), **{f"module.{k}": v for k, v in state.items()}},
    "old batch norm": lambda state: {key: v for key, v in state.items() if "num_batches" not in key},
    "nested": lambda state: {"ema": {"module": state, "decay": 0.9}},
    **{
        wrapper: lambda state, wrapper=wrapper: {
            wrapper: state,
            "epoch": 3,
            "args": {"lr": 0.1},
            "steps": [1, 2],
        }
        for wrapper in (
            "state_dict",
            "model",
            "model_state_dict",
            "ema_state_dict",
            "net",
            "params",
            "weights",
        )
    },
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("form", PREFIXED)
def test_checkpoints_load_whatever_wraps_them(net: Any, tmp_path: Path, form: str, legacy: bool) -> None:
    content = PREFIXED[form](net.state_dict())
    path = saved(content, tmp_path, _use_new_zipfile_serialization=not legacy)
    loaded = load_model(path, model=MODEL)
    assert loaded.file.kind is Kind.CHECKPOINT
    assert same(loaded.module, net)
    assert any("no checksums" in note for note in loaded.notes) == legacy


def test_a_model_from_a_file_or_a_dotted_attribute(net: Any, code: Path, tmp_path: Path) -> None:
    path = saved(net.state_dict(), tmp_path)
    assert same(load_model(path, model=f"{code / 'nets_of_test_load.py'}:Net").module, net)
    loaded = load_model(path, model="nets_of_test_load:Namespace.half")
    assert any("float32 in the checkpoint, float16 in the model: ROUNDED" in note for note in loaded.notes)


def test_dtype_conversions_are_noted(net: Any, tmp_path: Path) -> None:
    half = {
        key: value.half() if value.is_floating_point() else value for key, value in net.state_dict().items()
    }
    notes = load_model(saved(half, tmp_path), model=MODEL).notes
    assert any(
        "float16 in the checkpoint, float32 in the model: converted without loss" in note for note in notes
    )
    state = net.state_dict()
    double = {**state, "shift": torch.full((4,), 0.1, dtype=torch.float64)}
    notes = load_model(saved(double, tmp_path), model=MODEL).notes
    assert any(note.startswith("1 tensors are float64") and "ROUNDED" in note for note in notes)
    assert load_model(saved(state, tmp_path), model=MODEL).notes == ()


def test_the_raw_weights_are_taken_and_the_average_named(net: Any, tmp_path: Path) -> None:
    average = {key: torch.zeros_like(value) for key, value in net.state_dict().items()}
    loaded = load_model(saved({"ema": average, "model": net.state_dict()}, tmp_path), model=MODEL)
    assert same(loaded.module, net)
    assert any("'model'" in note for note in loaded.notes)
    assert any("'ema'" in note and "not used" in note for note in loaded.notes)


def test_the_entry_that_fits_is_taken(net: Any, tmp_path: Path) -> None:
    other = torch.nn.Linear(3, 3).state_dict()
    loaded = load_model(saved({"generator": net.state_dict(), "discriminator": other}, tmp_path), model=MODEL)
    assert same(loaded.module, net)
    assert any("discriminator" in note for note in loaded.notes)


def test_two_entries_that_fit_are_refused(net: Any, tmp_path: Path) -> None:
    path = saved({"student": net.state_dict(), "model": net.state_dict()}, tmp_path)
    with pytest.raises(ModelFileError, match=r"several state dicts.*'student'.*'model'"):
        load_model(path, model=MODEL)


def test_everything_that_does_not_fit_is_in_one_error(net: Any, tmp_path: Path) -> None:
    state = net.state_dict()
    state["head.weight"] = torch.zeros(3, 4)
    del state["head.bias"], state["shift"]
    state["neck.weight"] = torch.zeros(1)
    with pytest.raises(ModelFileError) as caught:
        load_model(saved(state, tmp_path), model=MODEL)
    text = str(caught.value)
    for part in ("head.bias", "shift", "neck.weight", "head.weight: (3, 4) in the file, (2, 4) in the model"):
        assert part in text


def test_a_flattened_checkpoint_with_two_keys_for_one_parameter_is_refused(net: Any, tmp_path: Path) -> None:
    state = net.state_dict()
    twice = {**state, **{f"module.{key}": value + 1 for key, value in state.items()}}
    with pytest.raises(ModelFileError, match="not in the model"):
        load_model(saved(twice, tmp_path), model=MODEL)


def test_without_a_model_the_option_is_explained(net: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--model PKG\.MOD:CALLABLE.*body\.0\.weight"):
        load_model(saved(net.state_dict(), tmp_path))


def test_no_tensors_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"no tensors.*epoch"):
        load_model(saved({"epoch": 3}, tmp_path), model=MODEL)
    with pytest.raises(ModelFileError, match="no tensors by name, but a Tensor"):
        load_model(saved(torch.ones(3), tmp_path), model=MODEL)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("nets_of_test_load", "expected PKG.MOD:CALLABLE"),
        ("nets_of_test_load:", "expected PKG.MOD:CALLABLE"),
        ("no_such_package.mod:Net", "importing 'no_such_package.mod' failed"),
        ("no_such_file.py:Net", "does not exist"),
        ("nets_of_test_load:Missing", "has no 'Missing'; it has.*Net"),
        ("nets_of_test_load:instance", "is a int, not a class"),
        ("nets_of_test_load:needs_argument", "called with no arguments"),
        ("nets_of_test_load:not_a_module", "gave a int"),
        ("nets_of_test_load:on_meta", "meta device"),
    ],
)
def test_a_wrong_model_option_says_what_is_wrong(net: Any, tmp_path: Path, model: str, words: str) -> None:
    path = saved(net.state_dict(), tmp_path)
    with pytest.raises(UsageError, match=words):
        load_model(path, model=model)


# Whole modules


def test_a_pickled_module_needs_trust(net: Any, tmp_path: Path) -> None:
    path = saved(net, tmp_path)
    with pytest.raises(ModelFileError, match=r"nets_of_test_load\.Net.*--trust"):
        load_model(path)
    loaded = load_model(path, trust=True)
    assert loaded.file.kind is Kind.MODULE
    assert same(loaded.module, net)
    with pytest.raises(UsageError, match="--model is for checkpoints"):
        load_model(path, trust=True, model=MODEL)


def test_a_module_inside_a_checkpoint(net: Any, tmp_path: Path) -> None:
    path = saved({"model": net, "ema": torch.nn.Linear(1, 1), "epoch": 1}, tmp_path)
    loaded = load_model(path, trust=True)
    assert same(loaded.module, net)
    assert any("'ema' was not used" in note for note in loaded.notes)


@pytest.mark.parametrize("where", ["__main__", "gone_module"])
def test_a_module_whose_class_is_gone_says_what_to_import(tmp_path: Path, where: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, types, torch\nclass Net(torch.nn.Linear): pass\n"
        "where = sys.argv[2]\nNet.__module__ = where\n"
        "if where != '__main__': sys.modules[where] = types.ModuleType(where); sys.modules[where].Net = Net\n"
        "torch.save(Net(2, 2), sys.argv[1])\n"
    )
    path = tmp_path / "net.pt"
    subprocess.run([sys.executable, str(script), str(path), where], check=True)
    with pytest.raises(ModelFileError) as caught:
        load_model(path, trust=True)
    assert ("save it again" in str(caught.value)) == (where == "__main__")
    assert where in str(caught.value)


# Case 35: hostile pickles


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


def refused(path: Path, words: str = "--trust") -> None:
    assert identify(path).unsafe_globals
    with pytest.raises(ModelFileError, match=words):
        load_model(path)
    with pytest.raises(ModelFileError, match=words):
        load_model(path, model=MODEL)


@pytest.mark.parametrize("legacy", [False, True])
def test_hostile_checkpoints_run_nothing(tmp_path: Path, marker: Path, legacy: bool) -> None:
    content = {"weight": torch.ones(2), "extra": Payload(marker)}
    refused(saved(content, tmp_path, _use_new_zipfile_serialization=not legacy), r"io\.open.*--trust")


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_hostile_raw_pickles_run_nothing(tmp_path: Path, marker: Path, protocol: int) -> None:
    path = tmp_path / "raw.pt"
    path.write_bytes(pickle.dumps(Payload(marker), protocol=protocol))
    refused(path, r"open.*--trust")


def test_a_pickle_inside_a_tensor_is_refused(tmp_path: Path, marker: Path) -> None:
    # torch.storage._load_from_bytes unpickles its argument without restriction.
    inner = io.BytesIO()
    torch.save(Payload(marker), inner)
    name = b"ctorch.storage\n_load_from_bytes\n"
    raw = (
        b"\x80\x04" + name + b"B" + len(inner.getvalue()).to_bytes(4, "little") + inner.getvalue() + b"\x85R."
    )
    path = tmp_path / "raw.pt"
    path.write_bytes(raw)
    refused(path, r"_load_from_bytes")


def test_a_trusted_hostile_file_is_the_users_choice(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    content = {"weight": torch.ones(2), "extra": Payload(ran)}
    with pytest.raises(UsageError):
        load_model(saved(content, tmp_path), trust=True)
    assert ran.exists()


# torch.export archives


@pytest.fixture(scope="module")
def program(net: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "program.pt2"
    batch = torch.export.Dim("batch", max=64)
    exported = torch.export.export(
        net, (X,), {"scale": torch.ones(4)}, dynamic_shapes={"x": {0: batch}, "scale": None}
    )
    torch.export.save(exported, path, extra_files={"note.txt": "hello"})
    return path


def rewritten(source: Path, target: Path, change: Callable[[str, bytes], bytes], **more: bytes) -> Path:
    """The archive with members changed, all checksums right."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        root = old.namelist()[0].split("/")[0]
        for name in old.namelist():
            new.writestr(name, change(name.split("/", 1)[1], old.read(name)))
        for name, content in more.items():
            new.writestr(f"{root}/{name}", content)
    return target


def test_a_program_loads_with_its_example_inputs(net: Any, program: Path, tmp_path: Path) -> None:
    plain = tmp_path / "named.bin"
    plain.write_bytes(program.read_bytes())
    loaded = load_model(plain)
    assert loaded.module is None
    assert loaded.program is not None
    assert torch.equal(loaded.example_args[0], X)
    assert torch.equal(loaded.example_kwargs["scale"], torch.ones(4))
    assert torch.equal(loaded.program.module()(X, scale=torch.ones(4)), net(X))
    with pytest.raises(UsageError, match="--model is for checkpoints"):
        load_model(plain, model=MODEL)


class Sane(torch.nn.Module):
    """Shared weights, dtypes, control flow, data-dependent sizes, odd names: what honest programs hold."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(4, 4, bias=False)
        self.b = torch.nn.Linear(4, 4, bias=False)
        self.b.weight = self.a.weight
        self.odd = torch.nn.ParameterDict({"a b-c": torch.nn.Parameter(torch.ones(4))})
        self.low = torch.nn.Parameter(torch.ones(4, dtype=torch.float16))
        self.brain = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("empty", torch.zeros(0, 4))

    def forward(
        self, x: torch.Tensor, *rest: Any, table: Any, extra: torch.Tensor, mode: str = "mean"
    ) -> Any:
        y = self.b(self.a(x)) * self.odd["a b-c"] + self.low.float() + self.brain.float() + rest[0]
        y = torch.cond(y.sum() > 0, lambda v: v + 1, lambda v: v - 1, (y,))
        size = x.shape[0]
        torch._check(size % 2 == 0)
        scale = max(size, 3) + size // 2
        with torch.no_grad():
            shift = torch.einsum("ij,kj->ik", x, x)
        return {
            "y": y + table["q"][0] + extra,
            "nz": x.nonzero(),
            "z": torch.zeros(size * 2 + 1) * scale,
            "s": shift,
            "c": (x.reshape(size // 2, -1), torch.cat([self.empty, x])),
        }


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("stage", ["export", "decomposed"])
def test_honest_programs_need_no_trust(tmp_path: Path, dynamic: bool, stage: str) -> None:
    args = (torch.randn(6, 4), torch.ones(4))
    kwargs: dict[str, Any] = {"table": {"q": [torch.ones(4), 1]}, "extra": torch.ones(4), "mode": "mean"}
    shapes = {
        "x": {0: torch.export.Dim.AUTO} if dynamic else None,
        "rest": (None,),
        "table": {"q": [None, None]},
        "extra": None,
        "mode": None,
    }
    exported = torch.export.export(Sane(), args, kwargs, dynamic_shapes=shapes)
    if stage == "decomposed":
        exported = exported.run_decompositions()
    path = tmp_path / "sane.pt2"
    torch.export.save(exported, path)
    assert identify(path).unsafe_globals == ()
    loaded = load_model(path)
    assert loaded.program is not None
    again = loaded.program.module()(*args, **kwargs)
    assert torch.equal(again["y"], exported.module()(*args, **kwargs)["y"])


def torch_saved(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def set_pickle(config: bytes, prefix: str = "") -> bytes:
    content = json.loads(config)
    entry = next(iter(content["config"].values()))
    entry["use_pickle"] = True
    entry["path_name"] = prefix or entry["path_name"]
    return json.dumps(content).encode()


PLACES = {
    "sample inputs": lambda bad: lambda n, c: torch_saved(((bad,), {})) if "sample_inputs" in n else c,
    "weight": lambda bad: (
        lambda n, c: (
            set_pickle(c) if n.endswith("weights_config.json") else torch_saved(bad) if "/weight_" in n else c
        )
    ),
    "constant": lambda bad: (
        lambda n, c: (
            set_pickle(c)
            if n.endswith("constants_config.json")
            else torch_saved(bad)
            if "/tensor_" in n
            else c
        )
    ),
    "raw pickle as weight": lambda bad: (
        lambda n, c: (
            set_pickle(c)
            if n.endswith("weights_config.json")
            else pickle.dumps(bad)
            if "/weight_" in n
            else c
        )
    ),
}
ADDED = {
    "custom object": ("custom_obj_0", torch_saved),
    "opaque object": ("opaque_obj_0", pickle.dumps),
    "opaque object, protocol 0": ("opaque_obj_0", lambda bad: pickle.dumps(bad, protocol=0)),
}


@pytest.mark.parametrize("place", PLACES)
def test_hostile_members_of_a_program_run_nothing(
    program: Path, tmp_path: Path, marker: Path, place: str
) -> None:
    refused(rewritten(program, tmp_path / "bad.pt2", PLACES[place](Payload(marker))), r"io\.open.*--trust")


@pytest.mark.parametrize("place", ADDED)
def test_hostile_objects_in_a_program_run_nothing(
    program: Path, tmp_path: Path, marker: Path, place: str
) -> None:
    name, form = ADDED[place]

    def change(member: str, content: bytes) -> bytes:
        return set_pickle(content, name) if member.endswith("constants_config.json") else content

    more = {f"data/constants/{name}": form(Payload(marker))}
    refused(rewritten(program, tmp_path / "bad.pt2", change, **more), r"io\.open.*--trust")


@pytest.mark.parametrize(
    "where", ["data/weights/model.pt", "data/constants/model.pt", "DATA/weights/MODEL.PT"]
)
def test_the_old_places_of_weights_are_scanned(
    program: Path, tmp_path: Path, marker: Path, where: str
) -> None:
    more = {where: torch_saved({"w": Payload(marker)})}
    refused(
        rewritten(program, tmp_path / "bad.pt2", lambda _, content: content, **more), r"io\.open.*--trust"
    )


def edited(source: Path, target: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    def change(name: str, content: bytes) -> bytes:
        if name != "models/model.json":
            return content
        model = json.loads(content)
        edit(model)
        return json.dumps(model).encode()

    return rewritten(source, target, change)


def graph(model: dict[str, Any]) -> dict[str, Any]:
    return model["graph_module"]["graph"]


def size_expression(model: dict[str, Any], code: str) -> None:
    for value in graph(model)["tensor_values"].values():
        for size in value["sizes"]:
            if "as_expr" in size:
                size["as_expr"]["expr_str"] = code
                return
    raise AssertionError("no symbolic size")


def renamed_input(model: dict[str, Any], code: str) -> None:
    text = json.dumps(model).replace('"name": "scale"', json.dumps({"name": f"scale=({code})"})[1:-1])
    values = json.loads(text)
    values["graph_module"]["graph"]["tensor_values"][f"scale=({code})"] = graph(model)["tensor_values"][
        "scale"
    ]
    model.update(values)


def signature(model: dict[str, Any]) -> dict[str, Any]:
    return model["graph_module"]["module_call_graph"][0]["signature"]


def tree(model: dict[str, Any], edit: Callable[[dict[str, Any]], None]) -> None:
    spec = json.loads(signature(model)["in_spec"])
    edit(spec[1])
    signature(model)["in_spec"] = json.dumps(spec)


def as_default_dict(spec: dict[str, Any]) -> None:
    spec["type"] = "collections.defaultdict"
    spec["context"] = {
        "default_factory_module": "evil_import",
        "default_factory_name": "x",
        "dict_context": [],
    }


def as_enum(spec: dict[str, Any]) -> None:
    spec["context"] = '{"\\u005f_enum__": true, "fqn": "evil_import:X", "name": "x"}'


def parameter(model: dict[str, Any], code: str) -> None:
    for spec in model["graph_module"]["signature"]["input_specs"]:
        if "parameter" in spec:
            spec["parameter"]["parameter_name"] = f'w", {code}, "'


def text_input(model: dict[str, Any], code: str) -> None:
    graph(model)["inputs"].append({"as_string": f"' + str({code}) + '"})


EDITS: dict[str, tuple[Callable[[dict[str, Any], str], None], str]] = {
    "size expression": (size_expression, "size expression"),
    "size expression without a call": (
        lambda m, c: size_expression(m, "().__class__.__base__"),
        "size expression",
    ),
    "size expression as a list": (lambda m, c: size_expression(m, [c]), "size expression"),  # type: ignore[arg-type]
    "guard": (lambda m, c: m["guards_code"].append(c), "guard"),
    "name of an input": (renamed_input, "name"),
    "name of a node": (lambda m, c: graph(m)["nodes"][0].update(name=f"a=({c})"), "name"),
    "argument names": (
        lambda m, c: signature(m).update(forward_arg_names=["x", f"scale=({c})"]),
        "argument name",
    ),
    "keyword in the tree": (
        lambda m, c: tree(m, lambda t: t["children_spec"][1].update(context=json.dumps([f"scale=({c})"]))),
        "tree spec",
    ),
    "factory in the tree": (lambda m, c: tree(m, as_default_dict), "tree spec"),
    "enum in the tree": (lambda m, c: tree(m, lambda t: as_enum(t["children_spec"][1])), "tree spec"),
    "parameter name": (parameter, "label"),
    "text input": (text_input, "input"),
    "operator": (lambda m, c: graph(m)["nodes"][0].update(target="torch.os.system"), r"torch\.os\.system"),
    "loader as operator": (
        lambda m, c: graph(m)["nodes"][0].update(target="torch.ops.load_library"),
        "load_library",
    ),
    "operator that opens files": (
        lambda m, c: graph(m)["nodes"][0].update(target="torch.ops.aten.from_file.default"),
        "from_file",
    ),
    "text as a number": (lambda m, c: graph(m)["inputs"].append({"as_int": c}), "as_int"),
}


@pytest.mark.parametrize("name", EDITS)
def test_strings_that_torch_would_run_are_refused(
    program: Path, tmp_path: Path, marker: Path, name: str
) -> None:
    edit, words = EDITS[name]
    code = f"__import__('pathlib').Path('{marker}').touch()"
    refused(edited(program, tmp_path / "bad.pt2", lambda model: edit(model, code)), words)


@pytest.mark.parametrize("name", ["size expression", "guard", "name of an input"])
def test_those_strings_do_run_in_torch(program: Path, tmp_path: Path, name: str) -> None:
    # Why the scan exists; if torch stops running them, this test says so.
    ran = tmp_path / "ran"
    edit, _ = EDITS[name]
    bad = edited(
        program, tmp_path / "bad.pt2", lambda m: edit(m, f"__import__('pathlib').Path('{ran}').touch()")
    )
    script = (
        "import sys, torch\nprogram = torch.export.load(sys.argv[1])\n"
        "args, kwargs = program.example_inputs\nprogram.module()(*args, **kwargs)"
    )
    subprocess.run([sys.executable, "-c", script, str(bad)], capture_output=True, check=False)
    assert ran.exists()


def test_a_program_with_compiled_code_is_refused_even_if_trusted(program: Path, tmp_path: Path) -> None:
    more = {"data/aotinductor/model/code.so": b"\x7fELF"}
    path = rewritten(program, tmp_path / "bad.pt2", lambda _, content: content, **more)
    assert identify(path).kind is Kind.AOTI
    with pytest.raises(ModelFileError, match="native code"):
        load_model(path, trust=True)


def test_the_old_program_format_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "old.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("serialized_exported_program.json", "{}")
        archive.writestr("version", "8.8")
    with pytest.raises(ModelFileError, match=r"PyTorch 2\.7"):
        load_model(path)


WITH_OPS = """
import sys, torch
for name in ("cube", "twice"):
    torch.library.define(f"test_load_ops::{name}", "(Tensor x) -> Tensor")
    torch.library.impl(f"test_load_ops::{name}", "CPU")(lambda x: x * 3)
    torch.library.register_fake(f"test_load_ops::{name}")(lambda x: torch.empty_like(x))
class Net(torch.nn.Module):
    def forward(self, x):
        return torch.ops.test_load_ops.twice(torch.ops.test_load_ops.cube(x))
torch.export.save(torch.export.export(Net(), (torch.ones(2),)), sys.argv[1])
torch.jit.script(Net()).save(sys.argv[2])
"""


def test_all_missing_operators_are_listed(tmp_path: Path) -> None:
    program, script = tmp_path / "ops.pt2", tmp_path / "ops.pt"
    source = tmp_path / "ops.py"
    source.write_text(WITH_OPS)
    subprocess.run([sys.executable, str(source), str(program), str(script)], check=True, capture_output=True)
    for path in (program, script):
        with pytest.raises(
            ModelFileError, match=r"test_load_ops::cube.*test_load_ops::twice.*--load-library"
        ) as caught:
            load_model(path)
        assert "--ops" in str(caught.value)


# TorchScript


@pytest.mark.parametrize("form", ["script", "trace"])
def test_torchscript_loads_whatever_it_is_called(net: Any, tmp_path: Path, form: str) -> None:
    path = tmp_path / "model.pth"
    (
        torch.jit.script(torch.nn.Sequential(net.body, net.head))
        if form == "script"
        else torch.jit.trace(net, X)
    ).save(path)
    loaded = load_model(path)
    assert isinstance(loaded.module, torch.jit.ScriptModule)
    if form == "trace":
        assert same(loaded.module, net)
    with pytest.raises(UsageError):
        load_model(path, model=MODEL)


def test_torchscript_that_writes_files_needs_trust(tmp_path: Path) -> None:
    class Writes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.save(x, "/nowhere/file")
            return x

    path = tmp_path / "writes.pt"
    torch.jit.script(Writes()).save(path)
    with pytest.raises(ModelFileError, match=r"aten::save.*--trust"):
        load_model(path)
    assert load_model(path, trust=True).module is not None


# Cases 37 and 38: the wrong file


def test_case_37_seven_files(net: Any, program: Path, tmp_path: Path) -> None:
    import onnx

    value = onnx.helper.make_tensor_value_info("x", 1, [2])
    made = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["x2"])], "g", [value], [value])
    contents = {
        "script.pth": None,
        "weights.pt": torch_saved(net.state_dict()),
        "program.pt2": program.read_bytes(),
        "program.pt": program.read_bytes(),
        "onnx.pt": onnx.helper.make_model(made).SerializeToString(),
        "html.pt": b"<!DOCTYPE html><title>Sign in</title>",
        "lfs.pt": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n",
    }
    torch.jit.trace(net, X).save(str(tmp_path / "script.pth"))
    for name, content in contents.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
    assert load_model(tmp_path / "script.pth").file.kind is Kind.TORCHSCRIPT
    assert load_model(tmp_path / "weights.pt", model=MODEL).file.kind is Kind.CHECKPOINT
    assert load_model(tmp_path / "program.pt2").file.kind is Kind.EXPORTED_PROGRAM
    assert load_model(tmp_path / "program.pt").file.kind is Kind.EXPORTED_PROGRAM
    for name, words in (("onnx.pt", "use it as it is"), ("html.pt", "web page"), ("lfs.pt", "git lfs pull")):
        with pytest.raises(ModelFileError, match=words) as caught:
            load_model(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_case_38_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "empty.pt").touch()
    with pytest.raises(ModelFileError, match="empty file"):
        load_model(tmp_path / "empty.pt")


def test_the_legacy_format_cut_inside_the_weights_is_refused(net: Any, tmp_path: Path) -> None:
    path = saved(net.state_dict(), tmp_path, _use_new_zipfile_serialization=False)
    os.truncate(path, path.stat().st_size - 5)
    with pytest.raises(ModelFileError):
        load_model(path, model=MODEL)


def test_a_module_without_weights_has_a_file_too(tmp_path: Path) -> None:
    path = tmp_path / "empty.pt"
    torch.save(torch.nn.ReLU().state_dict(), path)
    assert isinstance(load_model(path, model="torch.nn:ReLU").module, torch.nn.ReLU)
    with pytest.raises(UsageError, match="--model"):
        load_model(path)
