"""Files are told by their content, and damaged ones are refused, without running anything of them."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployops.errors import DeployOpsError, ModelFileError
from deployops.export.model_files.model_file import Kind, identify
from deployops.export.model_files.pickle_scan import ALLOWED_GLOBALS, scan_pickle, unsafe_globals
from deployops.export.model_files.program_strings import is_safe_guard, is_safe_size_expression

torch.set_num_threads(1)


class Net(torch.nn.Module):
    """Four layers, so that a flipped weight is one of many."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One file of each kind, made by torch itself."""
    folder = tmp_path_factory.mktemp("files")
    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(2, 16)
    made = {
        name: folder / name
        for name in ("state", "legacy", "module", "training", "script", "trace", "program")
    }
    torch.save(net.state_dict(), made["state"])
    torch.save(net.state_dict(), made["legacy"], _use_new_zipfile_serialization=False)
    torch.save(net, made["module"])
    torch.jit.script(net).save(str(made["script"]))
    torch.jit.trace(net, x).save(str(made["trace"]))
    batch = torch.export.Dim("batch", max=64)
    program = torch.export.export(net, (x,), dynamic_shapes=({0: batch},))
    torch.export.save(program, folder / "program.pt2")
    (folder / "program.pt2").rename(made["program"])
    optimizer = torch.optim.Adam(net.parameters())
    net(x).sum().backward()
    optimizer.step()
    content = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "loss": 0.5}
    torch.save(content, made["training"])
    return made


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("state", Kind.CHECKPOINT),
        ("legacy", Kind.CHECKPOINT),
        ("training", Kind.CHECKPOINT),
        ("module", Kind.MODULE),
        ("script", Kind.TORCHSCRIPT),
        ("trace", Kind.TORCHSCRIPT),
        ("program", Kind.EXPORTED_PROGRAM),
    ],
)
def test_kinds_made_by_torch_have_no_extension_and_are_known(
    files: dict[str, Path], name: str, kind: Kind
) -> None:
    found = identify(files[name])
    assert found.kind is kind
    assert found.size == files[name].stat().st_size
    assert (found.unsafe_globals == ()) == (kind is not Kind.MODULE)


def test_globals_are_listed(files: dict[str, Path]) -> None:
    assert "torch._utils._rebuild_tensor_v2" in identify(files["state"]).globals
    assert any(name.endswith(".Net") for name in identify(files["module"]).unsafe_globals)


def safetensors(payload: bytes = bytes(8)) -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    return struct.pack("<Q", len(header)) + header + payload


def tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a"), io.BytesIO())
    return buffer.getvalue()


def zipped(**members: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (b"", Kind.EMPTY, "0 bytes"),
        (LFS, Kind.LFS_POINTER, "git lfs pull"),
        (b"\n<!DOCTYPE html><title>Sign in</title>", Kind.HTML, "web page"),
        (safetensors(), Kind.SAFETENSORS, "safetensors"),
        (b"import torch\nprint('hello')\n", Kind.TEXT, "import torch"),
        ("# größe\n".encode() * 600, Kind.TEXT, "text"),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), Kind.OTHER, "PNG"),
        (tar(), Kind.OTHER, "tar"),
        (b"\x1f\x8b\x08" + bytes(40), Kind.OTHER, "gzip"),
        (b"\x7fELF" + bytes(40), Kind.OTHER, "--load-library"),
        (bytes(200), Kind.UNKNOWN, "zeros"),
        (bytes(range(128, 256)) * 3, Kind.UNKNOWN, "80 81"),
        (zipped(a="b"), Kind.ZIP, "torch did not write"),
        (pickle.dumps([1, 2.0, "x"]), Kind.PICKLE, "pickle"),
        (pickle.dumps({"a": 1}, protocol=0), Kind.PICKLE, "pickle"),
    ],
)
def test_other_files_are_named(tmp_path: Path, content: bytes, kind: Kind, words: str) -> None:
    path = tmp_path / "weights.pt"
    path.write_bytes(content)
    found = identify(path)
    assert found.kind is kind
    assert words in found.description
    assert "\n" not in found.description


