"""Libraries from objects, and bytes that do not depend on where or when they were made."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from deployops.errors import UsageError
from deployops.native.compilers import Compiler
from deployops.native.diagnostics import CompileError
from deployops.native.linking import files_taken, put_library, writing_library
from deployops.native.object_cache import Cache, CompileJob

from .conftest import FLAGS, Counted

Job = Callable[..., CompileJob]
VISIBLE = 'extern "C" __attribute__((visibility("default"))) '


def shown(value: int) -> str:
    return f"{VISIBLE} int go() {{ return {value}; }}"


@pytest.fixture
def links(gcc: Compiler, script: Callable[..., Path], tmp_path: Path) -> Counted:
    text = f'case " $* " in *" -shared "*) printf x >> "{tmp_path}/links";; esac\nexec {gcc.path} "$@"'
    return Counted(replace(gcc, path=script("g++", text)), tmp_path / "links")


def test_a_library_is_linked_once_for_the_same_objects(links: Counted, cache: Cache, job: Job) -> None:
    made = [cache.compile(job(links.compiler, shown(n), keep=None)) for n in (1, 2)]
    first = cache.link(made[:1], links.compiler, (), "liba.so")
    assert Cache(cache.root).link(made[:1], links.compiler, (), "liba.so") == first
    assert links.runs == 1
    assert cache.link(made[1:], links.compiler, (), "liba.so") != first
    cache.link(made[:1], links.compiler, ("-Wl,-s",), "liba.so")
    cache.link(made[:1], links.compiler, (), "libb.so")
    assert links.runs == 4


def test_a_damaged_library_is_linked_again(links: Counted, cache: Cache, job: Job) -> None:
    made = cache.compile(job(links.compiler, shown(5), keep=None))
    path = cache.link([made], links.compiler, (), "liba.so")
    content = path.read_bytes()
    path.write_bytes(content[:100])
    again = cache.link([made], links.compiler, (), "liba.so")
    assert again.read_bytes() == content
    assert ctypes.CDLL(str(again)).go() == 5


def test_a_changed_archive_is_linked_again(links: Counted, cache: Cache, job: Job, tmp_path: Path) -> None:
    call = cache.compile(
        job(links.compiler, f'extern "C" int part(); {VISIBLE} int go() {{ return part(); }}', keep=None)
    )
    for value in (1, 2):
        made = cache.compile(job(links.compiler, f'extern "C" int part() {{ return {value}; }}', keep=None))
        archive = tmp_path / "libpart.a"
        archive.unlink(missing_ok=True)
        subprocess.run(["ar", "rc", archive, made], check=True)
        library = cache.link([call], links.compiler, (f"-L{tmp_path}", "-lpart"), "liba.so")
        assert ctypes.CDLL(shutil.copy(library, tmp_path / f"lib{value}.so")).go() == value


def test_a_changed_version_script_is_linked_again(
    links: Counted, cache: Cache, job: Job, tmp_path: Path
) -> None:
    made = cache.compile(job(links.compiler, shown(1), keep=None))
    text = tmp_path / "versions"
    names = []
    for shows in ("go", "nothing"):
        text.write_text(f"{{ global: {shows}; local: *; }};")
        library = cache.link([made], links.compiler, (f"-Wl,--version-script={text}",), "liba.so")
        names.append(
            subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True).stdout
        )
    assert "go" in names[0]
    assert "go" not in names[1]


def test_the_name_is_inside_the_library(compiler: Compiler, cache: Cache, job: Job) -> None:
    library = cache.link([cache.compile(job(compiler, shown(1), keep=None))], compiler, (), "libmine.so")
    assert "[libmine.so]" in subprocess.run(["readelf", "-d", library], capture_output=True, text=True).stdout


def test_undefined_symbols_are_told_with_the_object(compiler: Compiler, cache: Cache, job: Job) -> None:
    source = f"int cblas_dot(int); {VISIBLE} int go() {{ return cblas_dot(1) + cblas_dot(2); }}"
    made = cache.compile(job(compiler, source, name="acme::swish (avx2)", keep=None))
    with pytest.raises(CompileError) as caught:
        cache.link([made], compiler, (), "liba.so")
    assert re.fullmatch(
        r"undefined: cblas_dot\(int\), used in acme::swish \(avx2\)\. Define it .*", str(caught.value)
    )
    assert caught.value.log is not None
    assert "undefined reference" in caught.value.log.read_text()


def test_symbols_defined_twice_are_told(compiler: Compiler, cache: Cache, job: Job) -> None:
    made = [cache.compile(job(compiler, shown(1), name=f"k{n}", keep=None)) for n in (1, 2)]
    with pytest.raises(CompileError, match=r"defined more than once: go.*template or `inline`"):
        cache.link(made, compiler, (), "liba.so")


def test_an_object_that_is_gone(compiler: Compiler, cache: Cache, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not there or cannot be read: .*gone\.o"):
        cache.link([tmp_path / "gone.o"], compiler, (), "liba.so")


def test_the_files_in_a_trace(tmp_path: Path) -> None:
    for name in ("crti.o", "lib(x).a", "liby.a"):
        (tmp_path / name).write_text("")
    (tmp_path / "build").mkdir()
    (tmp_path / "build/0-k.o").write_text("")
    lines = ["crti.o", "lib(x).a", "liby.a(member.o)", "build/0-k.o"]
    trace = (
        "\n".join(f"{tmp_path}/{line}" for line in lines) + f"\n({tmp_path}/liby.a)member.o\n-lgone\n0-k.o\n"
    )
    assert files_taken(trace, tmp_path / "build") == [
        f"{tmp_path}/{n}" for n in ("crti.o", "lib(x).a", "liby.a")
    ]


# --- the same bytes everywhere -------------------------------------------------------------------------------------

REVEALING = """
#pragma once
#include <cassert>
#include <string>
inline const char* place() { return __FILE__; }
template <class T> T checked(T x) { assert(x > 0); static_assert(__LINE__ > 0); return x; }
"""


@pytest.mark.parametrize("more", [(), ("-g",), ("-fsanitize=address,undefined", "-g")], ids=" ".join)
def test_another_place_gives_the_same_bytes(
    more: tuple[str, ...], compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = '#include "deployops/revealing.h"\n#include "swish.h"\n' + (
        f"{VISIBLE} const char* where() {{ return place(); }}\n"
        f"{VISIBLE} int go(int x) {{ return checked(x) + int(std::string(place()).size()) + swish(); }}\n"
    )
    found = []
    for checkout in ("one/checkout", "another place=x/of the=same"):
        base = tmp_path / checkout
        (base / "include/deployops").mkdir(parents=True)
        (base / "kernels").mkdir()
        (base / "include/deployops/revealing.h").write_text(REVEALING)
        (base / "kernels/swish.h").write_text("inline int swish() { return int(sizeof(__FILE__)); }\n")
        monkeypatch.chdir(base)
        cache = Cache(base / "cache")
        job = CompileJob(
            "swish", source, compiler, (*FLAGS, *more), (base / "kernels", base / "include"), None
        )
        made = cache.compile(job)
        library = cache.link([made], compiler, more, "libdeployops.so")
        found.append((made.read_bytes(), library.read_bytes()))
    assert found[0] == found[1]
    for content in found[0]:
        assert str(tmp_path).encode() not in content
        assert b"include-1/deployops/revealing.h" in content  # what __FILE__ says instead


def test_another_checkout_takes_the_same_object(
    counted: Counted, cache: Cache, job: Job, tmp_path: Path
) -> None:
    made = []
    for checkout in ("one", "two"):
        (tmp_path / checkout).mkdir()
        (tmp_path / checkout / "kernel.h").write_text("inline int value() { int unused = 3; return 1; }\n")
        source = '#include "kernel.h"\nextern "C" int entry() { return value(); }\n'
        made.append(cache.compile(job(counted.compiler, source, tmp_path / checkout)))
        assert f"{tmp_path / checkout}/kernel.h:1:" in cache.outputs["kernel"].text
    assert made[0] == made[1]
    assert counted.runs == 1


@pytest.mark.parametrize("macro", ["__DATE__", "__TIME__", "__TIMESTAMP__"])
def test_times_in_a_kernel_are_refused(macro: str, compiler: Compiler, cache: Cache, job: Job) -> None:
    with pytest.raises(CompileError, match=r"(?i)reproducible"):
        cache.compile(job(compiler, f'extern "C" const char* entry() {{ return {macro}; }}'))


def test_a_library_and_its_manifest_are_of_one_build(tmp_path: Path) -> None:
    """Two builds at once into one folder."""
    folder = tmp_path / "lib"

    def build(name: str) -> None:
        built = tmp_path / name
        built.write_text(name)
        for _ in range(5):
            with writing_library(folder):
                put_library(built, folder, "lib.so")
                time.sleep(0.01)
                (folder / "lib.json").write_text(name)
                assert (folder / "lib.so").read_text() == (folder / "lib.json").read_text()

    with ThreadPoolExecutor() as pool:
        list(pool.map(build, ("one", "two", "three")))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UsageError, match="cannot be made: Not a directory"),
        writing_library(tmp_path / "file/lib"),
    ):
        pass
