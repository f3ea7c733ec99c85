"""Objects of several instruction-set levels in one library: each keeps its own instances of what both contain."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deployops.errors import UsageError
from deployops.native.compilers import Compiler, find_binutils
from deployops.native.diagnostics import CompileError
from deployops.native.levels import levels_for
from deployops.native.object_cache import Cache, CompileJob

from .conftest import FLAGS

Job = Callable[..., CompileJob]

HEADER = """
#pragma once
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>
struct InputError : std::runtime_error { using std::runtime_error::runtime_error; };
struct Base { virtual ~Base() = default; virtual int value() const { return 1; } };
struct Derived : Base { int value() const override { return LEVEL; } };
struct Counter { static inline int count = 0; };
template <class T> struct Holder { static T value; };
template <class T> T Holder<T>::value = T(LEVEL);
template <class T> __attribute__((noinline)) int instance(T) { static int calls = 0; return ++calls * 100 + LEVEL; }
inline __attribute__((noinline)) std::string words(int n) {
  std::ostringstream s;
  s << "n=" << n;
  std::vector<std::string> v{s.str()};
  for (int i = 0; i < 3; ++i) v.push_back(v.back() + "x");
  return v.back();
}
inline thread_local int per_thread = LEVEL;
"""
# The answers of one object at LEVEL n; question 1 throws.
KERNEL = """
#include "shared.h"
extern "C" int ENTRY(int question) {
  Counter::count += LEVEL;
  switch (question) {
    case 0: return instance(1.0f);
    case 1: throw InputError(words(LEVEL));
    case 2: { std::unique_ptr<Base> b(new Derived); auto* d = dynamic_cast<Derived*>(b.get()); return d->value(); }
    case 3: std::cout << words(LEVEL) << std::endl; return 0;
    case 4: return Counter::count;
    case 5: return per_thread;
    case 6: return int(Holder<float>::value);
    case 7: try { throw InputError("inside"); } catch (const std::exception& e) { return int(std::string(e.what()).size()); }
  }
  return -1;
}
"""
MAIN = """
#include "shared.h"
extern "C" int entry_1(int);
extern "C" int entry_2(int);
int main() {
  for (auto entry : {entry_1, entry_2}) {
    for (int question : {0, 2, 5, 6, 7}) std::cout << entry(question) << ' ';
    entry(3);
    try { entry(1); } catch (const InputError& e) { std::cout << "InputError " << e.what() << std::endl; }
    std::cout << entry(4) << std::endl;
  }
}
"""
# By hand from the text of the kernel; the 8th call of an entry is the one that asks for the count.
ANSWERS = "101 1 1 1 6 n=1xxx\nInputError n=1xxx\n8\n102 2 2 2 6 n=2xxx\nInputError n=2xxx\n16\n"

SETTINGS = [
    (),
    ("-fsanitize=address,undefined", "-g"),
    ("-g", "-O3"),
    ("-ffunction-sections", "-fdata-sections"),
]


@pytest.fixture
def level_jobs(tmp_path: Path) -> Callable[..., list[CompileJob]]:
    (tmp_path / "shared.h").write_text(HEADER)

    def make(compiler: Compiler, *more: str, keep: bool = True) -> list[CompileJob]:
        flags = (*(f for f in FLAGS if f != "-Wextra"), *more)
        return [
            CompileJob(
                f"kernel.{n}",
                KERNEL.replace("ENTRY", f"entry_{n}"),
                compiler,
                (*flags, f"-DLEVEL={n}"),
                (tmp_path,),
                f"entry_{n}" if keep else None,
            )
            for n in (1, 2)
        ]

    return make


def run_linked(
    cache: Cache, compiler: Compiler, objects: list[Path], folder: Path, flags: tuple[str, ...]
) -> str:
    """What `main` says, linked with the objects."""
    (folder / "main.cpp").write_text(MAIN)
    command = [compiler.path, "-std=c++17", "-DLEVEL=0", *flags, "main.cpp", *objects, "-o", "main"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    done = subprocess.run([folder / "main"], capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("more", SETTINGS, ids=" ".join)
def test_each_object_keeps_its_own_instances(
    more: tuple[str, ...],
    compiler: Compiler,
    cache: Cache,
    level_jobs: Callable[..., list[CompileJob]],
    tmp_path: Path,
) -> None:
    objects = [cache.compile(j) for j in level_jobs(compiler, *more)]
    said = run_linked(cache, compiler, objects, tmp_path, more)
    assert said == ANSWERS


def test_the_linker_mixes_objects_that_are_not_closed(
    compiler: Compiler, cache: Cache, level_jobs: Callable[..., list[CompileJob]], tmp_path: Path
) -> None:
    """The control: the same objects without the treatment are what it is for."""
    objects = [cache.compile(j) for j in level_jobs(compiler, keep=False)]
    assert run_linked(cache, compiler, objects, tmp_path, ()) != ANSWERS


def test_exceptions_cross_a_library(
    compiler: Compiler, cache: Cache, level_jobs: Callable[..., list[CompileJob]], tmp_path: Path
) -> None:
    """As in the real library: one object catches what another throws, all of it hidden inside one .so."""
    front = """
