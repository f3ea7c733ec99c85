"""`compile_library`: what is in a library, what it refuses, and what its users read when something goes wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch

from deployops import compile_library
from deployops.errors import DeclarationError, UsageError
from deployops.native.compilers import Compiler
from deployops.native.diagnostics import CompileError
from deployops.ort_ops import Library, check_kernels
from deployops.ort_ops.build_plan import Plan
from deployops.ort_ops.library_manifest import read_manifest
from deployops.ort_ops.manifest_writer import write_manifest
from deployops.symbolic import registry
from deployops.symbolic.operator import Operator

from .conftest import PACK
from .packs import COPY, SAME, written

# --- what is written ---------------------------------------------------------------------------------------------


def test_the_manifest_says_what_is_in_the_library(pack_library: Library, pack: dict[str, Operator]) -> None:
    manifest = json.loads(pack_library.manifest.read_text())
    assert manifest["sha256"] == sha256(pack_library.path.read_bytes()).hexdigest()
    assert manifest["target"] == "ort-cpu"
    assert manifest["compiler"]["version"]
    assert {"-std=c++17", "-O3"} <= set(manifest["flags"])
    of = {o["name"]: o for o in manifest["operators"]}
    assert set(of) == {op.name for op in pack.values()}
    gather = of["pack::gather_rows"]
    assert (gather["domain"], gather["op_type"], gather["version"]) == ("pack", "GatherRows", 1)
    assert {(s["inputs"]["x"], s["inputs"]["index"]) for s in gather["signatures"]} == {
        (x, i) for x in ("float32", "float64", "float16", "bfloat16") for i in ("int64", "int32")
    }
    assert {s["outputs"]["found"] for s in gather["signatures"]} == {"bool"}
    assert str(PACK.parent) not in pack_library.manifest.read_text()


def test_the_manifest_names_the_machine_that_the_library_is_for(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(b"")
    compiler = Compiler(Path("g++"), "gcc", "12", "aarch64-linux-gnu")
    write_manifest(library, Plan((), (), (), ("portable",), (), ()), compiler, ())
    assert json.loads(library.with_suffix(".json").read_text())["platform"] == f"{sys.platform}-aarch64"
    with pytest.raises(UsageError, match="is built for"):
        read_manifest(library)


def test_what_no_sample_shows_of_shapes_is_said(tmp_path: Path) -> None:
    text = (
        SAME.format("moded")
        .replace("x: Tensor)", "x: Tensor, mode: str = 'm')")
        .replace("_(x)", "_(x, mode='m')")
    )
    kernel = COPY.format("moded", "x[i]").replace("In<float> x", "In<float> x, std::string_view")
    place = written(tmp_path, text, "#include <string_view>\n" + kernel, "moded")
    [note] = compile_library(ops=[place], out=tmp_path / "lib").warnings
    assert "every sample has the same `mode`" in note
    [note] = compile_library(ops=[place], out=tmp_path / "lib").warnings  # from the kept plan
    assert "every sample has the same `mode`" in note


def test_a_check_without_a_manifest_says_what_it_cannot_know(
    pack_library: Library, pack: dict[str, Operator], tmp_path: Path
) -> None:
    [result] = check_kernels(shutil.copy(pack_library.path, tmp_path / "bare.so"), [pack["limit"]])
    assert result.status == "passed"
    assert "not checked: whether the library has the kernel file's newest state" in result.detail


def test_only_the_entry_points_are_visible(pack_library: Library) -> None:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(pack_library.path)], capture_output=True, text=True, check=True
    )
    names = {line.split()[2] for line in listed.stdout.splitlines()}
    assert "RegisterCustomOps" in names
    assert all(n == "RegisterCustomOps" or n.startswith("deployops_") for n in names), names


def test_no_path_of_this_machine_is_inside(pack_library: Library) -> None:
    content = pack_library.path.read_bytes()
    assert str(PACK.parent).encode() not in content
    assert str(Path.home()).encode() not in content or str(Path.home()) == "/"


def test_every_kernel_computes_what_its_reference_does(
    pack_library: Library, pack: dict[str, Operator]
) -> None:
    results = check_kernels(pack_library.path, list(pack.values()))
    assert len(results) == len(pack)
    assert all(r.status == "passed" for r in results), [r for r in results if r.status != "passed"]


# --- what is refused ---------------------------------------------------------------------------------------------


def test_no_kernel(tmp_path: Path) -> None:
    place = written(tmp_path, SAME.format("lonely"), None, "lonely")
    with pytest.raises(
        UsageError, match=r"has no kernel: there is no .*kernels/lonely\.h or .*lonely\.h"
    ) as e:
        compile_library(ops=[place], out=tmp_path / "lib")
    assert "inline void lonely(const Parallel& par, In<float> x, Out<float> y)" in str(e.value)


def test_an_error_in_the_kernel_is_shown_at_its_line(tmp_path: Path) -> None:
    place = written(tmp_path, SAME.format("broken"), COPY.format("broken", "x[i] + nothing"), "broken")
    with pytest.raises(CompileError) as e:
        compile_library(ops=[place], out=tmp_path / "lib")
    text = str(e.value)
    assert "broken.h:6" in text
    assert "nothing" in text
    assert not (tmp_path / "lib" / "libdeployops_ort_cpu.so").exists()


def test_a_kernel_with_another_signature_is_told_which_one_to_have(tmp_path: Path) -> None:
    kernel = COPY.format("shifted", "x[i]").replace("Out<float> y", "Out<float> y, int extra")
    place = written(tmp_path, SAME.format("shifted"), kernel, "shifted")
    with pytest.raises(CompileError) as e:
        compile_library(ops=[place], out=tmp_path / "lib")
    assert "void shifted(const Parallel& par, In<float> x, Out<float> y)" in str(e.value)


def test_a_parameter_that_loses_digits_is_another_signature(tmp_path: Path) -> None:
    text = (
        SAME.format("narrow")
        .replace("x: Tensor)", "x: Tensor, alpha: float = 0.5)")
        .replace("_(x)", "_(x, alpha=0.5)")
    )
    for given in ("int64_t", "float"):
        kernel = COPY.format("narrow", "float(alpha)").replace("In<float> x", f"In<float> x, {given} alpha")
        place = written(tmp_path, text, kernel, "narrow")
        with pytest.raises(CompileError, match="double alpha"):
            compile_library(ops=[place], out=tmp_path / "lib")


def test_what_a_kernel_includes_is_built_again_when_it_changes(tmp_path: Path) -> None:
    place = written(tmp_path, SAME.format("doubled"), COPY.format("doubled", "x[i] * FACTOR"), "doubled")
    shared = tmp_path / "elsewhere"
    shared.mkdir()
    kernel = tmp_path / "doubled.h"
    kernel.write_text(
        kernel.read_text().replace("#pragma once", '#pragma once\n#include "elsewhere/factor.h"')
    )
    results = []
    for factor in ("2", "3"):
        (shared / "factor.h").write_text(f"#define FACTOR {factor}\n")
        library = compile_library(ops=[place], out=tmp_path / "lib")
        from deployops.native.cpu_library import CpuLibrary

        copy = shutil.copy(library.path, tmp_path / f"lib{factor}.so")  # a loaded library is not loaded again
        [op] = registry.load([place])
        results.append(CpuLibrary(copy).run(op, [torch.ones(3)])[0].tolist())
    assert results == [[2.0] * 3, [3.0] * 3]


def test_nothing_changed_is_quick_and_needs_no_torch(tmp_path: Path) -> None:
    place = written(tmp_path, SAME.format("steady"), COPY.format("steady", "x[i]"), "steady")
    code = (
        "import sys\nfrom deployops import compile_library\n"
        f"library = compile_library(ops=[{place!r}], out={str(tmp_path / 'lib')!r})\n"
        "print(library.compiled, 'torch' in sys.modules)"
    )
    seen = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert int(seen[0][0]) > 0
    assert seen[1] == ["0", "False"]


def test_a_kernel_that_comes_to_stand_before_another_one_is_noticed(tmp_path: Path) -> None:
    from deployops.native.cpu_library import CpuLibrary

    place = written(tmp_path, SAME.format("ahead"), COPY.format("ahead", "2"), "ahead")
    compile_library(ops=[place], out=tmp_path / "lib")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "ahead.h").write_text((tmp_path / "ahead.h").read_text().replace("= 2", "= 102"))
    code = f"from deployops import compile_library\ncompile_library(ops=[{place!r}], out={str(tmp_path / 'lib')!r})"
    subprocess.run([sys.executable, "-c", code], check=True)
    [op] = registry.load([place])
    copy = shutil.copy(tmp_path / "lib" / "libdeployops_ort_cpu.so", tmp_path / "copy.so")
    assert CpuLibrary(copy).run(op, [torch.ones(2)])[0].tolist() == [102.0, 102.0]


def test_a_check_of_a_library_from_before_the_kernel_changed(tmp_path: Path) -> None:
    place = written(tmp_path, SAME.format("aged"), COPY.format("aged", "x[i]"), "aged")
    library = compile_library(ops=[place], out=tmp_path / "lib")
    [op] = registry.load([place])
    assert check_kernels(library.path, [op])[0].status == "passed"
    with (tmp_path / "aged.h").open("a") as kernel:
        kernel.write("// changed\n")
    [result] = check_kernels(library.path, [op])
    assert result.status == "failed"
    assert "has changed since the library was built" in result.detail


def test_names_that_meet_in_a_library(tmp_path: Path) -> None:
    """`m::n__o` beside `m__n::o`, and an operator called like something in the generated code."""
    declared = [("odd::b__c", "b__c"), ("odd__b::c", "c"), ("odd::call", "call"), ("odd::next", "next")]
    text = "import torch\nfrom torch import Tensor\nfrom deployops import operator\n"
    for name, short in declared:
        text += f"\n@operator({name!r}, dtypes=('float32',), onnx={name.partition('::')[0] + '::Odd_' + short!r})\n"
        text += SAME.format(short)
        (tmp_path / f"{short}.h").write_text(
            '#pragma once\n#include "deployops/parallel.h"\n#include "deployops/tensor.h"\n'
            + COPY.format(short, "x[i]")
        )
    (tmp_path / "odd_ops.py").write_text(text)
    library = compile_library(ops=[str(tmp_path / "odd_ops.py")], out=tmp_path / "lib")
    results = check_kernels(library.path, registry.load([str(tmp_path / "odd_ops.py")]))
    assert [r.status for r in results] == ["passed"] * 4


def test_a_dimension_that_a_tensor_lacks_is_an_error_not_a_crash(tmp_path: Path) -> None:
    kernel = COPY.format("last", "float(x.size(-1))")
    place = written(tmp_path, SAME.format("last"), kernel, "last")
    library = compile_library(ops=[place], out=tmp_path / "lib")
    from deployops.native.cpu_library import CpuLibrary, KernelError

    [op] = registry.load([place])
    with pytest.raises(KernelError, match=r"a tensor of shape \(\) has no dimension -1"):
        CpuLibrary(library.path).run(op, [torch.tensor(1.0)])


def test_two_builds_at_once(tmp_path: Path) -> None:
    place = written(tmp_path, SAME.format("twin"), COPY.format("twin", "x[i]"), "twin")
    code = f"from deployops import compile_library\ncompile_library(ops=[{place!r}], out={str(tmp_path / 'lib')!r})"
    environment = os.environ | {"DEPLOYOPS_CACHE": str(tmp_path / "cache")}
    running = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(2)]
    assert [p.wait() for p in running] == [0, 0]
    [op] = registry.load([place])
    assert check_kernels(tmp_path / "lib" / "libdeployops_ort_cpu.so", [op])[0].status == "passed"


def test_a_changed_declaration_is_noticed_by_an_old_library(tmp_path: Path) -> None:
    place = written(tmp_path, SAME.format("revised"), COPY.format("revised", "x[i]"), "revised")
    library = compile_library(ops=[place], out=tmp_path / "lib")
    declaration = Path(place)
    text = (
        declaration.read_text()
        .replace("x: Tensor)", "x: Tensor, low: int = 1)")
        .replace("_(x)", "_(x, low=1)")
    )
    declaration.write_text(text)
    code = (
        "from deployops.ort_ops import check_kernels\nfrom deployops.symbolic import registry\n"
        f"check_kernels({str(library.path)!r}, registry.load([{place!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "was built from another declaration of" in done.stderr


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        ("x: Tensor, names: list[str]", "a list of texts"),
        ("x: Tensor", "is a list; kernels have a fixed number of outputs"),
    ],
)
def test_what_a_library_cannot_carry(signature: str, words: str, tmp_path: Path) -> None:
    returns = "list[Tensor]" if "list;" in words else "Tensor"
    body = "[x.clone()]" if returns.startswith("list") else "x.clone()"
    fake = "[torch.empty_like(x)]" if returns.startswith("list") else "torch.empty_like(x)"
    text = (
        f"def odd({signature}) -> {returns}:\n    return {body}\n\n@odd.fake\ndef _({signature}):\n    return {fake}\n"
        "\n@odd.samples\ndef _(draw):\n    yield (draw(3), ['a'])[: len(odd.interface.arguments)]\n"
    )
    place = written(tmp_path, text, COPY.format("odd", "x[i]"), "odd")
    with pytest.raises(DeclarationError, match=words):
        compile_library(ops=[place], out=tmp_path / "lib")


def test_without_a_fake_kernel(tmp_path: Path) -> None:
    text = "def bare(x: Tensor) -> Tensor:\n    return x.clone()\n"
    place = written(tmp_path, text, COPY.format("bare", "x[i]"), "bare")
    with pytest.raises(DeclarationError, match="has no fake kernel"):
        compile_library(ops=[place], out=tmp_path / "lib")


def test_out_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "lib").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        compile_library(ops=[str(PACK)], out=tmp_path / "lib")


def test_the_command(command: Callable[..., Any], tmp_path: Path) -> None:
    place = written(tmp_path, SAME.format("spoken"), COPY.format("spoken", "x[i]"), "spoken")
    done = command("compile", "--ops", place, "-o", tmp_path / "lib", "--json")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert Path(said["library"]).is_file()
    assert len(said["operators"]) == 1
