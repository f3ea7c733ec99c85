"""Compiler errors as the author of a kernel reads them. The compilers are the real ones; the kernels are wrong."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from deployops.errors import UsageError
from deployops.native.compile_job import expect_cacheable
from deployops.native.compiler_output import read_output
from deployops.native.compilers import Compiler
from deployops.native.diagnostics import CompileError, explain, warnings_in
from deployops.native.object_cache import Cache, CompileJob

from .conftest import FLAGS

OURS = """#pragma once
namespace deployops {
template <class T> struct In { const T* data; long n; };
template <class T> struct Out { T* data; long n; };
struct Parallel {};
struct float16 { unsigned short bits; };
template <class T> inline void needs_wide(T) { static_assert(sizeof(T) >= 4, "lanes hold at least 4 bytes"); }
template <class T> inline void outer(T x) { needs_wide(x); }
}
"""
GENERATED = """// Kernels of deployops::swish.
#include "deployops/ours.h"
#include "swish.h"
namespace {
using namespace deployops;

// dtype: float16
void entry_0() {
  In<float16> x{}; Out<float16> y{};
  swish(Parallel{}, x, 1.0, y);
}

// dtype: float32
void entry_1() {
  In<float> x{}; Out<float> y{};
  swish(Parallel{}, x, 1.0, y);
}
}
extern "C" void entry() { entry_0(); entry_1(); }
"""
SIGNATURE = "template <class T> void swish(const Parallel& par, In<T> x, double beta, Out<T> y);"


def kernel(body: str, before: str = "") -> str:
    return f"""#pragma once
