"""Finding nvcc and TensorRT's headers; the PyPI wheels alone suffice."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from deployops.cli.doctor import doctor_command
from deployops.errors import NotCheckedError, UsageError
from deployops.native.compilers import find_cxx
from deployops.native.nvcc import Nvcc, find_nvcc, nvcc_candidates
from deployops.native.nvcc_objects import code_flags
from deployops.native.nvcc_output import gnu_style, kernel_resources
from deployops.trt_plugins.headers import Headers, _candidates, extract_headers, find_headers

ROOT = Path(__file__).resolve().parents[2]
PACK = ROOT / "tests" / "trt_plugins" / "pack" / "pack.py"

HIDDEN = """
import os, shutil, sys
from deployops.trt_plugins.library import compile_plugins
assert shutil.which("nvcc") is None
from deployops.native.compilers import find_cxx
from deployops.native.nvcc import find_nvcc
print(find_nvcc(find_cxx()).origin, find_nvcc(find_cxx()).path)
print(compile_plugins([sys.argv[1]], archs=[80], out=sys.argv[2], tensorrt_root=sys.argv[3]).path)
"""


def test_the_wheels_alone_suffice(wheels: Path, headers: Headers, tmp_path: Path) -> None:
    tools = tmp_path / "bin"  # a PATH without nvcc
    tools.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            if program.name != "nvcc" and not (tools / program.name).exists():
                (tools / program.name).symlink_to(program)
    env = {k: v for k, v in os.environ.items() if k not in ("CUDA_HOME", "CUDA_PATH")}
    env |= {"PATH": str(tools), "PYTHONPATH": str(wheels)}
    command = [sys.executable, "-c", HIDDEN, str(PACK), str(tmp_path / "lib"), str(headers.folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith(f"the PyPI wheels {wheels}")
    assert (tmp_path / "lib" / "libdeployops_trt.so").is_file()


def test_the_current_folder_is_no_place_for_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    planted = tmp_path / "nvidia" / "cu99" / "bin" / "nvcc"
    planted.parent.mkdir(parents=True)
    planted.write_text("#!/bin/sh\n")
    headers = tmp_path / "kernel_lens" / "include" / "tensorrt"
    headers.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    assert planted not in [path for _, path in nvcc_candidates()]
    assert headers not in [folder for folder, _ in _candidates()]
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert planted in [path for _, path in nvcc_candidates()]
    assert headers in [folder for folder, _ in _candidates()]


def test_cuda_home_comes_before_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert next(nvcc_candidates()) == ("$CUDA_HOME", tmp_path / "bin" / "nvcc")


def test_a_toolkit_may_be_named_by_its_folder(nvcc: Nvcc) -> None:
    found = find_nvcc(find_cxx(), str(nvcc.top))
    assert (found.version, found.include) == (nvcc.version, nvcc.include)


def test_another_program_of_that_name_is_refused(tmp_path: Path) -> None:
    fake = tmp_path / "nvcc"
    fake.write_text("#!/bin/sh\necho not me\n")
    fake.chmod(0o755)
    with pytest.raises(UsageError, match="does not answer as nvcc does"):
        find_nvcc(find_cxx(), str(fake))
    with pytest.raises(UsageError, match="there is no CUDA compiler"):
        find_nvcc(find_cxx(), str(tmp_path / "absent"))


def test_an_old_nvcc_is_refused_with_its_version(tmp_path: Path) -> None:
    fake = tmp_path / "nvcc"
    fake.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 11.8, V11.8.89'\n")
    fake.chmod(0o755)
    with pytest.raises(UsageError, match=r"version 11\.8\.89; 12\.8 or newer"):
        find_nvcc(find_cxx(), str(fake))


def test_an_nvcc_without_its_headers_says_which_package_brings_them(tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "nvcc"
    fake.parent.mkdir()
    fake.write_text(
        "#!/bin/sh\ncase $1 in --version) echo 'Cuda compilation tools, release 13.0, V13.0.88';;\n"
        f"*) echo '#$ TOP={tmp_path}';; esac\n"
    )
    fake.chmod(0o755)
    with pytest.raises(UsageError, match=r"lacks .*nvidia-cuda-runtime"):
        find_nvcc(find_cxx(), str(fake))


def test_machine_code_for_each_arch_and_ptx_of_the_oldest() -> None:
    assert code_flags((90, 80)) == (
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90,code=sm_90",
        "-gencode=arch=compute_80,code=compute_80",
    )


def test_messages_of_nvcc_read_like_those_of_gcc() -> None:
    text = (
        'include-2/k.cuh(4): error: no instance of function "f" matches the argument list\n'
        "            argument types are: (float)\n"
        "    f(x);\n"
        "    ^\n"
        '          detected during instantiation of "void g(T) [with T=float]" at line 9 of x.cu\n'
        "\n"
        'include-2/k.cuh(7): warning #177-D: variable "z" was declared but never referenced\n'
    )
    assert gnu_style(text).splitlines() == [
        "x.cu:9:   required from here",
        'include-2/k.cuh:4: error: no instance of function "f" matches the argument list (argument types are: (float))',
        "    f(x);",
        "    ^",
        "",
        'include-2/k.cuh:7: warning: variable "z" was declared but never referenced',
    ]
    gcc = "k.h:3:4: error: expected ';'\n    3 | x\n"
    assert gnu_style(gcc) == gcc.rstrip("\n")


def test_what_ptxas_says_of_a_kernel_is_read() -> None:
    text = (
        "ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90'\n"
        "ptxas info    : Function properties for _Z1kPf\n"
        "    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
        "ptxas info    : Used 40 registers, used 1 barriers, 2048 bytes smem, 380 bytes cmem[0]\n"
    )
    [kernel] = kernel_resources(text)
    assert (kernel.name, kernel.arch, kernel.registers, kernel.shared) == ("k(float*)", 90, 40, 2048)
    assert (kernel.stack, kernel.spill_stores, kernel.spill_loads) == (16, 8, 12)
    assert kernel.over_budget == "spills 8 bytes of registers and loads 12, 16 bytes of local memory"


# --- headers -----------------------------------------------------------------------------------------------------


def sdk(folder: Path, version: str) -> Path:
    include = folder / "include"
    include.mkdir(parents=True)
    (include / "NvInferRuntime.h").write_text("// headers\n")
    names = ("MAJOR", "MINOR", "PATCH")
    lines = [f"#define NV_TENSORRT_{n} {v}" for n, v in zip(names, version.split("."), strict=True)]
    (include / "NvInferVersion.h").write_text("\n".join(lines) + "\n")
    return folder


def test_the_headers_of_an_sdk_are_found_by_argument_and_by_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, variable = sdk(tmp_path / "a", "11.4.0"), sdk(tmp_path / "b", "10.9.0")
    monkeypatch.setenv("TENSORRT_ROOT", str(variable))
    found = find_headers(asked)
    assert (found.folder, found.version) == (asked / "include", "11.4.0")
    assert find_headers(asked / "include").folder == asked / "include"
    found = find_headers()
    assert (found.version, found.origin) == ("10.9.0", "$TENSORRT_ROOT")


def test_old_headers_and_folders_without_any_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"of TensorRT 8\.6\.1; plugins are made for 10\.0 and newer"):
        find_headers(sdk(tmp_path / "old", "8.6.1"))
    with pytest.raises(UsageError, match=r"holds no NvInferRuntime\.h.*--fetch-tensorrt-headers"):
        find_headers(tmp_path)


def test_headers_that_are_nowhere_are_not_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TENSORRT_ROOT", raising=False)
    monkeypatch.setenv("DEPLOYOPS_CACHE", str(tmp_path))
    monkeypatch.setattr(
        "deployops.trt_plugins.headers._candidates", lambda: iter([(tmp_path, "a system folder")])
    )
    with pytest.raises(NotCheckedError, match="--tensorrt-root"):
        find_headers()


def wheel(path: Path, members: dict[str, bytes], mode: int = stat.S_IFREG | 0o644) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content)
    return path


INSIDE = "kernel_lens/include/tensorrt"


def test_only_headers_are_taken_from_the_wheel(tmp_path: Path) -> None:
    members = {
        f"{INSIDE}/NvInferRuntime.h": b"// it",
        "kernel_lens/run.py": b"evil()",
        "kernel_lens/x.h": b"",
    }
    extract_headers(wheel(tmp_path / "w.whl", members), tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["NvInferRuntime.h"]


@pytest.mark.parametrize("name", [f"{INSIDE}/../../../../evil.h", f"{INSIDE}/sub/x.h", f"{INSIDE}/run.py"])
def test_a_member_with_another_path_is_refused(tmp_path: Path, name: str) -> None:
    members = {f"{INSIDE}/NvInferRuntime.h": b"// it", name: b"x"}
    with pytest.raises(UsageError, match="no plain header"):
        extract_headers(wheel(tmp_path / "w.whl", members), tmp_path / "out")
    assert not list(tmp_path.parent.glob("evil.h"))


def test_a_link_in_the_wheel_is_refused(tmp_path: Path) -> None:
    members = {f"{INSIDE}/NvInferRuntime.h": b"/etc/passwd"}
    with pytest.raises(UsageError, match="no plain header"):
        extract_headers(wheel(tmp_path / "w.whl", members, stat.S_IFLNK | 0o777), tmp_path / "out")


def test_a_wheel_with_other_content_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOYOPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("deployops.trt_plugins.headers._WHEEL", ("kernel-lens", "2.0.1", "0" * 64))
    from deployops.trt_plugins.headers import fetch_headers, fetched_folder

    with pytest.raises(UsageError, match="could not download"):
        fetch_headers()
    assert not fetched_folder().exists()


# --- doctor ------------------------------------------------------------------------------------------------------


def test_the_doctor_says_what_was_found_and_what_to_do(nvcc: Nvcc, tmp_path: Path) -> None:
    root = sdk(tmp_path, "11.4.0")
    done = CliRunner().invoke(doctor_command, ["--nvcc", str(nvcc.path), "--tensorrt-root", str(root)])
    assert done.exit_code == 0
    lines = {line[7:].split("  ")[0].strip(): line for line in done.output.splitlines()}
    assert lines.keys() == {"C++ compiler", "CUDA compiler", "TensorRT headers", "Runtimes", "NVIDIA driver"}
    for name, expected in (("CUDA compiler", f"nvcc {nvcc.version}"), ("TensorRT headers", "11.4.0")):
        assert lines[name].startswith("found")
        assert expected in lines[name]


def test_the_doctor_speaks_json(tmp_path: Path) -> None:
    import json

    done = CliRunner().invoke(
        doctor_command, ["--json", "--nvcc", str(tmp_path), "--tensorrt-root", str(tmp_path)]
    )
    findings = {f["name"]: f for f in json.loads(done.output)}
    assert findings["CUDA compiler"]["found"] is False
    assert "pip install nvidia-cuda-nvcc" in findings["CUDA compiler"]["text"]
    assert findings["TensorRT headers"]["found"] is False
