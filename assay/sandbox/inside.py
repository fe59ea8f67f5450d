"""The first program in a box: reads its task from descriptor 3, runs the sample, writes values to descriptor 4.

Its text is given to the interpreter of the box, so it stands alone and works in any Python from 3.8. It shares a
process with the sample, which can do with it what it likes: nothing secret may be here, and nothing that decides. What
it writes is data, which the parent compares. Descriptors 5 and 6 are requests to this box and its answers.
"""

from __future__ import annotations

import builtins
import marshal
import os
import sys

TYPE_CHECKING = False  # the module typing takes long to import
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

TASK, RESULT, REQUESTS, ANSWERS = 3, 4, 5, 6
MAX_DEPTH, MAX_NODES, SAFE_INT = 40, 100_000, 1 << 53
TAGS: dict[Any, str] = {list: "l", tuple: "t", set: "s", frozenset: "z"}
OWN: tuple[Any, ...] = (int, float, complex, str, bytes, list, tuple, set, frozenset, dict)


# ---------------------------------------------------------------------------------------------------- values
def quoted(text: str) -> str:
    """Returns a text as JSON, in ASCII."""
    from _json import encode_basestring_ascii  # the module json takes as long to import as all else here

    return encode_basestring_ascii(text)


def encoded(value: Any, left: list[int] | None = None, depth: int = 0) -> str:
    """Returns a value as JSON text. A subclass of one of Python's own types is what it holds, whatever it says about
    itself; of any other type there is its name, and whether it is true.
    """
    left = [MAX_NODES] if left is None else left
    left[0] -= 1
    if left[0] < 0 or depth > MAX_DEPTH:
        return '["o","a value that is too large",false]'
    if value is None or value is True or value is False:
        return "null" if value is None else "true" if value else "false"
    kind = type(value)
    own: Any = next((one for one in OWN if one in kind.__mro__), None)
    if own is int:
        number = int.__index__(value)
        return str(number) if -SAFE_INT < number < SAFE_INT else f'["i","{number:x}"]'
    if own is float:
        return f'["f","{float.hex(value)}"]'
    if own is complex:
        return f'["c","{float.hex(value.real)}","{float.hex(value.imag)}"]'
    if own is str:
        return quoted(str.__str__(value))
    if own is bytes:
        return f'["b","{bytes.hex(value)}"]'
    if own in TAGS:
        inner = [encoded(one, left, depth + 1) for one in own.__iter__(value)]
        return "[{}]".format(",".join([f'"{TAGS[own]}"', *inner]))
    if own is dict:
        pairs = [f"[{encoded(k, left, depth + 1)},{encoded(v, left, depth + 1)}]" for k, v in dict.items(value)]
        return "[{}]".format(",".join(['"d"', *pairs]))
    return f'["o",{quoted(str(kind.__name__)[:60])},{"true" if value else "false"}]'


class Opaque:
    """A value of a type that is not Python's own: it equals nothing."""

    def __init__(self, name: str, truth: bool) -> None:
        self.name, self.truth = name, truth

    def __eq__(self, other: object) -> bool:
        return False

    def __bool__(self) -> bool:
        return self.truth

    __hash__ = None  # type: ignore[assignment]


def decode_value(plain: Any) -> Any:
    """Returns the value of what `encoded` wrote, after JSON was read; ValueError for anything else."""
    if plain is None or type(plain) in (bool, int, str):
        return plain
    if type(plain) is not list or not plain:
        raise ValueError("no value")
    tag, rest = plain[0], plain[1:]
    if tag in ("f", "c", "i", "b"):
        if not all(type(one) is str for one in rest) or len(rest) != 1 + (tag == "c"):
            raise ValueError("no number")
        if tag == "c":
            return complex(*map(float.fromhex, rest))
        return {"f": float.fromhex, "i": lambda one: int(one, 16), "b": bytes.fromhex}[tag](rest[0])
    if tag == "d":
        return {decode_value(key): decode_value(value) for key, value in rest}
    for kind, own in TAGS.items():
        if tag == own:
            return kind(decode_value(one) for one in rest)
    if tag == "o":
        return Opaque(str(rest[0]), rest[1] is True)
    raise ValueError("no value")


