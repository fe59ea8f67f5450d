"""Messages between a process and its workers: eight bytes with the length, then the message.

Requests are pickled, since only the trainer writes them; answers are JSON, so that nothing a worker sends can run code
in the trainer. Floats keep every bit.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any

from assay.core.errors import AssayError

HEAD = struct.Struct(">Q")
MOST_ANSWER = 64 << 20
"""Bytes of the longest answer."""
TICK = 0.05
"""Seconds between looks at deadlines while a message is written."""
TUPLE, OBJECT = "__tuple__", "__object__"
"""Keys of what JSON has no form for."""
OBJECTS = {
    "Score": "assay.core.record",
    "PolicyFault": "assay.core.record",
    "InfraFault": "assay.core.record",
    "Reply": "assay.tasks.language.partners",
}
"""Values of Assay that may be sent, and the modules that define them."""
ARRAYS = ("numpy", "torch", "jax", "jaxlib")


def framed(message: bytes) -> bytes:
    """Returns a message with its length in front."""
    return HEAD.pack(len(message)) + message


def read_exactly(file: int, num: int) -> bytes:
    """Returns the next bytes of a descriptor; EOFError if it ends before."""
    parts = []
    while num:
        part = os.read(file, min(num, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        num -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_frame(file: int, most: int | None = None) -> bytes:
    """Returns the next message; EOFError at the end, ValueError for one that is longer than `most`."""
    (size,) = HEAD.unpack(read_exactly(file, HEAD.size))
    if most is not None and size > most:
        raise ValueError(f"an answer of {size:,} bytes")
    return read_exactly(file, size)


def write_frame(file: int, message: bytes, check: Callable[[], object] = time.monotonic) -> None:
    """Writes a message to a descriptor that does not block; calls `check`, which may raise, while it must wait."""
    left = memoryview(framed(message))
    while left:
        try:
            left = left[os.write(file, left) :]
        except BlockingIOError:
            check()
            select.select([], [file], [], TICK)


# ---------------------------------------------------------------------------------------------------- values
def plain(value: Any) -> Any:
    """Returns a value as JSON can hold it: texts, numbers, None, lists, tuples, mappings from texts, outcomes and
    replies, and arrays as lists. AssayError for anything else.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return {TUPLE: [plain(one) for one in value]}
    name = type(value).__name__
    if OBJECTS.get(name) == type(value).__module__:
        return {OBJECT: name, **{one.name: plain(getattr(value, one.name)) for one in fields(value)}}
    if isinstance(value, list | set | frozenset):
        return [plain(one) for one in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(one) for key, one in value.items()}
    if type(value).__module__.partition(".")[0] in ARRAYS and callable(getattr(value, "tolist", None)):
        return plain(value.tolist())
    raise AssayError(f"{value!r:.60} is a {type(value).__name__}. Return texts, numbers, lists or mappings")


def as_given(value: Any) -> Any:
    """Returns the value that `plain` was made of; arrays stay lists."""
    if isinstance(value, list):
        return [as_given(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {TUPLE}:
        return tuple(as_given(one) for one in value[TUPLE])
    if value.get(OBJECT) in OBJECTS:
        kind = vars(import_module(OBJECTS[value[OBJECT]]))[value[OBJECT]]
        return kind(**{key: as_given(one) for key, one in value.items() if key != OBJECT})
    return {key: as_given(one) for key, one in value.items()}


def answer_bytes(answer: Mapping[str, Any]) -> bytes:
    """Returns an answer as JSON; one that is too long is an error instead."""
    try:
        sent = json.dumps(answer).encode()
    except (ValueError, TypeError, RecursionError) as error:
        sent = json.dumps(error_answer(answer["id"], f"returned what cannot be sent: {error}")).encode()
    if len(sent) > MOST_ANSWER:
        text = f"returned {len(sent):,} bytes, more than {MOST_ANSWER:,}"
        sent = json.dumps(error_answer(answer["id"], text)).encode()
    return sent


def error_answer(number: int, text: str) -> dict[str, Any]:
    """Returns the answer that a call's result cannot be sent."""
    return {"id": number, "error": {"text": text, "kind": "unsendable", "name": "AssayError"}}
