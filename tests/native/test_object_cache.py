"""When an object may be taken from the cache, and when it must not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deployops.errors import UsageError
from deployops.native import file_contents
from deployops.native.compilers import Compiler
from deployops.native.dependencies import read_depfile
from deployops.native.diagnostics import CompileError
from deployops.native.object_cache import Cache, CompileJob
from deployops.native.processes import ProcessError

from .conftest import FLAGS, Counted

Job = Callable[..., CompileJob]
Call = Callable[..., int]
Wrapped = Callable[[Compiler, str], Compiler]

SOURCE = '#include "kernel.h"\nextern "C" int entry() { return value(); }\n'


def kernel(value: int) -> str:
    return f"#pragma once\ninline int value() {{ return {value}; }}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "kernels"
    made.mkdir()
    (made / "kernel.h").write_text(kernel(1))
    return made


# --- found again ---------------------------------------------------------------------------------------------------


def test_nothing_is_compiled_twice(
    counted: Counted, cache: Cache, job: Job, folder: Path, call: Call
) -> None:
    asked = job(counted.compiler, SOURCE, folder)
    first = cache.compile(asked)
    assert counted.runs == 1
    assert cache.compile(asked) == first
    assert Cache(cache.root).compile(asked) == first
    assert counted.runs == 1
    assert call(cache, asked) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"source": SOURCE + "// more\n"},
        {"flags": (*FLAGS, "-O2")},
        {"flags": tuple(reversed(FLAGS))},
        {"keep_symbol": None},
        {"name": "other"},
        {"include_dirs": "twice"},
    ],
)
def test_another_input_is_another_object(
    change: dict[str, Any], counted: Counted, cache: Cache, job: Job, folder: Path
) -> None:
    asked = job(counted.compiler, SOURCE, folder)
    cache.compile(asked)
    change = {k: (folder, folder) if v == "twice" else v for k, v in change.items()}
    cache.compile(replace(asked, **change))
    assert counted.runs == 2


def test_an_upgraded_compiler_compiles_again(counted: Counted, cache: Cache, job: Job, folder: Path) -> None:
    asked = job(counted.compiler, SOURCE, folder)
    cache.compile(asked)
    os.utime(counted.compiler.path, (1, 1))
    cache.compile(asked)
    assert counted.runs == 2


def test_unrelated_files_do_not_matter(counted: Counted, cache: Cache, job: Job, folder: Path) -> None:
    asked = job(counted.compiler, SOURCE, folder)
    cache.compile(asked)
    (folder / "unrelated.h").write_text("new")
    (folder / "sub").mkdir()
    (folder / "sub" / "kernel.h").write_text("elsewhere")
    os.utime(folder / "kernel.h")
    cache.compile(asked)
    assert counted.runs == 1


def test_headers_are_read_once_in_a_process(
    counted: Counted, cache: Cache, job: Job, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "kernel.h").write_text("#include <string>\n" + kernel(1))
    asked = job(counted.compiler, SOURCE, folder)
    cache.compile(asked)
    monkeypatch.setattr(file_contents, "_SETTLED", -1e9)  # the files of this test are young
    cache.compile(asked)
    read: list[str] = []
    content = file_contents._content
    monkeypatch.setattr(file_contents, "_content", lambda path: read.append(path) or content(path))
    for _ in range(3):
        Cache(cache.root).compile(asked)
    assert read == []


# --- changed -------------------------------------------------------------------------------------------------------


def test_a_changed_header_is_compiled_and_a_restored_one_found(
    counted: Counted, cache: Cache, job: Job, folder: Path, call: Call
) -> None:
    asked = job(counted.compiler, SOURCE, folder)
    for value, runs in ((1, 2), (2, 3), (1, 3), (2, 3), (3, 4)):  # one run is for the caller
        (folder / "kernel.h").write_text(kernel(value))
        assert call(cache, asked) == value
        assert counted.runs == runs


def test_a_change_that_keeps_size_and_time_is_noticed(
    counted: Counted, cache: Cache, job: Job, folder: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the files had been there for long, so that what was read is remembered.
    monkeypatch.setattr(file_contents, "_SETTLED", -1e9)
    header = folder / "kernel.h"
    os.utime(header, (1e9, 1e9))
    asked = job(counted.compiler, SOURCE, folder)
    assert [call(cache, asked) for _ in range(2)] == [1, 1]
    time.sleep(0.05)  # more than a tick of the file system's clock
    header.write_text(kernel(2))
    os.utime(header, (1e9, 1e9))
    assert call(cache, asked) == 2


@pytest.mark.parametrize(("age", "noticed"), [(0.0, True), (100.0, False)])
def test_a_write_within_a_tick_is_noticed_while_a_file_is_young(
    age: float, noticed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("one")
    stamp = int((time.time() - age) * 1e9)
    monkeypatch.setattr(
        file_contents, "_state", lambda path: (1, 1, 3, stamp, stamp)
    )  # a clock that stands still
    first = file_contents.FILES.digest(str(file))
    file.write_text("two")
    assert (file_contents.FILES.digest(str(file)) != first) == noticed


# Where a new header could come in the way of one that is recorded: what the kernel includes, and what then appears.
SHADOWS = {
    "an earlier include folder": ('#include "found.h"', "early/found.h"),
    "the first folder, in angle brackets": ("#include <cstdint>", "first/cstdint"),
    "beside the file that includes it": ('#include "found.h"', "kernels/found.h"),
    "a folder that was not there": ('#include "deep/found.h"', "early/deep/found.h"),
    "with a comment and a continued line": ('# /* a */ include \\\n "found.h"', "early/found.h"),
    "by a macro": ('#define WHICH "found.h"\n#include WHICH', "early/found.h"),
    "by a macro built of pieces": (
        "#define TEXT(x) #x\n#define NAME(x) TEXT(x.h)\n#include NAME(found)",
        "early/found.h",
    ),
    "a system header": ("#include <climits>", "first/climits"),
    "a header that a system header asks for": (
        "#include <climits>",
        "first/limits.h",
    ),
    "asked for by __has_include": (
        '#if __has_include("extra.h")\n#include "extra.h"\n#else\n#include "found.h"\n#endif',
        "early/extra.h",
    ),
    "asked for by name, in a macro": (
        '#define WHICH <extra.h>\n#if __has_include(WHICH)\n#include WHICH\n#else\n#include "found.h"\n#endif',
        "first/extra.h",
    ),
}


def test_a_kernel_named_like_a_system_header_is_no_such_header(
    compiler: Compiler, cache: Cache, job: Job, tmp_path: Path, call: Call
) -> None:
    for name in ("first", "kernels"):
        (tmp_path / name).mkdir()
    (tmp_path / "kernels" / "math.h").write_text("#error not this one\n")
    source = '#include <cmath>\nextern "C" int entry() { return int(std::sqrt(49.0)); }\n'
    assert call(cache, job(compiler, source, tmp_path / "first", tmp_path / "kernels")) == 7


@pytest.mark.parametrize("case", SHADOWS)
def test_a_header_that_comes_in_the_way_is_noticed(
    case: str, compiler: Compiler, cache: Cache, job: Job, tmp_path: Path, call: Call
) -> None:
    include, appears = SHADOWS[case]
    for name in ("first", "kernels", "early", "late/deep"):
        (tmp_path / name).mkdir(parents=True)
    for place in ("late/found.h", "late/deep/found.h"):
        (tmp_path / place).write_text("#pragma once\n")
    values = (
        "#ifdef SHADOW\ninline int value() { return 2; }\n#else\ninline int value() { return 1; }\n#endif\n"
    )
    (tmp_path / "kernels/kernel.h").write_text(f"{include}\n{values}")
    folders = [tmp_path / name for name in ("first", "early", "kernels", "late")]
    asked = job(compiler, SOURCE, *folders)
    assert call(cache, asked) == 1
    assert Cache(cache.root).compile(asked)
    shadow = tmp_path / appears
    shadow.parent.mkdir(exist_ok=True)
    shadow.write_text("#define SHADOW\n")
    changed = Cache(cache.root)
    afresh = replace(asked, source="#define MARK\n" + SOURCE)
    assert call(changed, afresh) == 2
    assert call(changed, asked) == 2
    shadow.unlink()
    assert call(Cache(cache.root), asked) == 1


def test_a_precompiled_header_that_appears_is_noticed(
    counted: Counted, cache: Cache, job: Job, folder: Path
) -> None:
    asked = job(counted.compiler, SOURCE, folder)
    cache.compile(asked)
    (folder / "kernel.h.gch").write_text("gcc would look into it")
    cache.compile(asked)
    assert counted.runs == 2


def test_a_header_included_by_a_relative_path(
    counted: Counted, cache: Cache, job: Job, folder: Path, tmp_path: Path, call: Call
) -> None:
    (tmp_path / "elsewhere").mkdir()
    other = tmp_path / "elsewhere" / "other.h"
    (folder / "kernel.h").write_text('#include "../elsewhere/other.h"\n')
    asked = job(counted.compiler, SOURCE, folder)
    for value in (1, 2):
        other.write_text(kernel(value))
        assert call(cache, asked) == value


def test_a_header_included_by_its_full_path(
    counted: Counted, cache: Cache, job: Job, folder: Path, call: Call
) -> None:
    asked = job(counted.compiler, SOURCE.replace("kernel.h", f"{folder}/kernel.h"))
    for value in (1, 2):
        (folder / "kernel.h").write_text(kernel(value))
        assert call(cache, asked) == value


def test_headers_named_by_the_environment_are_looked_at_each_time(
    counted: Counted, cache: Cache, job: Job, folder: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", str(folder))
    asked = job(counted.compiler, SOURCE.replace('"kernel.h"', "<kernel.h>"))
    for value in (1, 1, 2, 2, 1):  # found at the second time, and changed within a moment
        (folder / "kernel.h").write_text(kernel(value))
        assert call(cache, asked) == value


def test_a_change_of_the_system_is_noticed(
    counted: Counted, cache: Cache, job: Job, folder: Path, call: Call
) -> None:
    # -idirafter is not for users; here it stands for a folder that the compiler knows by itself.
    path = counted.compiler.path
    path.write_text(path.read_text().replace('"$real"', f'"$real" -idirafter {folder}'))
    asked = job(counted.compiler, SOURCE.replace('"kernel.h"', "<kernel.h>"))
    for value in (1, 2):
        (folder / "kernel.h").write_text(kernel(value))
        assert call(Cache(cache.root), asked) == value


ODD = [
    "with space",
    "d'été",
    'a"quote',
    "dollar$HOME",
    "hash#1",
    "equals=b",
    "back\\slash",
    "日本",
    "a,b",
    "include-0",
]


@pytest.mark.parametrize("name", ODD)
def test_odd_names_of_folders_and_headers(
    name: str, compiler: Compiler, cache: Cache, job: Job, tmp_path: Path, call: Call
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    inner = "inner" if '"' in name or "\\" in name else name
    (folder / "kernel.h").write_text(f'#include "{inner}.h"\n')
    asked = job(compiler, SOURCE, folder)
    for value in (1, 2):
        (folder / f"{inner}.h").write_text(kernel(value))
        assert call(cache, asked) == value
    before = list((cache.root / "logs").iterdir())
    stamps = [log.stat().st_mtime_ns for log in before]
    cache.compile(asked)
    assert [log.stat().st_mtime_ns for log in before] == stamps  # found, not compiled


def test_a_pipe_has_no_content_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kernel.h")
    assert file_contents.FILES.digest(str(tmp_path / "kernel.h")) == ""


def test_a_dependency_file_as_make_writes_it() -> None:
    # GNU make manual, "Rule Syntax"; gcc doubles backslashes only before the blank that they would escape.
    text = b"object: kernel.cpp a\\ b.h c\\#d.h e$$f.h \\\n /abs/g.h back\\slash.h two\\\\\\ blank.h\n"
    names = ["kernel.cpp", "a b.h", "c#d.h", "e$f.h", "/abs/g.h", "back\\slash.h", "two\\ blank.h"]
    assert read_depfile(text) == names


# --- changed while it is compiled ----------------------------------------------------------------------------------


def test_a_header_that_changes_during_a_build_is_not_recorded_for_what_it_was_not(
    gcc: Compiler, wrapped: Wrapped, cache: Cache, job: Job, folder: Path, tmp_path: Path, call: Call
) -> None:
    """The user saves while the compiler works: the object is of the old content, the file has the new one."""
    (tmp_path / "new").write_text(kernel(2))
    save = (
        f'"$real" "$@" && if [ -e "{tmp_path}/new" ]; then mv "{tmp_path}/new" "{folder}/kernel.h"; fi; exit'
    )
    asked = job(wrapped(gcc, f'case "$*" in *front*) ;; *) {save} ;; esac'), SOURCE, folder)
    first = cache.compile(asked)
    assert (folder / "kernel.h").read_text() == kernel(2)
    assert call(cache, asked) == 2
    assert cache.compile(asked) == first  # the first answer was of the new content already


def test_a_header_that_never_stands_still(
    gcc: Compiler, wrapped: Wrapped, cache: Cache, job: Job, folder: Path
) -> None:
    asked = job(wrapped(gcc, f'"$real" "$@" && echo "// more" >> "{folder}/kernel.h"; exit'), SOURCE, folder)
    with pytest.raises(CompileError, match="change while they are compiled"):
        cache.compile(asked)


def test_objects_with_files_in_assembler_code_are_never_taken_from_the_cache(
    counted: Counted, cache: Cache, job: Job, folder: Path
) -> None:
    blob = folder / "blob"
    blob.write_bytes(b"1")
    (folder / "kernel.h").write_text(
        kernel(1) + f'__asm__(".section .rodata\\n.incbin \\"{blob}\\"\\n.text");\n'
    )
    for runs in (1, 2):
        cache.compile(job(counted.compiler, SOURCE, folder))
        assert counted.runs == runs


# --- damaged, and built by two -------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "empty"])
@pytest.mark.parametrize("kind", ["objects/*/*.o", "records/*/*"])
def test_what_is_damaged_is_built_again(
    kind: str, damage: str, counted: Counted, cache: Cache, job: Job, folder: Path, call: Call
) -> None:
    asked = job(counted.compiler, SOURCE, folder)
    cache.compile(asked)
    files = list(cache.root.glob(kind))
    assert files
    for file in files:
        content = file.read_bytes()
        if damage == "gone":
            file.unlink()
        else:
            half = len(content) // 2
            flipped = content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :]
            file.write_bytes({"cut": content[:half], "flip": flipped, "empty": b""}[damage])
    again = Cache(cache.root)
    assert again.compile(asked).read_bytes()[:4] == b"\x7fELF"
    assert counted.runs == 2
    assert call(again, asked) == 1


def test_a_record_of_another_version_is_a_miss(
    counted: Counted, cache: Cache, job: Job, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deployops.native.cache_store import Store

    asked = job(counted.compiler, SOURCE, folder)
    cache.compile(asked)
    for entry in (
        {},
        [],
        None,
        3,
        {"own": "{}", "object": "x"},
        {"own": "[]"},
        {"own": None},
        {"own": '{"files": 3}'},
    ):
        with monkeypatch.context() as patch:
            patch.setattr(Store, "read_record", lambda self, key, entry=entry: [entry])
            assert cache.compile(asked).is_file()
    assert counted.runs == 9


BUILD = """
import sys
from pathlib import Path
from deployops.native.compilers import find_cxx
from deployops.native.jobs import run_all
from deployops.native.object_cache import Cache, CompileJob
cache, compiler, folder = Cache(Path(sys.argv[1])), find_cxx("g++"), Path(sys.argv[2])
flags = ("-std=c++17", "-O1", "-fPIC")
source = '#include "kernel.h"\\nextern "C" int entry_N() { return value() + N; }'
jobs = [
    CompileJob(f"k{n}", source.replace("N", str(n)), compiler, flags, (folder,), f"entry_{n}") for n in range(4)
]
print("ready", flush=True)
sys.stdin.readline()
objects = run_all([(j.name, lambda j=j: cache.compile(j)) for j in jobs], 2)
print(*(o.name for o in objects), cache.link(objects, compiler, (), "lib.so").name)
"""


def test_two_processes_build_the_same_at_once(gcc: Compiler, cache: Cache, folder: Path) -> None:
    command = [sys.executable, "-c", BUILD, str(cache.root), str(folder)]
    pipe = subprocess.PIPE
    both = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in both:  # only now, so that they run at the same time
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert said[0][0] == said[1][0]
    assert all(error == "" for _, error in said)
    assert list((cache.root / "tmp").iterdir()) == []


# --- compilers that misbehave --------------------------------------------------------------------------------------


def test_a_compiler_that_hangs_is_stopped_with_all_it_started(
    gcc: Compiler, wrapped: Wrapped, job: Job, folder: Path, tmp_path: Path
) -> None:
    slow = wrapped(gcc, f'sleep 1000 & echo $! > "{tmp_path}/pid"; wait')
    began = time.monotonic()
    with pytest.raises(ProcessError, match=r"did not end within 1 s and was stopped.*-std=c\+\+17"):
        Cache(tmp_path / "cache", time_limit=1).compile(job(slow, SOURCE, folder))
    assert time.monotonic() - began < 20
    child = int((tmp_path / "pid").read_text())
    time.sleep(0.2)
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("kill -SEGV $$", "crashed .by signal SIGSEGV"),
        ("kill -KILL $$", "memory ran out"),
        (
            "echo 'a.cpp:1:1: internal compiler error: in f, at g.cc:1' >&2; exit 4",
            "crashed.*internal compiler error",
        ),
        ("echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1", "memory ran out"),
        ("exit 0", "reports success, but wrote no object"),
        ("exit 1", r"(?s)the compiler failed and said:.*\(nothing\)"),
        ("echo 'some words' >&2; exit 1", "some words"),
    ],
)
def test_a_compiler_that_breaks_down(
    does: str, said: str, gcc: Compiler, wrapped: Wrapped, cache: Cache, job: Job, folder: Path
) -> None:
    with pytest.raises(CompileError, match=said) as caught:
        cache.compile(job(wrapped(gcc, does), SOURCE, folder))
    assert caught.value.exit_code == 2
    assert caught.value.log is not None
    assert caught.value.log.read_text().startswith("$ ")


# --- what the compiler says ----------------------------------------------------------------------------------------


def test_errors_name_the_user_file_and_the_log_holds_everything(
    compiler: Compiler, cache: Cache, job: Job, folder: Path
) -> None:
    (folder / "kernel.h").write_text("\n\ninline int value() { return nothing_here; }\n")
    with pytest.raises(CompileError, match=r"kernel\.h:3:\d+: error: .*nothing_here") as caught:
        cache.compile(job(compiler, SOURCE, folder))
    assert f"{folder}/kernel.h:3:" in caught.value.output
    assert caught.value.log is not None
    assert caught.value.output in caught.value.log.read_text()


def test_warnings_are_told_again_when_the_object_is_found(
    counted: Counted, cache: Cache, job: Job, folder: Path
) -> None:
    (folder / "kernel.h").write_text("inline int value() { int unused = 3; return 1; }\n")
    asked = job(counted.compiler, SOURCE, folder)
    for compiled in (True, False):
        fresh = Cache(cache.root)
        fresh.compile(asked)
        assert fresh.outputs["kernel"].compiled == compiled
        assert f"{folder}/kernel.h:1:26: warning: unused variable" in fresh.outputs["kernel"].text
        assert fresh.outputs["kernel"].log is not None
    assert counted.runs == 1


def test_a_job_of_any_name(compiler: Compiler, cache: Cache, job: Job, folder: Path, call: Call) -> None:
    for name in ("acme::swish (avx2)", "-o x", "../up", "é" * 300, ".."):
        assert call(cache, job(compiler, SOURCE, folder, name=name)) == 1


@pytest.mark.parametrize(
    "flag",
    ["-I/usr/x", "-isystem", "-include", "@file", "-march=native", "-o", "file.cpp", "-fplugin=x.so", "-save-temps",
     "-fprofile-use=x", "--coverage", "-gsplit-dwarf", "-MMD", "-Wp,-MD,x", "-E", "-L/x", "-lm", "-B/x", "-x", "-flto"],
)  # fmt: skip
def test_flags_that_the_cache_cannot_vouch_for(flag: str, gcc: Compiler, cache: Cache, job: Job) -> None:
    asked = job(gcc, 'extern "C" int entry() { return 1; }')
    with pytest.raises(UsageError, match=r"cannot be"):
        cache.compile(replace(asked, flags=(*FLAGS, flag)))


def test_the_flags_of_kernels_pass(compiler: Compiler, cache: Cache, job: Job, folder: Path) -> None:
    flags = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno", "-Werror",
             "-fno-trapping-math", "-Wall", "-Wextra", "-Wno-psabi", "-g", "-DNAME=1", "-fsanitize=address,undefined",
             "-fno-omit-frame-pointer", "-pthread", "-O1", "-mprefer-vector-width=512")  # fmt: skip
    assert cache.compile(replace(job(compiler, SOURCE, folder), flags=flags)).is_file()