#include "shared.h"
extern "C" int entry_1(int);
extern "C" __attribute__((visibility("default"))) const char* go() {
  static std::string text;
  try { entry_1(1); } catch (const InputError& e) { text = std::string("caught ") + e.what(); }
  return text.c_str();
}
"""
    first = level_jobs(compiler)[0]
    adapter = replace(first, name="adapter", source=front, flags=(*FLAGS, "-DLEVEL=9"), keep_symbol=None)
    library = cache.link([cache.compile(adapter), cache.compile(first)], compiler, (), "libfront.so")
    import ctypes

    c = ctypes.CDLL(shutil.copy(library, tmp_path / "libfront.so"))
    c.go.restype = ctypes.c_char_p
    assert c.go() == b"caught n=1xxx"


@pytest.mark.parametrize("where", ["static int buffer[4]", "inline int buffer[4]"])
def test_sanitizers_still_find_faults(
    where: str, compiler: Compiler, cache: Cache, job: Job, tmp_path: Path
) -> None:
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g")
    source = (
        f'{where} = {{1, 2, 3, 4}};\nextern "C" int entry(int i) {{ buffer[1] = i; return buffer[i]; }}\n'
    )
    made = cache.compile(replace(job(compiler, source), flags=(*FLAGS, *flags)))
    main = '#include <cstdlib>\nextern "C" int entry(int);\nint main(int, char** v) { return entry(std::atoi(v[1])); }\n'
    (tmp_path / "main.cpp").write_text(main)
    subprocess.run([compiler.path, *flags, "main.cpp", made, "-o", "main"], cwd=tmp_path, check=True)
    good, bad = (subprocess.run([tmp_path / "main", i], capture_output=True, text=True) for i in ("3", "4"))
    assert (good.returncode, good.stderr) == (4, "")
    assert "out of bounds" in bad.stderr or "global-buffer-overflow" in bad.stderr


@pytest.mark.parametrize("level", ["portable", "avx2", "avx512"])
def test_a_closed_object_shows_one_symbol_and_asks_for_no_processor(
    level: str, compiler: Compiler, cache: Cache, level_jobs: Callable[..., list[CompileJob]]
) -> None:
    flags = next((lv.flags for lv in levels_for(compiler.target) if lv.name == level), None)
    if flags is None:
        pytest.skip("not a level of this processor")
    made = cache.compile(level_jobs(compiler, *flags)[0])

    def said(program: str, *arguments: str) -> str:
        command = [program, *arguments, str(made)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert said(str(find_binutils("nm")), "--extern-only", "--defined-only").split()[1:] == ["T", "entry_1"]
    assert "COMDAT" not in said("readelf", "-gW")
    # Else the loader would refuse the whole library on a lesser processor, before the library could choose.
    assert "x86-64-v" not in said("readelf", "-nW")
    assert ".note.GNU-stack" in said("readelf", "-SW")


def test_a_symbol_that_is_not_there(compiler: Compiler, cache: Cache, job: Job) -> None:
    for source in (
        "int entry() { return 1; }",
        'extern "C" int other() { return 1; }',
        "static int entry() { return 1; }\nint f() { return entry(); }",
    ):
        with pytest.raises(
            CompileError, match='does not define the symbol `entry` for others: expected `extern "C"`'
        ):
            cache.compile(job(compiler, source))


def test_a_symbol_that_cannot_be_made_local_is_refused(
    gcc: Compiler, wrapped: Callable[[Compiler, str], Compiler], cache: Cache, job: Job
) -> None:
    """GNU unique symbols are kept out by a flag; here the compiler is made to forget it."""
    forgetful = wrapped(gcc, 'set -- $(echo "$@" | sed s/-fno-gnu-unique//)')
    source = 'template <class T> int* f() { static int x; return &x; }\nextern "C" int entry() { return ++*f<int>(); }'
    with pytest.raises(CompileError, match=r"besides `entry` stay visible.*_ZZ1f"):
        cache.compile(job(forgetful, source))


def test_link_time_optimisation_is_refused(compiler: Compiler, cache: Cache, job: Job) -> None:
    asked = job(compiler, 'extern "C" int entry() { return 1; }')
    with pytest.raises(UsageError, match="-flto"):
        cache.compile(replace(asked, flags=(*FLAGS, "-flto")))
