"""Objects that nvcc makes, in the same cache as those of the C++ compiler, and by the same rules."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

from .cache_store import Store, safe_name
from .compile_job import CompileJob, expect_cacheable, with_paths
from .compilers import Compiler, search_folders, variables
from .dependencies import read_depfile, role_folder
from .diagnostics import CompileError, crash_of, explain
from .nvcc import Nvcc
from .nvcc_output import block_sizes, gnu_style
from .object_cache import Cache, Output
from .processes import Finished
from .single_symbol import extra_flags, tools_identity

__all__ = ["CudaCache", "CudaJob", "code_flags", "nvcc_command"]

_FORMAT = "3"
_OUTPUTS = {"object": "-c", "cubin": "-cubin", "ptx": "-ptx"}
# What nvcc itself reads from the environment.
_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaJob(CompileJob):
    """One object to compile with nvcc.

    `compiler` is the C++ compiler for the host's side, `flags` are for it, and `include_dirs[0]` is the toolkit's
    folder of headers.

    Attributes:
        nvcc: the CUDA compiler.
        device_flags: for it; none that names a file.
        output: an object for the host, with the machine code in it; or `cubin` or `ptx`, of one architecture.
    """

    nvcc: Nvcc
    device_flags: tuple[str, ...]
    output: Literal["object", "cubin", "ptx"] = "object"

    @property
    def source_name(self) -> str:
        return f"{safe_name(self.name)}.cu"


def code_flags(archs: tuple[int, ...]) -> tuple[str, ...]:
    """nvcc's flags for machine code of these architectures, and PTX of the oldest: newer GPUs compile it themselves."""
    oldest = min(archs)
    return (
        *(f"-gencode=arch=compute_{a},code=sm_{a}" for a in sorted(archs)),
        f"-gencode=arch=compute_{oldest},code=compute_{oldest}",
    )


def nvcc_command(job: CudaJob, extra: tuple[str, ...]) -> list[str]:
    """The command, to be run in the folder laid out; it writes the object and, as `deps`, what it read."""
    folders = [role_folder(index) for index in range(len(job.include_dirs))]
    host = [*job.flags, *extra, *(f"-iquote{folder}" for folder in folders[1:])]
    return [
        str(job.nvcc.path), "-ccbin", str(job.compiler.path), *job.device_flags, f"-I{folders[0]}",
        *(f"-Xcompiler={flag}" for flag in host),
        # It is part of the names of what only this file sees: without, so would be the folder laid out.
        "-Xcudafe", "--orig_src_path_name", "-Xcudafe", job.source_name,
        "-MD", "-MF", "deps", "-MT", "object", _OUTPUTS[job.output], job.source_name, "-o", job.object_name, "--keep",
    ]  # fmt: skip


class CudaCache(Cache):
    """The cache of objects and libraries, for jobs of either compiler."""

    def get_ready(self, cxx: Compiler, flags: tuple[str, ...]) -> None:
        """Ask the tools what the first job would ask them; the answers are remembered."""
        tools_identity(cxx)
        search_folders(cxx, flags)

    def compile(self, job: CompileJob) -> Path:
        """As `Cache.compile`."""
        if not isinstance(job, CudaJob):
            return super().compile(job)
        expect_cacheable(job.flags)
        expect_cacheable(job.device_flags)
        extra = extra_flags(job.compiler, job.flags) if job.keep_symbol else ()
        tools = tools_identity(job.compiler) if job.keep_symbol else ""
        settings = [f"{name}={os.environ[name]}" for name in _VARIABLES if os.environ.get(name)]
        digest = sha256()
        for part in (
            "cuda object", _FORMAT, job.name, job.source, job.nvcc.identity, job.compiler.identity,
            str(len(job.include_dirs)), job.keep_symbol or "", tools, repr(variables()), repr(settings),
            repr(job.device_flags), repr(job.flags), repr(extra), job.output,
        ):  # fmt: skip
            text = part.encode(errors="surrogateescape")
            digest.update(f"{len(text)}:".encode() + text)
        key = digest.hexdigest()
        return self._find_object(job, key) or self._stores.build(
            lambda store: self._compile(store, job, key, extra)
        )

    def _run_compiler(
        self, store: Store, job: CompileJob, key: str, extra: tuple[str, ...], folder: Path
    ) -> tuple[Finished, list[str]]:
        if not isinstance(job, CudaJob):
            return super()._run_compiler(store, job, key, extra, folder)
        command = nvcc_command(job, extra)
        done = self._run(command, folder)
        # cudafe++ writes its errors to the standard output
        done = Finished(done.code, "", gnu_style(done.out + done.err))
        if done.code == 0 and job.output != "ptx":
            # what ptxas does not say; --keep leaves the PTX
            done = Finished(
                0, "", done.err + "\n" + block_sizes(p.read_text() for p in sorted(folder.glob("*.ptx")))
            )
        text = with_paths(done.err, job.include_dirs)
        log = store.write_log(f"{safe_name(job.name)}-{key[:12]}", f"$ {shlex.join(command)}\n{text}")
        self.outputs[job.name] = Output(text, log, True)
        if done.code != 0:
            crash = crash_of(done, str(job.nvcc.path), job.name)
            raise CompileError(crash or explain(text, (), generated=job.source), output=text, log=log)
        if not (folder / "deps").is_file() or not (folder / job.object_name).is_file():
            raise CompileError(
                f"{job.name}: {job.nvcc.path} reports success, but wrote no object", output=text, log=log
            )
        # The toolkit's headers, which nvcc names from its own folder, are those of include-0 as well.
        roles = (os.path.normpath(role) for role in read_depfile((folder / "deps").read_bytes())[1:])
        return done, list(dict.fromkeys(roles))
