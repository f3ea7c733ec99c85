"""A written model is whole, reproducible, and any change to it is found."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from deployops.errors import ExportError, ModelFileError, UsageError
from deployops.export.onnx_file import replace_file, write
from deployops.export.onnx_file.write import WrittenModel, read_model, verify_digest, write_model


def linear_model(rows: int = 64, seed: int = 0) -> onnx.ModelProto:
    """y = x @ w + b, with a weight of several kilobytes and a small bias."""
    rng = np.random.default_rng(seed)
    weight, bias = rng.normal(size=(rows, 8)).astype(np.float32), rng.normal(size=8).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", rows])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def weights(path: Path) -> dict[str, np.ndarray]:
    return {w.name: numpy_helper.to_array(w) for w in onnx.load(path).graph.initializer}


def test_inline_file_is_what_protobuf_itself_would_write(tmp_path: Path) -> None:
    written = write_model(linear_model(), tmp_path / "m.onnx")
    content = (tmp_path / "m.onnx").read_bytes()
    assert onnx.load(tmp_path / "m.onnx").SerializeToString(deterministic=True) == content
    assert written.paths == (tmp_path / "m.onnx",)
    assert written.bytes == len(content)


@pytest.mark.parametrize("external", [False, True])
def test_weights_and_graph_survive(tmp_path: Path, external: bool) -> None:
    original = linear_model()
    write_model(original, tmp_path / "m.onnx", external_data=external)
    for initializer in original.graph.initializer:
        expected = numpy_helper.to_array(initializer)
        np.testing.assert_array_equal(weights(tmp_path / "m.onnx")[initializer.name], expected)
    onnx.checker.check_model(tmp_path / "m.onnx", full_check=True)


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float8e4m3fn", "int4", "bool", "int64", "complex64"]
)
@pytest.mark.parametrize("external", [False, True])
def test_every_kind_of_element_is_written_as_onnx_writes_it(
    tmp_path: Path, dtype: str, external: bool
) -> None:
    number = getattr(TensorProto, dtype.upper())
    values = (np.arange(4096) % 7).astype(helper.tensor_dtype_to_np_dtype(number))
    model = linear_model()
    model.graph.initializer.append(numpy_helper.from_array(values, "t"))
    write_model(model, tmp_path / "m.onnx", external_data=external)
    loaded = weights(tmp_path / "m.onnx")["t"]
    assert loaded.dtype == values.dtype
    np.testing.assert_array_equal(loaded.astype(np.complex128), values.astype(np.complex128))


def test_a_transposed_view_is_written_in_its_own_order(tmp_path: Path) -> None:
    model = ir.from_proto(linear_model())
    values = np.arange(64 * 8, dtype=np.float32).reshape(8, 64).T
    model.graph.initializers["w"].const_value = ir.Tensor(values, name="w")
    write_model(model, tmp_path / "m.onnx")
    np.testing.assert_array_equal(weights(tmp_path / "m.onnx")["w"], values)


@pytest.mark.parametrize("external", [False, True])
def test_equal_models_give_equal_bytes(tmp_path: Path, external: bool) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_model(linear_model(), tmp_path / folder / "m.onnx", external_data=external)
    names = sorted(os.listdir(tmp_path / "a"))
    assert names == sorted(os.listdir(tmp_path / "b"))
    assert all((tmp_path / "a" / n).read_bytes() == (tmp_path / "b" / n).read_bytes() for n in names)


def test_writing_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model = ir.from_proto(linear_model())
    model.metadata_props["mine"] = "1"
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    write_model(model, tmp_path / "m.onnx", external_data=True)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_a_written_model_can_be_written_again(tmp_path: Path) -> None:
    first = write_model(linear_model(), tmp_path / "m.onnx", external_data=True)
    again = write_model(ir.load(tmp_path / "m.onnx"), tmp_path / "m.onnx", external_data=True)
    inline = write_model(ir.load(tmp_path / "m.onnx"), tmp_path / "m.onnx")
    assert first == again
    assert inline == WrittenModel((tmp_path / "m.onnx",), inline.bytes, inline.digest)
    verify_digest(tmp_path / "m.onnx")


def test_every_flipped_bit_of_a_small_model_is_found(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    small = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    write_model(small, path)
    content = path.read_bytes()
    missed = []
    for at in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[at // 8] ^= 1 << at % 8
        path.write_bytes(damaged)
        try:
            verify_digest(path)
            missed.append(at)
        except ModelFileError:
            pass
    assert missed == []


def test_every_truncation_is_found(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write_model(linear_model(rows=40), path)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError, match="damaged" if length else "an empty file"):
            verify_digest(path)


def test_the_damages_of_case_38(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write_model(linear_model(), path)
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 0x10
    half = len(content) // 2
    for damaged in (
        b"",
        content[:100],
        content[:half],
        content[:-1],
        bytes(flipped),
        content[:half] + bytes(half),
    ):
        path.write_bytes(damaged)
        with pytest.raises(ModelFileError, match="damaged" if damaged else "an empty file"):
            verify_digest(path)


@pytest.mark.parametrize(
    "content", [b"<!DOCTYPE html>\n<html>", b"PK\x03\x04" + bytes(60), b"\x00", b"x" * 1000]
)
def test_what_is_no_model_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    for check in (verify_digest, read_model):
        with pytest.raises(ModelFileError, match="not an ONNX model"):
            check(path)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="No such file"):
        verify_digest(tmp_path / "none.onnx")
    with pytest.raises(ModelFileError, match="directory"):
        read_model(tmp_path)


def test_an_edited_model_is_found(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write_model(linear_model(), path)
    model = onnx.load(path)
    model.graph.node[0].name = "renamed"
    onnx.save(model, path)
    with pytest.raises(ModelFileError, match="edited after export"):
        verify_digest(path)


def test_a_removed_digest_is_found(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write_model(linear_model(), path)
    model = onnx.load(path)
    del model.metadata_props[:]
    onnx.save(model, path)
    with pytest.raises(ModelFileError, match="its digest is gone"):
        verify_digest(path)


class TestSideFile:
    @pytest.fixture
    def written(self, tmp_path: Path) -> tuple[Path, Path]:
        model, data = write_model(linear_model(), tmp_path / "m.onnx", external_data=True).paths
        return model, data

    def test_whole(self, written: tuple[Path, Path]) -> None:
        verify_digest(written[0])

    def test_only_the_model_was_copied(self, written: tuple[Path, Path], tmp_path: Path) -> None:
        (tmp_path / "copy").mkdir()
        alone = Path(shutil.copy(written[0], tmp_path / "copy"))
        with pytest.raises(ModelFileError, match=rf"needs the side file {written[1].name}"):
            verify_digest(alone)

    def test_cut_short(self, written: tuple[Path, Path]) -> None:
        written[1].write_bytes(written[1].read_bytes()[:-1])
        with pytest.raises(ModelFileError, match="damaged"):
            verify_digest(written[0])

    def test_flipped_byte(self, written: tuple[Path, Path]) -> None:
        content = bytearray(written[1].read_bytes())
        content[100] ^= 1
        written[1].write_bytes(content)
        with pytest.raises(ModelFileError, match="digest"):
            verify_digest(written[0])

    def test_link_to_a_file_outside(self, written: tuple[Path, Path], tmp_path: Path) -> None:
        outside = tmp_path.parent / f"{tmp_path.name}-outside.data"
        shutil.move(written[1], outside)
        written[1].symlink_to(outside)
        with pytest.raises(ModelFileError, match="outside its folder"):
            verify_digest(written[0])


class TestModelsOfOtherTools:
    """No digest: structure and side files are checked."""

    def save(self, path: Path, location: str, length: int | None = None) -> None:
        model = linear_model()
        model.graph.initializer[0].ClearField("raw_data")
        model.graph.initializer[0].data_location = TensorProto.EXTERNAL
        entries = {"location": location, "offset": "0", "length": str(length or 64 * 8 * 4)}
        for key, value in entries.items():
            model.graph.initializer[0].external_data.add(key=key, value=value)
        path.write_bytes(model.SerializeToString())

    def test_inline(self, tmp_path: Path) -> None:
        onnx.save(linear_model(), tmp_path / "m.onnx")
        verify_digest(tmp_path / "m.onnx")

    def test_whole(self, tmp_path: Path) -> None:
        self.save(tmp_path / "m.onnx", "w.bin")
        (tmp_path / "w.bin").write_bytes(bytes(64 * 8 * 4))
        verify_digest(tmp_path / "m.onnx")

    def test_missing(self, tmp_path: Path) -> None:
        self.save(tmp_path / "m.onnx", "w.bin")
        with pytest.raises(ModelFileError, match="missing"):
            verify_digest(tmp_path / "m.onnx")

    def test_cut_short(self, tmp_path: Path) -> None:
        self.save(tmp_path / "m.onnx", "w.bin")
        (tmp_path / "w.bin").write_bytes(bytes(100))
        with pytest.raises(ModelFileError, match=r"100 bytes, but m.onnx needs 2,048"):
            verify_digest(tmp_path / "m.onnx")

    @pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "sub/../../w.bin"])
    def test_outside_the_folder(self, tmp_path: Path, location: str) -> None:
        self.save(tmp_path / "m.onnx", location)
        with pytest.raises(ModelFileError, match="outside its folder"):
            verify_digest(tmp_path / "m.onnx")


class TestReplacing:
    def test_an_interrupted_run_leaves_the_old_model(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "m.onnx"
        write_model(linear_model(seed=1), path, external_data=True)
        before = sorted(os.listdir(tmp_path))
        calls = iter([os.replace])

        def interrupted(*names: object) -> None:  # the side file is in place, the model is not
            try:
                next(calls)(*names)  # type: ignore[arg-type]
            except StopIteration:
                raise KeyboardInterrupt from None

        monkeypatch.setattr(replace_file.os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_model(linear_model(seed=2), path, external_data=True)
        assert sorted(os.listdir(tmp_path)) == before
        verify_digest(path)

    @pytest.mark.parametrize("external", [False, True])
    def test_the_side_file_that_is_no_longer_needed_goes(self, tmp_path: Path, external: bool) -> None:
        path = tmp_path / "m.onnx"
        write_model(linear_model(seed=1), path, external_data=True)
        stranger = tmp_path / "m.0123456789ab.data"
        stranger.write_bytes(b"not of this model")
        written = write_model(linear_model(seed=2), path, external_data=external)
        assert sorted(tmp_path.iterdir()) == sorted([*written.paths, stranger])

    def test_leftovers_of_killed_runs_go(self, tmp_path: Path) -> None:
        old, new, other = (
            tmp_path / f".{n}.tmp" for n in ("m.onnx." + "a" * 12, "m.onnx." + "b" * 12, "n.onnx")
        )
        for file in (old, new, other):
            file.touch()
        os.utime(old, (0, 0))
        os.utime(other, (0, 0))
        write_model(linear_model(), tmp_path / "m.onnx")
        assert not old.exists()
        assert new.exists(), "perhaps of a run under way"
        assert other.exists()

    def test_a_failed_write_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(replace_file.os, "fsync", full)
        with pytest.raises(UsageError, match="No space left"):
            write_model(linear_model(), tmp_path / "m.onnx", external_data=True)
        assert list(tmp_path.iterdir()) == []


def test_a_target_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        write_model(linear_model(), tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        write_model(linear_model(), tmp_path / "no" / "m.onnx")


def test_beyond_the_limit_of_protobuf_a_side_file_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = write_model(linear_model(), tmp_path / "m.onnx").bytes
    monkeypatch.setattr(write, "PROTOBUF_LIMIT", size)
    assert len(write_model(linear_model(), tmp_path / "m.onnx").paths) == 1
    monkeypatch.setattr(write, "PROTOBUF_LIMIT", size - 1)
    assert len(write_model(linear_model(), tmp_path / "m.onnx").paths) == 2
    with pytest.raises(ExportError, match="at most"):
        write_model(linear_model(), tmp_path / "m.onnx", external_data=False)


def test_onnxruntime_loads_both_forms(tmp_path: Path) -> None:
    import onnxruntime

    x = np.ones((3, 64), np.float32)
    results = []
    for external in (False, True):
        write_model(linear_model(), tmp_path / "m.onnx", external_data=external)
        session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
        results.append(session.run(None, {"x": x})[0])
    w = weights(tmp_path / "m.onnx")
    np.testing.assert_allclose(results[0], x @ w["w"] + w["b"], rtol=1e-5)
    np.testing.assert_array_equal(*results)
