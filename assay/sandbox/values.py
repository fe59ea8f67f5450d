"""What goes into a sandbox and what comes out: limits, inputs, and three kinds of results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from assay.core.errors import AssayError

MIB = 1 << 20

Value = Any
"""A value of a program as JSON: numbers, texts, true, false and null are themselves; every other type is a list that
begins with its tag, see `inside.encoded`. A value of a type that is not Python's own is ["o", name, whether true].
"""


@dataclass(frozen=True)
class Limits:
    """Limits of one run. `seconds` is wall-clock time, `cpu_seconds` and `memory` are sums over all of its processes,
    `address_space` is of each process, `disk` is its folder for files, `output` is of each channel. Sizes are in bytes.
    """

    seconds: float = 10.0
    cpu_seconds: float = 8.0
    memory: int = 1024 * MIB
    address_space: int = 768 * MIB
    disk: int = 64 * MIB
    output: int = MIB
    processes: int = 48

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 < value < math.inf:
                raise AssayError(f"the limit '{name}' of a sandbox is {value:g}. Use a positive number")


# ---------------------------------------------------------------------------------------------------- inputs
@dataclass(frozen=True)
class Stdin:
    """The program is run as a script with this text as its standard input."""

    text: str = ""


@dataclass(frozen=True)
class Calls:
    """The program is run, then `setup`, then each expression is evaluated among their names: these are the values."""

    expressions: tuple[str, ...]
    setup: str = ""


@dataclass(frozen=True)
class Assertions:
    """The program is run in one box, each test in a second one, in which the program's names are functions that ask
    the first box. Arguments and results cross as plain values: tests never share a process with the program.
    """

    tests: tuple[str, ...]
    setup: str = ""


Inputs = Stdin | Calls | Assertions


@dataclass(frozen=True)
class Job:
    """One run: a program in Python, its inputs and its limits."""

    code: str
    inputs: Inputs = Stdin()
    limits: Limits = Limits()


def job_as_json(job: Job) -> dict[str, Any]:
    """Returns a job as plain values."""
    kind = type(job.inputs).__name__.lower()
    return {"code": job.code, "kind": kind, "inputs": asdict(job.inputs), "limits": asdict(job.limits)}


def job_of(plain: Mapping[str, Any]) -> Job:
    """Returns the job of plain values; AssayError names a field that does not fit."""
    kinds: dict[str, Any] = {"stdin": Stdin, "calls": Calls, "assertions": Assertions}
    kind, code, inputs, limits = (plain.get(name) for name in ("kind", "code", "inputs", "limits"))
    if kind not in kinds:
        raise AssayError(f"'kind' is {kind!r:.60}. Use one of {', '.join(kinds)}")
    if not isinstance(code, str):
        raise AssayError(f"'code' is {code!r:.60}. It must be text")
    inputs, limits = ({} if one is None else one for one in (inputs, limits))
    if not isinstance(inputs, dict) or not isinstance(limits, dict):
        raise AssayError("'inputs' and 'limits' must be objects")
    wanted = {one.name: one.type for one in fields(kinds[kind])}
    for name, value in inputs.items():
        is_list = isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
        if name not in wanted:
            raise AssayError(f"'inputs.{name:.60}' is no input of '{kind}'. It has {', '.join(wanted)}")
        if not (isinstance(value, str) if wanted[name] == "str" else is_list):
            what = "a text" if wanted[name] == "str" else "a list of texts"
            raise AssayError(f"'inputs.{name}' is {value!r:.60}. It must be {what}")
    if missing := [name for name in ("expressions", "tests") if name in wanted and name not in inputs]:
        raise AssayError(f"'inputs' has no '{missing[0]}'. '{kind}' needs them")
    known = {one.name: one.type for one in fields(Limits)}
    for name, value in limits.items():
        if name not in known or isinstance(value, bool) or not isinstance(value, int | float):
            raise AssayError(f"'limits.{name:.60}' is {value!r:.60}. Use numbers for {', '.join(sorted(known))}")
        if known[name] == "int" and not isinstance(value, int):
            raise AssayError(f"'limits.{name}' is {value!r:.60}. Use a whole number")
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in inputs.items()}
    return Job(code, kinds[kind](**given), Limits(**limits))


# ---------------------------------------------------------------------------------------------------- results
@dataclass(frozen=True)
class Completed:
    """The program ended by itself: its values (of calls, or whether each test passed), its output and exit status.

    Values of calls are ["v", value] or ["e", name of the exception].
    """

    values: tuple[Value, ...] = ()
    output: str = ""
    errors: str = ""
    status: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class ProgramFault:
    """A failure of the program: "timeout", "memory", "crash", "output" or "disk", with what it wrote at the end."""

    kind: str
    detail: str = ""


@dataclass(frozen=True)
class SandboxFault:
    """A failure of the sandbox itself. It says nothing about the program and is never a reward."""

    kind: str


Result = Completed | ProgramFault | SandboxFault
RESULTS: dict[str, Any] = {"completed": Completed, "program": ProgramFault, "sandbox": SandboxFault}


def result_as_json(result: Result) -> dict[str, Any]:
    """Returns a result as plain values."""
    name = next(key for key, kind in RESULTS.items() if isinstance(result, kind))
    return {"result": name, **asdict(result)}


def result_of(plain: Any) -> Result:
    """Returns the result of plain values; a fault of the sandbox if they are none."""
    kind = RESULTS.get(str(plain.get("result"))) if isinstance(plain, dict) else None
    if kind is None:
        return SandboxFault(f"the sandbox answered {plain!r:.80}")
    given = {name: value for name, value in plain.items() if name != "result"}
    try:
        found = kind(**given)
    except TypeError:
        return SandboxFault(f"the sandbox answered {plain!r:.80}")
    types = {"values": list | tuple, "status": int, "seconds": int | float}
    for one in fields(found):
        if not isinstance(getattr(found, one.name), types.get(one.name, str)):
            return SandboxFault(f"the sandbox answered {plain!r:.80}")
    return Completed(**{**given, "values": tuple(found.values)}) if isinstance(found, Completed) else found
