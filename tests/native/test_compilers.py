from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from deployops.errors import DeployOpsError, NotCheckedError, UsageError
from deployops.native import compilers
from deployops.native.compilers import Compiler, find_binutils, find_cxx, search_folders
from deployops.native.levels import levels_for

Script = Callable[..., Path]


@pytest.fixture(autouse=True)
def _no_cxx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)


def test_a_compiler_says_what_it_is(compiler: Compiler) -> None:
    said = subprocess.run([compiler.path, "--version"], capture_output=True, text=True, check=True).stdout
    number = re.search(r"\d+\.\d+\.\d+", said)
    machine = subprocess.run(
        [compiler.path, "-dumpmachine"], capture_output=True, text=True, check=True
    ).stdout
    assert number is not None
    assert number[0] in compiler.version
    assert compiler.target == machine.strip()
    assert compiler.kind == ("clang" if "clang" in said else "gcc")


def test_identity_changes_with_the_program_file_and_holds_no_path(gcc: Compiler, script: Script) -> None:
    first = find_cxx(str(script("g++", f'exec {gcc.path} "$@"')))
    before = first.identity
    os.utime(first.path, (1, 1))
    assert first.identity != before
    assert first.version in before
    assert "/" not in before.replace(first.version, "")


def test_a_choice_comes_before_the_environment_and_that_before_the_default(
    gcc: Compiler, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, named = (script(n, f'exec {gcc.path} "$@"') for n in ("chosen-g++", "named-g++"))
    assert find_cxx().path.name == "g++"
    monkeypatch.setenv("CXX", str(named))
    assert find_cxx().path == named
    assert find_cxx(str(chosen)).path == chosen


def test_the_default_falls_back_to_clang(monkeypatch: pytest.MonkeyPatch, script: Script) -> None:
    real = shutil.which("clang++")
    if real is None:
        pytest.skip("not checked: no clang++ on this machine")
    monkeypatch.setenv("PATH", str(script("clang++", f'exec {real} "$@"').parent))
    assert find_cxx().kind == "clang"


def test_a_launcher_in_front_is_left_out(gcc: Compiler) -> None:
    assert find_cxx("ccache g++") == gcc
    assert find_cxx("/opt/bin/sccache g++") == gcc


def test_a_path_with_spaces_quotes_and_other_letters(gcc: Compiler, script: Script) -> None:
    odd = script("mes outils d'été/g++", f'exec {gcc.path} "$@"')
    assert find_cxx(str(odd)).path == odd
    assert find_cxx(f'"{odd}"').path == odd


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("g++ -m32", "without options"),
        ("ccache g++ -O2", "without options"),
        ("no-such-c++", "there is no such program"),
        ("/no/such/c++", "there is no such program"),
        ("'unclosed", "not a command"),
        ("gcc", r"Give `g\+\+`"),
        ("clang-14", r"Give `clang\+\+-14`"),
        ("true", "not a C\\+\\+ compiler"),
    ],
)
def test_what_is_asked_for_and_will_not_do_is_refused(
    asked: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if asked == "clang-14" and not any(Path(p, asked).exists() for p in os.environ["PATH"].split(":")):
        pytest.skip("no clang-14")
    with pytest.raises(UsageError, match=said):
        find_cxx(asked)
    monkeypatch.setenv("CXX", asked)
    with pytest.raises(UsageError, match=rf"(?s)\$CXX.*{said}"):
        find_cxx()


def test_a_file_that_may_not_be_run(tmp_path: Path) -> None:
    (tmp_path / "g++").write_text("")
    with pytest.raises(UsageError, match="not a program that may be run"):
        find_cxx(str(tmp_path / "g++"))


FAKE = """cat <<'END'
#define __GNUC__ {major}
#define __ELF__ 1
#define DEPLOYOPS_STANDARD_LIBRARY
END
echo 'Target: x86_64-linux-gnu' >&2
echo 'gcc version {major}.4.0 (GCC)' >&2"""


@pytest.mark.parametrize("major", [10, 11])
def test_gcc_before_11_is_too_old(major: int, script: Script) -> None:
    path = str(script("g++", FAKE.format(major=major)))
    if major == 11:
        assert find_cxx(path).version == "gcc version 11.4.0 (GCC)"
    else:
        with pytest.raises(UsageError, match=r"too old: gcc version 10\.4\.0"):
            find_cxx(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo hello", "said: hello"),
        ("kill -SEGV $$", "status -11"),
        ('exec g++ -nostdinc++ "$@"', "no C\\+\\+ standard library"),
        ('exec g++ -U__ELF__ "$@"', "ELF"),
        ('exec g++ -D__EDG__ "$@"', "not a C\\+\\+ compiler that we know"),
    ],
)
def test_programs_that_are_no_compiler_for_us(text: str, said: str, script: Script, gcc: Compiler) -> None:
    with pytest.raises(UsageError, match=said):
        find_cxx(str(script("c++", text)))


