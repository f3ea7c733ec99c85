"""Runs custom operators under the fake ONNX Runtime of fake_ort.cpp: jobs on standard input, replies on standard output.

Usage: python run_fake_ort.py LIBRARY [COMPILED]: operators of the emulated LIBRARY, or those of one that nvcc made. The
first reply lists the operators, or says why they cannot be registered. A job:
{"operator": number, "node": name, "inputs": [None or (bytes, sizes, dtype, item size)], "attributes": [(name, ONNX type,
value)], "outputs": [(wanted, dtype, item size, number of the input that lies at the same address, or None)], "stream": n}.
Needs nothing but Python, so that what a kernel breaks is only this process.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
from typing import Any

KINDS = ("INT", "FLOAT", "STRING", "INTS", "FLOATS")
SIZE = 2048


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


class Attribute(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int32),
        ("i", ctypes.c_int64),
        ("f", ctypes.c_float),
        ("s", ctypes.c_char_p),
        ("count", ctypes.c_size_t),
        ("ints", ctypes.POINTER(ctypes.c_int64)),
        ("floats", ctypes.POINTER(ctypes.c_float)),
    )


class Output(ctypes.Structure):
    _fields_ = (
        ("wanted", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("item_size", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("data", ctypes.c_void_p),
        ("sizes", ctypes.c_int64 * 16),
    )


def attribute(name: str, kind: str, value: Any) -> Attribute:
    made = Attribute(name.encode(), KINDS.index(kind))
    if kind == "INT":
        made.i = int(value)
    elif kind == "FLOAT":
        made.f = value
    elif kind == "STRING":
        made.s = value.encode()
    elif kind == "INTS":
        made.count, made.ints = len(value), (ctypes.c_int64 * max(len(value), 1))(*value)
    else:
        made.count, made.floats = len(value), (ctypes.c_float * max(len(value), 1))(*value)
    return made


def run(library: ctypes.CDLL, job: dict[str, Any]) -> dict[str, Any]:
    overlapped = {o[3] for o in job["outputs"] if o[3] is not None}
    inputs = (Tensor * max(len(job["inputs"]), 1))()
    held = []
    for k, given in enumerate(job["inputs"]):
        inputs[k].rank = -1
        if given is None:
            continue
        content, sizes, dtype, item = given
        address = library.fake_memory(
            len(content), max(item, 16), int(k in overlapped), f"input {k}".encode()
        )
        ctypes.memmove(address, content, len(content))
        dims = (ctypes.c_int64 * max(len(sizes), 1))(*sizes)
        held.append(dims)
        inputs[k] = Tensor(address, dims, len(sizes), dtype)
    attributes = (Attribute * max(len(job["attributes"]), 1))(*(attribute(*a) for a in job["attributes"]))
    outputs = (Output * max(len(job["outputs"]), 1))()
    for k, (wanted, dtype, item, over) in enumerate(job["outputs"]):
        outputs[k] = Output(int(wanted), dtype, item, -1, None if over is None else inputs[over].data)
    text = ctypes.create_string_buffer(SIZE)
    made = library.fake_made()
    failed = library.fake_run(
        job["operator"], job["node"].encode(), inputs, len(job["inputs"]), attributes, len(job["attributes"]),
        outputs, len(job["outputs"]), job["stream"], text, SIZE,
    )  # fmt: skip
    reply: dict[str, Any] = {
        "live": library.fake_live(),
        "allocated": library.fake_made() - made,
        "statuses": library.fake_statuses(),
    }
    if failed:
        reply["error"] = text.value.decode()
    else:
        results = []
        for o in outputs[: len(job["outputs"])]:
            sizes = list(o.sizes[: max(o.rank, 0)])
            count = o.item_size
            for size in sizes:
                count *= size
            results.append((ctypes.string_at(o.data, count), sizes) if o.wanted else None)
        reply["outputs"] = results
    library.fake_release()
    return reply


def main() -> None:
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    library = ctypes.CDLL(sys.argv[1])
    library.fake_memory.restype = ctypes.c_void_p
    library.fake_memory.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_char_p)
    library.fake_run.argtypes = (
        ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t,
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t,
    )  # fmt: skip
    library.fake_operator.argtypes = (ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
    text = ctypes.create_string_buffer(SIZE)
    compiled = sys.argv[2].encode() if len(sys.argv) > 2 else None
    if library.fake_register(compiled, text, ctypes.c_size_t(SIZE)):
        pickle.dump({"error": text.value.decode()}, replies)
        return
    listed = []
    while library.fake_operator(len(listed), text, SIZE):
        listed.append(text.value.decode().split("|"))
    pickle.dump({"operators": listed}, replies)
    replies.flush()
    while True:
        try:
            job = pickle.load(sys.stdin.buffer)  # from the test  # noqa: S301
        except EOFError:
            return
        pickle.dump(run(library, job), replies)
        replies.flush()


if __name__ == "__main__":
    main()