# ---------------------------------------------------------------------------------------------------- channels
def read_all(descriptor: int) -> bytes:
    """Returns all bytes of a descriptor and closes it."""
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def write_all(descriptor: int, text: str) -> None:
    """Writes a text."""
    rest = memoryview(text.encode())
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def end(text: str) -> NoReturn:
    """Writes the result and ends the process at once, without what the sample has left for its end."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        write_all(RESULT, text)
        os._exit(0)


# ---------------------------------------------------------------------------------------------------- the sample
def executed(code: str, name: str, names: dict[str, Any] | None = None) -> tuple[dict[str, Any], str]:
    """Runs code as a module, or among `names`; returns the names, and the name of the exception that ended it or ""."""
    if names is None:
        module = sys.modules[name] = type(sys)(name)
        names = module.__dict__
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]  # as the module site gives them
    try:
        exec(compile(code, f"<{name}>", "exec"), names)
    except BaseException as error:
        tell_error(error)
        return names, type(error).__name__
    return names, ""


def tell_error(error: BaseException) -> None:
    """Writes an exception to the standard error, without the lines of the sample."""
    try:
        sys.stderr.write(f"{type(error).__name__}: {str(error)[:500]}\n")
    except BaseException:
        os._exit(1)


def run_calls(task: dict[str, Any]) -> None:
    """Evaluates each expression among the names of the sample."""
    names, failed = executed(task["code"], "program")
    failed = failed or executed(task["setup"], "setup", names)[1]
    values = []
    for expression in task["expressions"]:
        try:
            values.append(f'["e",{quoted(failed)}]' if failed else f'["v",{encoded(eval(expression, names))}]')
        except BaseException as error:
            tell_error(error)
            values.append(f'["e",{quoted(type(error).__name__)}]')
    end("[{}]".format(",".join(values)))


def run_script(task: dict[str, Any]) -> None:
    """Runs the sample as a script; the interpreter ends as it always does."""
    os.close(RESULT)
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]  # as the module site gives them
    sys.argv = ["program.py"]
    exec(compile(task["code"], "program.py", "exec"), module.__dict__)


def requests() -> Iterator[Any]:
    """Returns the requests to this box, one after the other."""
    import json

    with os.fdopen(REQUESTS, "rb") as file:
        for line in file:
            yield json.loads(line)


def run_functions(task: dict[str, Any]) -> None:
    """Answers calls of the sample's functions."""
    names, failed = executed(task["code"], "program")
    for name, given, named in requests():
        try:
            if failed:
                raise NameError(failed)
            value = eval(name, names)(*decode_value(given), **decode_value(named))
            answer = f'["v",{encoded(value)}]\n'
        except BaseException as error:
            tell_error(error)
            answer = f'["e",{quoted(type(error).__name__)}]\n'
        write_all(ANSWERS, answer)
    end("[]")


# ---------------------------------------------------------------------------------------------------- tests
ANSWERED: list[Any] = []
"""The file from which a box of tests reads answers."""