def test_onnx_is_known_and_its_end_checked(tmp_path: Path) -> None:
    import onnx

    value = onnx.helper.make_tensor_value_info("x", 1, [2])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [value], [value])
    content = onnx.helper.make_model(graph).SerializeToString()
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    assert identify(path).kind is Kind.ONNX
    for cut in (content[:-1], content[: len(content) // 2], content[:30] + bytes(len(content) - 30)):
        path.write_bytes(cut)
        with pytest.raises(ModelFileError, match="damaged"):
            identify(path)


def test_missing_directory_and_pipe_are_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, words in (
        (tmp_path / "absent", "does not exist"),
        (tmp_path, "directory"),
        (tmp_path / "pipe", "regular"),
    ):
        with pytest.raises(ModelFileError, match=words) as caught:
            identify(path)
        assert "\n" not in str(caught.value)


def test_names_with_control_characters_are_escaped(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError) as caught:
        identify(tmp_path / "evil\x1b[2J\nname")
    assert str(caught.value).isprintable()


def damaged(content: bytes, at: int) -> dict[str, bytes]:
    half = len(content) // 2
    return {
        "empty": b"",
        "first 100 bytes": content[:100],
        "half": content[:half],
        "last byte lost": content[:-1],
        "one bit flipped": content[:at] + bytes([content[at] ^ 0x04]) + content[at + 1 :],
        "zero-filled tail": content[:half] + bytes(len(content) - half),
        "a byte more": content + b"x",
    }


@pytest.mark.parametrize("name", ["state", "script", "program"])
def test_case_38_every_damage_is_refused(files: dict[str, Path], name: str, tmp_path: Path) -> None:
    content = files[name].read_bytes()
    weight = torch.load(files["state"])["layers.2.weight"].numpy().tobytes()
    at = content.index(weight[:16]) + 3
    for damage, broken in damaged(content, at).items():
        path = tmp_path / "broken.pt"
        path.write_bytes(broken)
        if damage == "empty":
            assert identify(path).kind is Kind.EMPTY
            continue
        with pytest.raises(ModelFileError, match="damaged"):
            identify(path)


def test_legacy_truncation_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "cut.pt"
    path.write_bytes(files["legacy"].read_bytes()[:200])
    with pytest.raises(ModelFileError, match="damaged"):
        identify(path)


def test_safetensors_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut"
    for content in (safetensors(bytes(7)), safetensors()[:20]):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match="damaged"):
            identify(path)


def test_an_archive_saved_without_checksums_says_so(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"w": torch.ones(3)}, path)
    finally:
        torch.serialization.set_crc32_options(True)
    assert "no checksums" in identify(path).description


@pytest.mark.parametrize("names", [("a/data.pkl", "a/DATA.PKL"), ("../a", "b"), ("/etc/passwd", "b")])
def test_archives_with_ambiguous_names_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(zipped(**dict.fromkeys(names, "x")))
    with pytest.raises(ModelFileError, match="damaged"):
        identify(path)


def test_a_zip_bomb_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", bytes(50_000_000))
    with pytest.raises(ModelFileError, match="expand"):
        identify(path)


def test_no_heavy_import(files: dict[str, Path]) -> None:
    code = (
        "import sys\nfrom deployops.export.model_files.model_file import identify\n"
        "for path in sys.argv[1:]: identify(path)\n"
        "print([m for m in ('torch', 'numpy', 'onnx', 'sympy') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, *map(str, files.values())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Pickles


def test_a_name_put_together_through_the_memo_is_seen() -> None:
    # 'os' and 'system' are pushed, memoised, dropped, and fetched back before STACK_GLOBAL.
    hidden = b"\x80\x04\x8c\x02os\x94\x8c\x06system\x940\x30h\x00h\x01\x93."
    assert scan_pickle(hidden).globals == ("os.system",)


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04K\x01\x8c\x06system\x93.",  # a module name that is no string
        b"\x80\x04\x82\x07.",  # an extension code
        b"cos\nsystem\n(S'true'\ntR.",
        b"(S'true'\nios\nsystem\n.",  # INST
        b"(cos\nsystem\nS'true'\no.",  # OBJ
        b"\x80\x02cos\nsystem\n\xff",  # breaks off after the import
    ],
)
def test_what_a_pickle_would_import_is_reported(content: bytes) -> None:
    assert unsafe_globals(scan_pickle(content).globals)