#include "deployops/ours.h"
namespace deployops {{
{before}
template <class T> void swish(const Parallel&, In<T> x, double beta, Out<T> y) {{
  static_cast<void>(x); static_cast<void>(y); static_cast<void>(beta);
  {body}
}}
}}
"""


class Author:
    """Someone who writes swish.h and compiles it."""

    def __init__(self, folder: Path, compiler: Compiler) -> None:
        self.file = folder / "mine" / "swish.h"
        self._ours = folder / "include"
        for path in (self.file, self._ours / "deployops/ours.h"):
            path.parent.mkdir(parents=True)
        (self._ours / "deployops/ours.h").write_text(OURS)
        self._cache = Cache(folder / "cache")
        self._compiler = compiler

    def job(self, source: str = GENERATED) -> CompileJob:
        folders = (self.file.parent, self._ours)
        return CompileJob("swish.avx2", source, self._compiler, FLAGS, folders, "entry")

    def output(self, text: str, source: str = GENERATED) -> str:
        self.file.write_text(text)
        with pytest.raises(CompileError) as caught:
            self._cache.compile(self.job(source))
        return caught.value.output

    def told(self, text: str, **options: int) -> str:
        return explain(
            self.output(text),
            [self.file],
            generated=GENERATED,
            kernel="swish",
            signature=SIGNATURE,
            **options,
        )

    def warned(self, text: str) -> list[str]:
        self.file.write_text(text)
        self._cache.compile(self.job())
        said = self._cache.outputs["swish.avx2"].text
        return warnings_in(said, [self.file], generated=GENERATED, kernel="swish")


@pytest.fixture
def author(tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> Author:
    monkeypatch.chdir(tmp_path)
    return Author(tmp_path, compiler)


def first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, text
    return found[0]


def test_an_error_comes_with_its_line_a_caret_and_the_dtype(author: Author) -> None:
    told = author.told(kernel("y.data[0] = x.data[0] * beta;")).splitlines()
    assert re.match(r"mine/swish\.h:7:\d+: error: (no match for|invalid operands)", told[0])
    assert told[1] == "    7 |   y.data[0] = x.data[0] * beta;"
    caret = told[2].index("^")
    assert told[1][caret] in "*x"  # gcc marks the whole product, clang the operator
    assert told[3] == "  while compiling swish for float16"
    assert len(told) == 4


def test_one_mistake_is_told_once_for_all_dtypes(author: Author) -> None:
    told = author.told(kernel("return nothing_here(x);"))
    assert told.count("nothing_here") == 2  # the message, and the line
    assert told.endswith("\n  while compiling swish for float16, float32")


def test_two_mistakes_in_one_instantiation_both_know_the_dtype(author: Author) -> None:
    told = author.told(kernel("if (sizeof(T) == 2) { x.nope = 1; x.nada = 2; }"))
    assert told.count("while compiling swish for float16, float32") == 2


def test_an_error_inside_our_headers_is_told_at_the_line_that_asked(author: Author) -> None:
    told = author.told(kernel("outer(T{});")).splitlines()
    assert re.match(r"mine/swish\.h:7:\d+: error: static.assert.*lanes hold at least 4 bytes", told[0])
    assert told[1] == "    7 |   outer(T{});"
    assert told[2].strip("| ") == "^"
    assert re.match(r"  found in include/deployops/ours\.h:7:\d+, which this line asks for", told[3])
    assert told[4] == "  while compiling swish for float16"


def test_an_error_in_a_header_of_the_user_is_the_users(author: Author) -> None:
    (author.file.parent / "more.h").write_text("#pragma once\ninline int broken() { return nothing_here; }\n")
    text = author.output('#include "more.h"\n' + kernel(""))
    assert explain(text, [author.file.parent]).startswith("mine/more.h:2:30: error:")


MISFITS = {
    "an argument too few": ("template <class T> void swish(const Parallel&, In<T>, Out<T>) {}", "swish.h:3:"),
    "another type": (
        "template <class T> void swish(const Parallel&, In<T>, const char*, Out<T>) {}",
        "swish.h:3:",
    ),
    "no template": ("inline void swish(const Parallel&, In<float>, Out<float>) {}", ""),
    "another name": ("template <class T> void silu(const Parallel&, In<T>, double, Out<T>) {}", ""),
    "another namespace": ("} namespace mine { template <class T> void swish(T, T) {}", ""),
    "twice": (
        "template <class T> void swish(const Parallel&, In<T>, double, Out<T>) {}\n"
        "template <class T> void swish(Parallel, In<T>, double, Out<T>) {}",
        "swish.h:4:",
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_a_kernel_that_does_not_fit_its_declaration_is_told_the_signature(case: str, author: Author) -> None:
    text, place = MISFITS[case]
    told = author.told(f'#include "deployops/ours.h"\nnamespace deployops {{\n{text}\n}}\n')
    lines = told.splitlines()
    assert lines[0] == (
        "there is no kernel `swish` with the signature that the declaration calls for. In namespace deployops, expected:"
    )
    assert lines[1] == f"    {SIGNATURE}"
    assert lines[2].startswith("  the compiler says: ")
    assert place in told
    assert "entry_0" not in told
    assert "swish.avx2.cpp" not in told
    assert told.count("there is no kernel") == 1
    assert "while compiling swish for float16" in told


def test_a_header_that_is_not_there(author: Author) -> None:
    told = author.told("#include <no/such.h>\n")
    assert re.match(r"mine/swish\.h:1:\d+: error: .*no/such\.h.*\n    1 \| #include <no/such\.h>\n", told)


def test_five_errors_then_the_count(author: Author) -> None:
    body = "\n".join(f"  int a{n} = missing_{n}; static_cast<void>(a{n});" for n in range(8))
    told = author.told(kernel(body))
    assert [f"missing_{n}'" in told for n in range(8)] == [True] * 5 + [False] * 3
    assert told.splitlines()[-1] == "… and 3 more errors"
    assert author.told(kernel(body + " "), limit=7).splitlines()[-1] == "… and 1 more error"
    assert "more error" not in author.told(kernel(body + "  "), limit=8)


def test_outputs_of_several_levels_are_told_as_one(author: Author) -> None:
    output = author.output(kernel("return nothing_here(x);"))
    once, twice = (
        explain(o, [author.file], generated=GENERATED, kernel="swish") for o in (output, output + output)
    )
    assert once == twice


def test_warnings_at_the_users_lines_are_told_once(author: Author) -> None:
    warned = author.warned(kernel("int unused = 1;"))
    assert len(warned) == 1
    assert re.match(
        r"mine/swish\.h:7:7: warning: unused variable.*\n    7 \|   int unused = 1;\n      \|       \^",
        warned[0],
    )
    assert author.warned(kernel("")) == []


def test_warnings_elsewhere_are_not_the_users(author: Author, tmp_path: Path) -> None:
    header = tmp_path / "include/deployops/ours.h"
    header.write_text(OURS.replace("inline void outer(T x) {", "inline void outer(T x) { int unused = 1;"))
    assert author.warned(kernel("if (sizeof(T) > 2) {}") + "// outer\n") == []


def test_paths_with_spaces_colons_and_other_letters(compiler: Compiler, tmp_path: Path) -> None:
    author = Author(tmp_path / "d'été: mes noyaux", compiler)
    told = author.told(kernel("return nothing_here(x);"))
    assert f"{author.file}:7:" in told
    assert "    7 |   return nothing_here(x);" in told


def test_other_letters_in_the_source(author: Author) -> None:
    told = author.told(kernel('const char* s = "日本 é"; return nothing_here(s);'))
    assert '    7 |   const char* s = "日本 é"; return nothing_here(s);' in told


def test_without_names_of_user_files_everything_but_the_system_counts(author: Author) -> None:
    output = author.output("#include <vector>\n" + kernel("std::vector<void> v;"))
    told = explain(output, ())
    assert re.search(r"mine/swish\.h:8:\d+: error:", told), told
    assert re.search(r"found in \S*/c\+\+/.*, which this line asks for", told), told


# --- words of compilers that are not at hand -------------------------------------------------------------------------


def test_what_newer_versions_write_is_read_too() -> None:
    # The layout of gcc 14 and later, which shows the lines of instantiations too, and nests with bullets.
    gcc = """In file included from a.cpp:3:
/k/swish.h: In instantiation of 'void swish(T) [with T = int]':
a.cpp:10:8:   required from here
   10 |   swish(1);
      |   ~~~~~^~~
/k/swish.h:6:56: error: no match for 'operator*'
    6 |   x * y;
      |   ~~^~~
"""
    # The layout of clang 16 and later, which numbers lines.
    clang = """In file included from a.cpp:3:
/k/swish.h:6:56: error: invalid operands to binary expression ('int *' and 'int')
    6 |   x * y;
      |   ~ ^ ~
a.cpp:10:3: note: in instantiation of function template specialization 'swish<int *>' requested here
   10 |   swish(1);
      |   ^
1 error generated.
"""
    for text in (gcc, clang):
        (d,) = read_output(text)
        assert (d.severity, d.place.path, d.place.line, d.place.column) == ("error", "/k/swish.h", 6, 56)
        assert d.excerpt[0] == "  x * y;"
        assert [(p.path, p.line) for p in d.calls] == [("a.cpp", 10)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ld.lld: error: undefined symbol: foo(int)\n>>> referenced by 0-k.cpp\n", "undefined: foo(int)"),
        ("/usr/bin/ld: 0-swish.avx2.o: in function `f':\nk.cpp: undefined reference to `g'\n", "g, used in swish.avx2."),
        ("clang: error: unknown argument: '-fno-such'\n", "error: unknown argument: '-fno-such'"),
        ("cc1plus: error: unrecognized command-line option '-fno-such'\n", "error: unrecognized command-line option"),
    ],
)  # fmt: skip
def test_errors_without_a_line(text: str, told: str) -> None:
    assert told in explain(text, ())


def test_words_that_are_not_understood_are_given_as_they_are() -> None:
    assert explain("something\nodd\n", ()) == "the compiler failed and said:\nsomething\nodd"


def test_a_message_without_end_is_cut() -> None:
    assert len(explain(f"/k/a.h:1:1: error: {'x' * 5000}\n", ())) < 600


def test_a_file_that_is_gone_or_shorter_by_now() -> None:
    text = "/k/ours.h:7:1: error: bad\n/no/such/swish.h:5:3: note: in instantiation of function 'f' requested here\n"
    assert explain(text, [Path("/no/such/swish.h")]).startswith(f"{os.sep}no/such/swish.h:5:3: error: bad\n")


@pytest.mark.parametrize(
    "flag",
    ["-Wa,-adhln=x.lst", "-Wl,-Map=x", "-Wl,-z,now,-Map,x", "-Wl,-map,x", "-Wl,--Map=x", "-wrapper", "-dumpbase",
     "-dumpdir", "-da", "-aux-info", "-fdump-tree-all", "-fdump-rtl-expand", "-fstack-usage", "-fcallgraph-info",
     "-fopt-info-vec=x", "-fsave-optimization-record", "-ftime-trace", "-Xassembler", "--dumpbase=x", "--output=x"],
)  # fmt: skip
def test_flags_that_write_other_files_are_refused(flag: str) -> None:
    with pytest.raises(UsageError, match=f"`{re.escape(flag)}` cannot be given"):
        expect_cacheable(["-O2", flag])


def test_the_flags_that_look_like_them_pass() -> None:
    expect_cacheable(["-Wall", "-Wl,-z,now", "-DMap=1", "-fstack-protector", "-fdata-sections", "-std=c++17",
                      "-fdiagnostics-color=never", "-fopt-info-vec", "-Wattributes", "-Wno-psabi"])  # fmt: skip


def test_the_error_is_wrong_use_for_the_command_line() -> None:
    assert CompileError("x").exit_code == 2