def test_a_compiler_that_hangs(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "_PROBE_LIMIT", 0.5)
    with pytest.raises(UsageError, match=r"did not end within 0\.5 s"):
        find_cxx(str(script("g++", "sleep 100")))


def test_no_compiler_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotCheckedError, match=r"apt install g\+\+") as caught:
        find_cxx()
    assert caught.value.exit_code == 3


def test_a_compiler_is_asked_once(gcc: Compiler, script: Script, tmp_path: Path) -> None:
    path = script("g++", f'echo run >> {tmp_path}/runs; exec {gcc.path} "$@"')
    for _ in range(3):
        assert find_cxx(str(path)).kind == "gcc"
    assert (tmp_path / "runs").read_text() == "run\n"


def test_an_upgraded_compiler_is_asked_again(script: Script) -> None:
    assert "11.4.0" in find_cxx(str(script("g++", FAKE.format(major=11)))).version
    assert "12.4.0" in find_cxx(str(script("g++", FAKE.format(major=12) + " # upgraded"))).version


def test_search_folders_are_those_that_the_compiler_reads_from(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = subprocess.run(
        [compiler.path, "-x", "c++", "-H", "-fsyntax-only", "-"],
        input="#include <vector>\n",
        capture_output=True,
        text=True,
    )
    vector = next(line.split()[-1] for line in done.stderr.splitlines() if line.startswith(". "))
    assert str(Path(vector).parent) in search_folders(compiler, ())
    assert str(tmp_path) not in search_folders(compiler, ())
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", str(tmp_path))
    assert str(tmp_path) in search_folders(compiler, ())


def test_flags_that_the_compiler_does_not_know(compiler: Compiler) -> None:
    with pytest.raises(UsageError, match="-fno-such-thing"):
        search_folders(compiler, ("-fno-such-thing",))


@pytest.mark.parametrize("name", ["ld", "objcopy", "nm"])
def test_binutils_are_found(name: str) -> None:
    said = subprocess.run(
        [find_binutils(name), "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert said.startswith("GNU ")


@pytest.mark.parametrize(
    ("said", "good"),
    [
        ("GNU ld (GNU Binutils for Debian) 2.40", True),
        ("GNU ld version 2.38-25.fc36", True),
        ("GNU ld (GNU Binutils) 2.28", False),
        ("GNU gold (GNU Binutils for Debian 2.40) 1.16", False),
        ("LLD 14.0.6 (compatible with GNU linkers)", False),
    ],
)
def test_only_new_enough_gnu_linkers_will_do(
    said: str, good: bool, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script("ld", f"echo '{said}'")
    monkeypatch.setenv("PATH", f"{path.parent}:/nowhere")
    if good:
        assert find_binutils("ld") == path
    else:
        with pytest.raises(NotCheckedError, match="apt install binutils"):
            find_binutils("ld")


def test_binutils_that_are_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotCheckedError, match="`objcopy` is not on PATH"):
        find_binutils("objcopy")


def test_another_target_takes_its_own_binutils(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    path = script("riscv64-linux-gnu-objcopy", "echo 'GNU objcopy (GNU Binutils) 2.40'")
    monkeypatch.setenv("PATH", str(path.parent), prepend=":")
    assert find_binutils("objcopy", "riscv64-linux-gnu") == path


# --- levels ----------------------------------------------------------------------------------------------------------


def test_other_processors_have_the_portable_level_without_flags() -> None:
    for target in ("aarch64-linux-gnu", "riscv64-linux-gnu", "i686-linux-gnu"):
        assert [(level.name, level.flags) for level in levels_for(target)] == [("portable", ())]


# Intel SDM volume 2, CPUID: bits of ecx of leaf 1 and of leaf 0x80000001, by the macro of the compilers.
LEAF_1 = {"SSE3": 0, "SSSE3": 9, "SSE4_1": 19, "SSE4_2": 20, "MOVBE": 22, "POPCNT": 23, "F16C": 29}
LEAF_1["GCC_HAVE_SYNC_COMPARE_AND_SWAP_16"] = 13
EXTENDED = {"LAHF_SAHF": 0, "LZCNT": 5}
BUILTIN = ("AVX", "AVX2", "FMA", "BMI", "BMI2", "AVX512F", "AVX512BW", "AVX512CD", "AVX512DQ", "AVX512VL")


def added_macros(compiler: Compiler, flags: tuple[str, ...]) -> set[str]:
    """What a level may use beyond the portable one, as the compiler itself says."""

    def macros(*flags: str) -> set[str]:
        command = [compiler.path, *flags, "-x", "c++", "-dM", "-E", "/dev/null"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return set(re.findall(r"^#define __(\w+?)__ 1$", text, re.M)) | set(
            re.findall(r"^#define __(GCC_HAVE_SYNC\w+) 1$", text, re.M)
        )

    return macros(*flags) - macros("-march=x86-64")


@pytest.mark.parametrize("name", ["avx2", "avx512"])
def test_a_level_checks_everything_that_the_compiler_may_use(name: str, compiler: Compiler) -> None:
    if not compiler.target.startswith("x86_64"):
        pytest.skip("levels of x86-64")
    level = next(level for level in levels_for(compiler.target) if level.name == name)
    may_use = added_macros(compiler, level.flags)
    assert {"AVX2", "F16C", "MOVBE", "LZCNT"} <= may_use
    leaf_1 = sum(1 << bit for macro, bit in LEAF_1.items() if macro in may_use)
    extended = sum(1 << bit for macro, bit in EXTENDED.items() if macro in may_use)
    masks = [int(mask, 16) for mask in re.findall(r"\(c & (0x[0-9a-f]+)u\)", level.cpu_check)]
    assert [leaf_1 & ~masks[0], extended & ~masks[1]] == [0, 0]
    for macro in BUILTIN:
        assert (f'__builtin_cpu_supports("{macro.lower()}")' in level.cpu_check) == (macro in may_use)
    # XSAVE is what the builtins ask the operating system about; EVEX instructions are those of AVX-512.
    unknown = (
        may_use - LEAF_1.keys() - EXTENDED.keys() - set(BUILTIN) - {"XSAVE", "CRC32", "EVEX256", "EVEX512"}
    )
    assert not {m for m in unknown if not re.match(r"SSE|k8|tune|code_model|GCC|amdfam|SSE_MATH", m)}, unknown


def test_checks_agree_with_the_kernel_on_this_processor(compiler: Compiler, tmp_path: Path) -> None:
    info = Path("/proc/cpuinfo")
    if not compiler.target.startswith("x86_64") or not info.exists():
        pytest.skip("needs Linux on x86-64")
    flags = set(next(line for line in info.read_text().splitlines() if line.startswith("flags")).split())
    avx2 = {
        "avx",
        "avx2",
        "fma",
        "bmi1",
        "bmi2",
        "f16c",
        "movbe",
        "abm",
        "popcnt",
        "cx16",
        "lahf_lm",
    } <= flags
    avx512 = avx2 and {f"avx512{part}" for part in ("f", "bw", "cd", "dq", "vl")} <= flags
    expected = {"portable": True, "avx2": avx2, "avx512": avx512}
    levels = levels_for(compiler.target)
    # In initialisers, as a library may ask before anything else has run.
    source = "#include <cstdio>\n" + "".join(f"const bool {x.name} = {x.cpu_check};\n" for x in levels)
    source += "int main() {" + "".join(f'std::printf("{x.name} %d\\n", {x.name});' for x in levels) + "}\n"
    (tmp_path / "check.cpp").write_text(source)
    command = [
        compiler.path,
        "-std=c++17",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "check.cpp",
        "-o",
        "check",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "check"], capture_output=True, text=True, check=True).stdout
    assert {line.split()[0]: line.split()[1] == "1" for line in said.splitlines()} == expected


def test_every_refusal_is_one_of_ours() -> None:
    with pytest.raises(DeployOpsError):
        find_cxx("   ")