def test_allowed_globals_are_those_that_torch_allows() -> None:
    from torch._weights_only_unpickler import _get_allowed_globals

    python2 = {name for name in ALLOWED_GLOBALS if name.startswith("__builtin__")}
    assert set(_get_allowed_globals()) >= ALLOWED_GLOBALS - python2
    assert "torch.storage._load_from_bytes" not in ALLOWED_GLOBALS


# Strings that torch evaluates


@pytest.mark.parametrize(
    "text",
    [
        "Add(Mul(Integer(2), Symbol('s77', positive=True, integer=True)), Integer(1))",
        "FloorDiv(Symbol('s0', integer=True), Integer(2))",
        "Max(1, s0)//2 + s1**2",
        "Eq(Mod(s0, 4), 0) & (s0 < 10)",
    ],
)
def test_size_expressions_of_torch_pass(text: str) -> None:
    assert is_safe_size_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "().__class__.__base__.__subclasses__()",
        "(lambda: 0)()",
        "Symbol('a').name",
        "Symbol('__import__')",
        "s0['a']",
        "[s0 for s0 in s1]",
        "9**9**9",
        "Pow(Integer(9), Integer(999999))",
        "print('x')",
        "s0 #",
        "s0\n",
        "eval('1')",
        "Symbol(eval)('1')",
        "f'{s0}'",
        "(x := 1)",
        "",
    ],
)
def test_other_expressions_do_not(text: str) -> None:
    assert not is_safe_size_expression(text)
    assert not is_safe_guard(text)


def test_guards_of_torch_pass() -> None:
    assert is_safe_guard("((4*L['x'].size()[0]) % (L['x'].size()[0] // 2)) == 0")
    assert is_safe_guard("L['flag'] == 'mean'")
    assert is_safe_guard("math.trunc(L['args'][0].size()[0] / 2) <= 9223372036854775806")
    assert not is_safe_guard("L['x'].untyped_storage()")
    assert not is_safe_guard("math.__loader__")


# Mutations


@pytest.mark.parametrize("name", ["state", "legacy", "module", "script", "program"])
def test_mutated_files_raise_nothing_but_our_errors(
    files: dict[str, Path], name: str, tmp_path: Path
) -> None:
    content = files[name].read_bytes()
    source = random.Random(name)
    path = tmp_path / "mutant"
    for _ in range(150):
        mutant = bytearray(content)
        for _ in range(source.choice([1, 1, 3, 20])):
            # The structure is at both ends.
            spot = source.choice(
                [source.randrange(len(mutant)), source.randrange(400), -source.randrange(1, 1500)]
            )
            mutant[spot] = source.randrange(256)
        if source.random() < 0.3:
            del mutant[source.randrange(len(mutant)) :]
        path.write_bytes(mutant)
        try:
            identify(path)
        except DeployOpsError as error:
            assert "\n" not in str(error)  # noqa: PT017


HEADS = [
    b"",
    b"PK\x03\x04",
    b"\x80\x02",
    b"\x80\x04",
    b"\x08\x08\x12",
    struct.pack("<Q", 40) + b"{",
    b"version https://git-lfs",
]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(head=st.sampled_from(HEADS), rest=st.binary(max_size=200))
def test_any_bytes_raise_nothing_but_our_errors(tmp_path: Path, head: bytes, rest: bytes) -> None:
    path = tmp_path / "any"
    path.write_bytes(head + rest)
    try:
        identify(path)
    except DeployOpsError as error:
        assert str(error).isprintable()  # noqa: PT017
