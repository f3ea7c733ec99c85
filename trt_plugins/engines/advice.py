"""What to do about what TensorRT says: its texts, and what they mean to somebody with an ONNX model and plugins."""

from __future__ import annotations

import re

from ...symbolic.shown_bytes import shown_bytes

__all__ = ["advice_for"]

# From the sources of the ONNX parser (10.1 to 11.1), the builder of TensorRT-RTX 1.7.1, and public threads. What none of them
# fits is shown as TensorRT says it.
_ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"\(input\) != nullptr",
        "an optional input is absent before one that is given, which TensorRT does not take for a plugin: give a tensor in its "
        "place (zeros for a bias), or leave out the later ones too. For plugins that deployops compiled, with the manifest beside "
        "the library, it is done for you",
    ),
    (
        r"optimization profile|Profile .* (is not|not) (valid|set)|dynamic or shape inputs",
        "give the shapes to build for: --profile 'x=1x3x224x224,8x3x224x224,32x3x224x224'",
    ),
    (
        r"[Cc]ould not find any implementation for node|no tactics to implement the operation",
        "no kernel does this node within the limits: allow more --workspace where it was limited; otherwise TensorRT has none "
        "for these types and shapes on the GPU that is built for, and another precision or a plugin helps",
    ),
    (
        r"bad_alloc|[Oo]ut ?[Oo]f ?[Mm]emory|OUT_OF_MEMORY|cudaErrorMemoryAllocation|[Rr]equested amount of .*memory"
        r"|Requested size was \d+ bytes",
        "memory ran out: limit --workspace, build for smaller largest shapes, or on a machine with more",
    ),
    (
        r"[Ee]xternal (weights|data)|weights file|Failed to open file",
        "its side files with weights must lie beside the model under their names",
    ),
    (
        r"[Uu]nsupported ONNX data type|convert ONNX dat[ea] type|convertDtype"
        r"|(DOUBLE|UINT16|UINT32|UINT64|STRING|COMPLEX)\b.*(not|un)support"
        r"|(not|un)support.*\b(DOUBLE|UINT16|UINT32|UINT64|STRING|COMPLEX)\b|UINT8",
        "TensorRT computes in float32, float16, bfloat16, int8, int32, int64 and bool: cast it to one of these in the model",
    ),
    (
        r"will cast to INT32|cast(ing)? down to INT32|out(side)? (of )?(the )?(range of )?INT32|was clamped",
        "values beyond 32 bits get lost in plugins' attributes and in some layers: keep indices and sizes below 2**31, or cast "
        "to int32 in the model",
    ),
    (
        r"must have (the )?same (input )?(data )?types?|types? (do|does|must) (not )?match|mismatched types?|[Ss]trongly[ -]typed",
        "networks are strongly typed, nothing is converted silently: put a Cast before the node, or build with --precision",
    ),
    (
        r"IR version|[Oo]pset .*(not|un)support",
        "export the model with another opset: export_model(..., opset=…), or take a newer TensorRT",
    ),
    (
        r"sort the model topologically",
        "the graph has a cycle, or a node reads what nothing makes: the file was edited or damaged; export it again",
    ),
    (
        r"CUDA (error|initialization|driver)|no CUDA-capable|cuInit",
        "the GPU or its driver does not answer: `deployops doctor` shows what was found",
    ),
    (
        r"[Cc]ompute [Cc]apabilit|SM ?7\.?5|Turing",
        "not every type and layer is there for every GPU: leave this compute capability out of --arch, or choose another "
        "--precision",
    ),
)


_NO_TACTIC = re.compile(r"workspace|[Cc]ould not find any implementation for node")
_REQUESTED = re.compile(r"Requested size was (\d+) bytes")  # all that TensorRT-RTX says of some layers


def advice_for(text: str, workspace: int | None = None) -> str:
    """What to do about a message; "" where nothing is known. `workspace`: the limit in bytes, where there was one."""
    if workspace is not None:
        requested = _REQUESTED.search(text)
        if _NO_TACTIC.search(text) or (requested is not None and int(requested[1]) > workspace):
            size = "more" if requested is None else f"more than {shown_bytes(int(requested[1]))}"
            return (
                f"the --workspace of {shown_bytes(workspace)} may be too small for a layer: give {size}, or leave the option out "
                "for TensorRT's own limit"
            )
    return next((advice for pattern, advice in _ADVICE if re.search(pattern, text)), "")