class Remote:
    """A function of the sample, which is in another box."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Returns the value as plain data; raises the exception of Python's own that the sample raised."""
        import json

        write_all(ANSWERS, f"[{quoted(self.name)},{encoded(given)},{encoded(named)}]\n")
        line = ANSWERED[0].readline(1 << 22)
        if not line.endswith(b"\n"):
            raise RuntimeError("the program has ended")
        tag, value = json.loads(line)
        if tag == "v":
            return decode_value(value)
        kind: Any = getattr(builtins, str(value), None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            raise kind("in the program")
        raise RuntimeError(str(value))

    def __getattr__(self, name: str) -> Any:
        """Returns a name of the module that this is called like: tests use modules that programs have imported."""
        import importlib

        if name.startswith("__") or self.name not in sys.stdlib_module_names:
            raise AttributeError(name)
        return getattr(importlib.import_module(self.name), name)


class Names(dict):  # type: ignore[type-arg]
    """The names of tests: what they do not define is a function of the sample."""

    def __missing__(self, name: str) -> Remote:
        if name in vars(builtins) or name.startswith("__"):
            raise KeyError(name)
        return Remote(name)


def run_tests(task: dict[str, Any]) -> None:
    """Runs each test; writes whether it passed."""
    ANSWERED.append(os.fdopen(REQUESTS, "rb"))
    names = Names(__name__="tests", __builtins__=builtins)
    exec(compile(task["setup"], "<setup>", "exec"), names)
    passed = []
    for test in task["tests"]:
        try:
            exec(compile(test, "<test>", "exec"), names)
            passed.append("true")
        except Exception as error:
            tell_error(error)
            passed.append("false")
    end("[{}]".format(",".join(passed)))


# ---------------------------------------------------------------------------------------------------- commands
def run_shell(task: dict[str, Any]) -> None:
    """Runs commands of a shell one after the other in a folder that stays, and reads and writes files."""
    import base64
    import json

    folder = "/tmp/work"
    os.makedirs(folder, exist_ok=True)
    write_all(ANSWERS, "{}\n")  # it has begun
    for request in requests():
        try:
            if "command" in request:
                answer, folder = command(request, folder)
            elif "write" in request:
                path = os.path.join("/tmp/work", request["write"])
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(base64.b64decode(request["content"]))
                answer = {}
            else:
                answer = {"files": files_of("/tmp/work", request["bytes"])}
        except OSError as error:
            answer = {"error": str(error)[:200]}
        write_all(ANSWERS, json.dumps(answer) + "\n")
    end("[]")


def command(request: dict[str, Any], folder: str) -> tuple[dict[str, Any], str]:
    """Runs one command of bash with a time limit; returns what it wrote, its status and the folder it ended in."""
    import signal
    import subprocess

    inner, outer = os.pipe()
    script = f"{request['command']}\n__status=$?; pwd >&{outer} 2>/dev/null; exit $__status"
    place = folder if os.path.isdir(folder) else "/tmp/work"
    child = subprocess.Popen(
        ["/bin/bash", "-c", script],
        cwd=place,
        pass_fds=[outer],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    os.close(outer)
    output, is_late = gathered(child.stdout, request["seconds"], request["bytes"], child)
    if child.poll() is None or is_late:
        os.killpg(child.pid, signal.SIGKILL)  # its leader is not waited for yet, so the group is still its own
    status = child.wait(10)
    os.set_blocking(inner, False)
    try:
        ended = os.read(inner, 4096).decode("utf-8", "replace").rstrip("\n")
    except BlockingIOError:
        ended = ""
    os.close(inner)
    answer = {"output": output.decode("utf-8", "replace"), "status": status, "late": is_late}
    return answer, ended if ended.startswith("/") else folder


def gathered(pipe: Any, seconds: float, most: int, child: Any) -> tuple[bytes, bool]:
    """Returns the first `most` bytes of a pipe until it ends or its process does, and whether the time ran out."""
    import select
    import time

    until, found = time.monotonic() + seconds, b""
    while True:
        left = until - time.monotonic()
        if left <= 0:
            return found[:most], True
        ready, _, _ = select.select([pipe], [], [], min(left, 0.05))
        some = os.read(pipe.fileno(), 65536) if ready else None
        if some:
            found = (found + some)[:most]
        elif some == b"" or child.poll() is not None:
            return found[:most], False


def files_of(folder: str, most: int) -> dict[str, str]:
    """Returns the plain files of a folder by their paths, up to a number of bytes; links are not followed."""
    import base64

    found: dict[str, str] = {}
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(root, name)
            if os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path) > most:
                continue
            with open(path, "rb") as file:
                content = file.read(most + 1)
            most -= len(content) + len(name) + 64
            if most < 0:
                return found
            found[os.path.relpath(path, folder)] = base64.b64encode(content).decode()
    return found


def main() -> None:
    """Reads the task, says that the box has begun, and does it."""
    task = marshal.loads(read_all(TASK))
    sys.path[:] = [path for path in sys.path if path]
    sys.path += [path for path in task["path"] if path not in sys.path]
    write_all(RESULT, "!")
    RUN[task["kind"]](task)


RUN = {
    "stdin": run_script, "calls": run_calls, "functions": run_functions, "tests": run_tests, "shell": run_shell,
}  # fmt: skip

if __name__ == "__main__":
    main()
