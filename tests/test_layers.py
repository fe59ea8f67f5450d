"""The shape of the package, held by a walk over its syntax trees: import arrows, sizes, names, docstrings.

The tables come first and are meant to be edited. A unit is a top-level module or folder of `assay`. What rightly breaks
a rule is in EXCEPTIONS with its reason; an exception that is no longer needed fails too, unless its reason begins with
"until". AT_MOST counts the breaks of a rule that is not yet kept. A unit that ARROWS does not name is an error.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]

# ------------------------------------------------------------------------------------------------------------- tables
# A place is a unit, or a folder or module inside one, without the leading `assay.`; the longest one that fits decides.
PARTS = ("parts", "models", "methods")  # where the rules of parts hold

SHARED = {"core", "ops", "models", "rollouts", "decoding", "parts", "recipes", "tasks", "statistics", "sandbox"}
RUNNING = SHARED | {"method", "methods", "datasets", "engine", "version"}

ARROWS: dict[str, set[str]] = {  # place -> the places it may import besides its own unit
    "version": set(),
    "core": set(),
    "ops": {"core"},
    "sandbox": {"core.errors", "core.http"},  # stands alone: no torch
    "statistics": {"core", "ops"},
    "models": {"core", "ops"},
    "models.pretrained": {"core", "ops", "rollouts.text"},
    "decoding": {"core", "ops", "models"},
    "rollouts": {"core", "ops", "decoding"},
    "engine": {"core", "ops", "decoding"},
    "parts": {"core", "ops", "models", "rollouts", "decoding"},
    "recipes": {"core", "ops", "models", "parts"},
    "tasks": {"core", "ops", "rollouts", "decoding", "sandbox"},
    "tasks.adapters": {"core", "ops", "models", "rollouts", "decoding"},
    "datasets": {"core", "ops", "engine", "models", "parts", "recipes", "tasks", "version"},
    "method": {"core", "ops", "models", "rollouts", "decoding", "parts", "recipes", "tasks"},
    "methods": SHARED | {"method"},  # never claims, engine or runs
    "runs": RUNNING,  # never claims: what trains does not need the proof
    "claims.testbeds": {"core", "ops", "rollouts", "decoding", "tasks"},
    "claims": RUNNING | {"runs"},
    "report": RUNNING | {"runs", "claims"},
    "cli": RUNNING | {"runs", "claims", "report", "__init__"},
    "__init__": RUNNING | {"runs", "claims"},
    "__main__": {"cli"},
}
ALONE = {"methods"}  # units whose folders may not import each other

HARD = {"torch", "numpy", "safetensors", "rich"}
OPTIONAL: dict[str, set[str]] = {  # package -> the places that may import it, inside functions only
    "matplotlib": {"report", "runs.plot"},
    "triton": {"decoding", "ops"},
    "optuna": {"statistics.tuning"},
    "torch.distributed": {"engine"},
    **{name: {"tasks.adapters"} for name in (
        "gymnasium", "pettingzoo", "mujoco", "minari", "h5py", "reasoning_gym", "envpool", "mcp", "warp",
        "mujoco_warp", "textworld_express", "scienceworld", "textarena", "minigrid", "websockets")},
    **{name: {"models.pretrained"} for name in ("transformers", "tokenizers", "peft", "accelerate", "gguf")},
    **{name: {"tasks.adapters.video"} for name in ("imageio", "imageio_ffmpeg", "PIL")},
    **{name: {"models.exported"} for name in ("onnx", "onnxscript")},
    "huggingface_hub": {"models.pretrained"},
    "math_verify": {"tasks.language.math_answers"},
    "pyarrow": {"tasks.language.sources", "tasks.adapters"},
    "duckdb": {"tasks.language.sql"},
    **{name: {"runs.sinks"} for name in ("wandb", "tensorboard", "torch.utils.tensorboard")},
    "ray": {"runs.distributed.ray_cluster"},
    "vllm": set(),
}

INNER = {name.split(".")[-1] for name in OPTIONAL if "." in name}

FUNCTION_LINES = {"*": 60, **dict.fromkeys(PARTS, 40), "models.pretrained": 60, "engine.loop": 80}  # no docstring
MODULE_LINES = {"*": 400, **dict.fromkeys(PARTS, 200), "models.pretrained": 400}
METHOD_LINES = 320  # of a method's one file; a longer method is a folder
SETTINGS = 6
CLASS_DEPTH = 2  # the slot does not count
BANNED_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "misc", "data"}
BANNED_PREFIXES = ("new_", "do_", "process_")
BANNED_PHRASES = re.compile(r"\b(mend(?:s|ed|ing)?|anew|gone on|is none|nobody|somebody|who acts)\b")
BLIND_TO_NAMES = (*PARTS, "engine")  # where no string may select behaviour
SPEAKS_OF_NAMES = ("models.pretrained",)  # but here the names are another library's

WAITS = ("wait", "join", "get", "recv", "recv_bytes", "communicate", "acquire", "result", "barrier")
ENOUGH = {**{f".{name}": 1 for name in WAITS}, "wait": 2, "ray.get": 2, "ray.wait": 2, "self.ray.get": 2}
"""Waits, and the number of arguments with which they have a deadline: (timeout), or (what, timeout)."""

AT_MOST: dict[str, int] = {}  # rules that are not yet kept: how many breaks are left; lower it, never raise it

# rule -> key as the failure prints it -> why this is right
EXCEPTIONS: dict[str, dict[str, str]] = {
    "third_parties": {
        "assay/decoding/triton_draws.py: triton": "kernels; only a function imports this module",
        "assay/decoding/triton_draws.py: triton.language": "kernels; only a function imports this module",
        "assay/decoding/triton_kernels.py: triton": "kernels; only a function imports this module",
        "assay/decoding/triton_kernels.py: triton.language": "kernels; only a function imports this module",
        "assay/ops/triton_output.py: triton": "kernels; only a function imports this module",
        "assay/ops/triton_output.py: triton.language": "kernels; only a function imports this module",
        "assay/ops/triton_output.py: triton.tools.tensor_descriptor": "kernels; only a function imports this module",
    },
    "arrows": {
    },
    "class_depth": {
        "assay/tasks/games/talk.py: TalkGame": "a game with talk is one of tokens, which is one of matrices",
    },
    "open_arguments": {
        "assay/models/pretrained/causal.py: bypass": "transformers calls it with arguments of its own",
        "assay/models/pretrained/packed_layers.py: attention": "transformers calls it with arguments of its own",
        "assay/models/pretrained/packed_layers.py: eager": "transformers calls it with arguments of its own",
    },
    "strings_that_select": {
        "assay/engine/placement.py: torch.device(self.device).type != 'cpu'": "PyTorch names kinds of devices by text",
        "assay/engine/memory.py: device == 'cpu'": "PyTorch names kinds of devices by text",
        "assay/engine/stacked/engine.py: torch.device(placement.device).type == 'cuda'": "as above",
        "assay/engine/stacked/engine.py: name != 'metrics'": "until metrics have a place of their own in a replay",
    },
    "module_lines": {
        "assay/models/bodies/transformer.py": "one network and its cache, read together",
    },
    "waits_for_ever": {
        **{f"assay/{where}": "it reads what poll() or wait(), which have a deadline, found in the pipe" for where in (
            "runs/pools.py: self.pipe.recv()",
            "tasks/adapters/gymnasium_workers.py: pipe.recv()",
            "tasks/adapters/gymnasium_workers.py: self.pipe.recv()",
        )},
        "assay/tasks/adapters/envpool.py: self.pool.recv()": "EnvPool offers no deadline: its threads answer",
        "assay/tasks/adapters/envpool.py: pool.recv()": "EnvPool offers no deadline: its threads answer",
        "assay/runs/distributed/gpu_memory.py: self.memory.wait()": "CUDA offers no deadline: the GPU copies weights",
        **{f"assay/runs/distributed/{where}": reason for where, reason in (
            ("ranks.py: child.pipe.recv()", "until ranks are read elsewhere: poll() found something in the pipe"),
            ("ranks.py: child.process.join()", "until ranks end elsewhere: the process was killed just before"),
            ("worker_pool.py: self.pipe.recv_bytes()", "a timer kills the process at the deadline, which ends it"),
        )},
        **{f"assay/runs/{where}": "a child waits for its parent to say something or to end, for as long as that lives"
           for where in ("distributed/worker_pool.py: pipe.recv_bytes()", "pools.py: parent.recv()",
                         "distributed/worker_pool.py: news.recv_bytes()", "signals.py: wait([parent])")},
        **{f"assay/runs/user_code/workers/serving.py: {call}": reason for call, reason in (
            ("self.alone.get()", "a worker waits for its trainer, whose end ends it (its guard sees to that)"),
            ("found.result()", "the trainer has the deadline of a call, and kills the worker"),
        )},
        **{f"assay/runs/{where}": "the thread writes a checkpoint: the disk decides, and leaving would lose it"
           for where in (
               "saving.py: self.wait()", "saving.py: self.join()", "saving.py: self.thread.join()",
               "stacked.py: worker.saver.wait()", "worker.py: self.saver.wait()", "worker.py: self.saver.join()",
           )},
        **{f"assay/core/digests.py: {call}": "threads of this process compute a digest of memory"
           for call in ("self.parts[-2 * THREADS].result()", "part.result()")},
    },
    "function_names": {
        "assay/report/watch.py: Handler.do_GET": "http.server asks for this name",
        "assay/core/http.py: Handler.do_GET": "http.server asks for this name",
        "assay/core/http.py: Handler.do_POST": "http.server asks for this name",
    },
}


# ------------------------------------------------------------------------------------------------------------ package
@dataclass(frozen=True)
class Arrow:
    """One import: the module or name it reaches, its line, and whether it runs on import of the module."""

    target: str
    line: int
    deferred: bool


@dataclass(frozen=True)
class Module:
    """One source file with its syntax tree."""

    name: str
    path: str
    is_package: bool
    text: str
    tree: ast.Module

    @property
    def unit(self) -> str:
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else "__init__"

    @property
    def place(self) -> str:
        """The name without the leading `assay.`."""
        return self.name.partition(".")[2] or "__init__"

    @property
    def is_claims(self) -> bool:
        """Whether this is a file of claims, where each function computes a claim."""
        return self.unit == "claims" and '\nCLAIMS = Claims(' in self.text

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def num_lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def functions(self) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        return [(name, node) for name, node in named(self.tree) if not isinstance(node, ast.ClassDef)]

    @cached_property
    def classes(self) -> list[tuple[str, ast.ClassDef]]:
        return [(name, node) for name, node in named(self.tree) if isinstance(node, ast.ClassDef)]


@dataclass(frozen=True)
class Finding:
    """One break of a rule. The key does not move when lines do, so that EXCEPTIONS can name it."""

    key: str
    detail: str


class Package:
    """All modules of one package folder."""

    def __init__(self, folder: Path) -> None:
        self.modules: dict[str, Module] = {}
        for path in sorted(folder.rglob("*.py")):
            relative = path.relative_to(folder.parent)
            parts = relative.with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text, filename=str(path))
            self.modules[name] = Module(name, relative.as_posix(), is_package, text, tree)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules.values())

    def within(self, places: Iterable[str]) -> Iterator[Module]:
        return (module for module in self if any(is_in(module.place, place) for place in places))

    @cached_property
    def arrows(self) -> dict[str, list[Arrow]]:
        return {module.name: list(self._arrows(module)) for module in self}

    def _arrows(self, module: Module) -> Iterator[Arrow]:
        for node, deferred in with_deferral(module.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Arrow(alias.name, node.lineno, deferred)
            elif isinstance(node, ast.ImportFrom):
                base = absolute(module, node)
                for alias in node.names:
                    whole = f"{base}.{alias.name}"
                    is_module = whole in self.modules or whole in OPTIONAL
                    yield Arrow(whole if is_module else base, node.lineno, deferred)
            elif isinstance(node, ast.Attribute):
                if node.attr in INNER and (dotted := ast.unparse(node)) in OPTIONAL:
                    yield Arrow(dotted, node.lineno, deferred)
            elif isinstance(node, ast.Call) and is_require(node.func) and is_text(node.args[0]):
                yield Arrow(str(ast.literal_eval(node.args[0])), node.lineno, deferred)

    @cached_property
    def inner_graph(self) -> dict[str, set[str]]:
        return {
            name: {arrow.target for arrow in arrows if arrow.target in self.modules and arrow.target != name}
            for name, arrows in self.arrows.items()
        }


Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def named(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Named]]:
    """Every class and function with its qualified name, nested ones included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Named):
            yield prefix + child.name, child
            yield from named(child, f"{prefix}{child.name}.")
        elif not isinstance(child, ast.expr):
            yield from named(child, prefix)


def with_deferral(tree: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """Every node, and whether it sits in a function or under TYPE_CHECKING."""
    waiting = [(tree, False)]
    while waiting:
        node, deferred = waiting.pop()
        yield node, deferred
        deferred |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        later = node.body if is_for_types else []
        waiting += [(child, deferred or child in later) for child in reversed([*ast.iter_child_nodes(node)])]


def absolute(module: Module, node: ast.ImportFrom) -> str:
    """The dotted name that an import-from starts at."""
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    parts = parts[: len(parts) - node.level + module.is_package]
    return ".".join([*parts, node.module] if node.module else parts)


def unit_of(target: str) -> str:
    parts = target.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring."""
    first = node.body[0]
    doc = first.end_lineno - first.lineno + 1 if ast.get_docstring(node, clean=False) is not None else 0
    return node.end_lineno - node.lineno + 1 - doc


def is_in(place: str, wider: str) -> bool:
    """Whether a place is another one or inside it."""
    return f"{place}.".startswith(f"{wider}.")


def row_of(table: Mapping[str, Any], place: str) -> Any:
    """The entry of the longest place that fits, else that of `*`."""
    return next((table[prefix] for prefix in (*prefixes(place), "*") if prefix in table), None)


# -------------------------------------------------------------------------------------------------------------- rules
def arrows(package: Package) -> Iterator[Finding]:
    """A unit imports only what ARROWS gives it; a method never imports another method."""
    for module in package:
        if module.unit not in ARROWS:
            yield Finding(module.unit, f"{module.path}: unit {module.unit!r} has no row in ARROWS")
            continue
        allowed = row_of(ARROWS, module.place)
        for arrow in package.arrows[module.name]:
            if arrow.target.split(".")[0] != "assay" or arrow.target == module.name:
                continue
            unit, target = unit_of(arrow.target), arrow.target.partition(".")[2] or "__init__"
            may = any(is_in(target, place) for place in allowed)
            if may if unit != module.unit else unit not in ALONE or in_one_folder(module, arrow.target):
                continue
            yield Finding(f"{module.name} -> {arrow.target}", f"{module.path}:{arrow.line} imports {arrow.target}")


def in_one_folder(module: Module, target: str) -> bool:
    """Whether a target lies in the module's own folder, the second level of the package."""
    return module.name.split(".")[1:3] == target.split(".")[1:3]


def mutual_units(package: Package) -> Iterator[Finding]:
    """No two units import each other."""
    reached: dict[str, set[str]] = {}
    for name, targets in package.inner_graph.items():
        reached.setdefault(package.modules[name].unit, set()).update(unit_of(target) for target in targets)
    for unit, others in reached.items():
        for other in sorted(others):
            if other > unit and unit in reached.get(other, set()):
                yield Finding(f"{unit} <-> {other}", f"units {unit} and {other} import each other")


def cycles(package: Package) -> Iterator[Finding]:
    """No module reaches itself through imports, deferred ones included."""
    reach = {name: reachable(package.inner_graph, name) for name in package.modules}
    rings = {frozenset(other for other in reach[name] if name in reach[other]) for name in reach if name in reach[name]}
    for ring in rings:
        key = " <-> ".join(sorted(ring))
        yield Finding(key, f"import cycle: {key}")


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """Everything that can be reached from `start` in one step or more."""
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(graph[name])
    return seen


def third_parties(package: Package) -> Iterator[Finding]:
    """Optional packages only in their unit and inside functions; no package that the tables do not name."""
    for module in package:
        for arrow in package.arrows[module.name]:
            top = arrow.target.split(".")[0]
            homes = next((OPTIONAL[prefix] for prefix in prefixes(arrow.target) if prefix in OPTIONAL), None)
            key = f"{module.path}: {top if homes is None else arrow.target}"
            where = f"{module.path}:{arrow.line}"
            if homes is None:
                if top != "assay" and top not in HARD and top not in sys.stdlib_module_names:
                    yield Finding(key, f"{where} imports {top}, which neither HARD nor OPTIONAL names")
            elif not any(is_in(module.place, home) for home in homes):
                yield Finding(key, f"{where} uses {arrow.target}, which belongs to {sorted(homes)}")
            elif not arrow.deferred:
                yield Finding(key, f"{where} imports {arrow.target} outside a function")


def prefixes(dotted: str) -> Iterator[str]:
    """The name and its parents, longest first."""
    parts = dotted.split(".")
    return (".".join(parts[:end]) for end in range(len(parts), 0, -1))


def private_names(package: Package) -> Iterator[Finding]:
    """No module imports another module's underscore name."""
    for module in package:
        for node in module.nodes:
            if not isinstance(node, ast.ImportFrom) or not absolute(module, node).startswith("assay"):
                continue
            for alias in node.names:
                if alias.name.startswith("_") and not alias.name.startswith("__"):
                    detail = f"{module.path}:{node.lineno} takes {alias.name} from {absolute(module, node)}"
                    yield Finding(f"{module.path}: {alias.name}", detail)


def open_arguments(package: Package) -> Iterator[Finding]:
    """No **kwargs in a part."""
    for module in package.within(PARTS):
        for name, node in module.functions:
            if node.args.kwarg is not None:
                detail = f"{module.path}:{node.lineno} {name} takes **{node.args.kwarg.arg}"
                yield Finding(f"{module.path}: {name}", detail)


def strings_that_select(package: Package) -> Iterator[Finding]:
    """No comparison with a string literal in parts, models, methods and the engine."""
    for module in package.within(BLIND_TO_NAMES):
        excused = module.is_claims or any(is_in(module.place, place) for place in SPEAKS_OF_NAMES)
        for node in () if excused else module.nodes:
            if isinstance(node, ast.Compare) and selects(node):
                literal = ast.unparse(node)
            elif isinstance(node, ast.MatchValue) and is_text(node.value):
                literal = f"case {ast.unparse(node)}"
            else:
                continue
            yield Finding(f"{module.path}: {literal}", f"{module.path}:{node.lineno} compares: {literal}")


def is_require(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "require"


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def selects(node: ast.Compare) -> bool:
    """Whether a comparison holds a value against string literals, one or a list of them."""
    sides = [node.left, *node.comparators]
    for operator, left, right in zip(node.ops, sides, sides[1:], strict=False):
        if isinstance(operator, ast.Eq | ast.NotEq) and (is_text(left) or is_text(right)):
            return not (isinstance(left, ast.Name) and left.id == "__name__")
        if isinstance(operator, ast.In | ast.NotIn) and isinstance(right, ast.Tuple | ast.List | ast.Set):
            return any(is_text(element) for element in right.elts)
    return False


def attribute_guesses(package: Package) -> Iterator[Finding]:
    """No hasattr anywhere: a type or a protocol says what an object has."""
    for module in package:
        for node in module.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hasattr":
                call = ast.unparse(node)
                yield Finding(f"{module.path}: {call}", f"{module.path}:{node.lineno} {call}")


def swallowed_errors(package: Package) -> Iterator[Finding]:
    """No bare except, and nothing caught only to be ignored."""
    for module in package:
        for node in module.nodes:
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = "everything" if node.type is None else ast.unparse(node.type)
            if node.type is None or all(isinstance(line, ast.Pass) for line in node.body):
                yield Finding(f"{module.path}: except {caught}", f"{module.path}:{node.lineno} swallows {caught}")


def waits_for_ever(package: Package) -> Iterator[Finding]:
    """No wait without a deadline: each wait, join, get, recv, ... has a timeout, or polls with one before."""
    for module in package:
        for node in (one for one in module.nodes if isinstance(one, ast.Call)):
            whole = ast.unparse(node.func)
            least = ENOUGH.get(whole, ENOUGH.get(f".{whole.rpartition('.')[2]}", 0) if "." in whole else 0)
            if len(node.args) + len(node.keywords) < least:
                yield Finding(f"{module.path}: {ast.unparse(node)}", f"{module.path}:{node.lineno} {ast.unparse(node)}")


def function_lines(package: Package) -> Iterator[Finding]:
    """Functions fit on a screen."""
    for module in package:
        most = row_of(FUNCTION_LINES, module.place)
        for name, node in module.functions:
            if (count := code_lines(node)) > most:
                detail = f"{module.path}:{node.lineno} {name} has {count} lines of at most {most}"
                yield Finding(f"{module.path}: {name}", detail)


def module_lines(package: Package) -> Iterator[Finding]:
    """Modules are read in one sitting."""
    for module in package:
        is_method = module.unit == "methods" and module.name.count(".") == 2
        most = METHOD_LINES if is_method else row_of(MODULE_LINES, module.place)
        if module.num_lines > most:
            yield Finding(module.path, f"{module.path} has {module.num_lines} lines of at most {most}")


def settings(package: Package) -> Iterator[Finding]:
    """A part with many settings is two parts. Records of state (`...State`) are not settings."""
    for module in package.within(PARTS):
        for name, node in module.classes:
            if not is_dataclass(node) or name.endswith("State"):
                continue
            fields = [line for line in node.body if isinstance(line, ast.AnnAssign) and not is_class_variable(line)]
            if len(fields) > SETTINGS:
                detail = f"{module.path}:{node.lineno} {name} has {len(fields)} settings of at most {SETTINGS}"
                yield Finding(f"{module.path}: {name}", detail)


def is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(decorator).split("(")[0] for decorator in node.decorator_list)


def is_class_variable(line: ast.AnnAssign) -> bool:
    return "ClassVar" in ast.unparse(line.annotation)


def class_depth(package: Package) -> Iterator[Finding]:
    """A slot, then a class, then at most one class of ours more. Protocols do not count."""
    slots_last = sorted(package, key=lambda module: is_in(module.place, "core.slots"))  # of two of one name, the slot
    ours = {node.name: node for module in slots_last for _, node in module.classes}

    def depth(node: ast.ClassDef, seen: frozenset[str]) -> int:
        bases = {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
        known = [ours[base] for base in bases if base in ours and base not in seen]
        return ("Protocol" not in bases) + max((depth(base, seen | {base.name}) for base in known), default=0)

    for module in package:
        for name, node in module.classes:
            if (count := depth(node, frozenset({node.name}))) > CLASS_DEPTH:
                detail = f"{module.path}:{node.lineno} {name} is {count} classes deep, at most {CLASS_DEPTH}"
                yield Finding(f"{module.path}: {name}", detail)


def world_identity(package: Package) -> Iterator[Finding]:
    """No identity test on a world: what differs between tasks is a field of the defaults."""
    for module in package:
        for node in module.nodes:
            is_test = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot | ast.Eq | ast.NotEq)
            is_absence = is_test and ast.unparse(node.comparators[0]) == "None"
            if is_test and not is_absence and ast.unparse(node.left).split(".")[-1] in {"world", "defaults"}:
                yield Finding(f"{module.path}: {ast.unparse(node)}", f"{module.path}:{node.lineno} {ast.unparse(node)}")


def model_literals(package: Package) -> Iterator[Finding]:
    """No model's name is written into a part: names are settings with defaults."""
    for module in package.within(PARTS):
        for node in module.nodes:
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and bool(node.args)
            if is_call and node.func.attr == "model" and is_text(node.args[0]) and not module.is_claims:
                yield Finding(f"{module.path}: {ast.unparse(node)}", f"{module.path}:{node.lineno} {ast.unparse(node)}")


def class_attributes(package: Package) -> Iterator[Finding]:
    """No attribute of a class is assigned outside its body."""
    classes = {node.name for module in package for _, node in module.classes} | {"cls"}
    for module in package:
        for node in module.nodes:
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else targets
            for target in (inner for one in targets for inner in getattr(one, "elts", [one])):
                if isinstance(target, ast.Attribute) and is_class(target.value, classes):
                    text = ast.unparse(target)
                    yield Finding(f"{module.path}: {text}", f"{module.path}:{node.lineno} assigns {text}")


def is_class(node: ast.expr, classes: set[str]) -> bool:
    """Whether an expression is a class: its name, `type(x)` or `x.__class__`."""
    text = ast.unparse(node)
    return text in classes or text.startswith("type(") or text.endswith(".__class__")


def cached_parts(package: Package) -> Iterator[Finding]:
    """No function in a part module keeps results from call to call: what is remembered is state, which a run saves."""
    for module in package.within(PARTS):
        for name, node in module.functions:
            cached = {ast.unparse(one).split("(")[0].split(".")[-1] for one in node.decorator_list}
            if cached & {"cache", "lru_cache"}:
                yield Finding(f"{module.path}: {name}", f"{module.path}:{node.lineno} {name} keeps what it computed")


def docstrings(package: Package) -> Iterator[Finding]:
    """Every module, public class, function and method says what it is; a method that implements a function of a slot,
    or overrides that of a base, inherits its docstring.

    The functions of a claims file compute claims; each claim is a sentence already. What the recipes of a method's file
    are, its docstring says.
    """
    slots = [module for module in package if module.name.startswith("assay.core.slots")]
    told = {name.split(".")[-1] for module in slots for name, node in module.functions if ast.get_docstring(node)}
    classes: dict[str, list[ast.ClassDef]] = {}
    for module in package:
        for _, node in module.classes:
            classes.setdefault(node.name, []).append(node)
    for module in package:
        if module.tree.body and not ast.get_docstring(module.tree):
            yield Finding(module.path, f"{module.path} has no docstring")
        elif is_method(module.tree) and not (ast.get_docstring(module.tree) or "").partition("\n")[0].endswith("."):
            yield Finding(module.path, f"{module.path}: lists and pages show its first line, and that is no sentence")
        owners = dict(module.classes)
        for name, node in () if module.is_claims else public(module.tree):
            if ast.get_docstring(node) or is_overload(node) or (module.unit == "methods" and makes_recipe(node)):
                continue
            owner = owners.get(name.rpartition(".")[0])
            if owner is None or node.name not in told | told_by_bases(owner, classes):
                yield Finding(f"{module.path}: {name}", f"{module.path}:{node.lineno} {name} has no docstring")


def is_method(tree: ast.Module) -> bool:
    """Whether a file registers a method."""
    return any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "METHOD" for node in tree.body)


def told_by_bases(owner: ast.ClassDef, classes: Mapping[str, list[ast.ClassDef]]) -> set[str]:
    """The methods with a docstring of all bases of a class that are classes of the package, by their names."""
    bases = [ast.unparse(base).split("[")[0].split(".")[-1] for base in owner.bases]
    found = [node for base in bases if base != owner.name for node in classes.get(base, [])]
    own = {child.name for node in found for child in node.body if isinstance(child, Named) and ast.get_docstring(child)}
    return own.union(*(told_by_bases(node, classes) for node in found))


def public(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, Named]]:
    """Classes, functions and methods whose whole path is without an underscore; nothing inside functions."""
    for child in node.body:
        if isinstance(child, Named) and not child.name.startswith("_"):
            yield prefix + child.name, child
            if isinstance(child, ast.ClassDef):
                yield from public(child, f"{prefix}{child.name}.")


def makes_recipe(node: Named) -> bool:
    """Whether a function returns a recipe or a stage of one."""
    return isinstance(node, ast.FunctionDef) and ast.unparse(node.returns or node) in {"Recipe", "Stage", "Method"}


def is_overload(node: Named) -> bool:
    endings = ("overload", ".setter", ".deleter")
    return any(ast.unparse(decorator).endswith(endings) for decorator in node.decorator_list)


def annotations(package: Package) -> Iterator[Finding]:
    """Every argument has a type."""
    for module in package:
        for name, node in module.functions:
            ordered = node.args.posonlyargs + node.args.args
            given = ordered + node.args.kwonlyargs + [arg for arg in (node.args.vararg, node.args.kwarg) if arg]
            for argument in given:
                if argument.annotation is None and not (argument is given[0] and argument.arg in {"self", "cls"}):
                    detail = f"{module.path}:{node.lineno} {name} does not say the type of {argument.arg}"
                    yield Finding(f"{module.path}: {name}({argument.arg})", detail)


def module_names(package: Package) -> Iterator[Finding]:
    """A module is named by what is in it."""
    for module in package:
        if module.name.split(".")[-1].strip("_") in BANNED_NAMES:
            yield Finding(module.path, f"{module.path}: this name says nothing about what is inside")


def function_names(package: Package) -> Iterator[Finding]:
    """A function is named by what it gives or does, not by a filler."""
    for module in package:
        for name, node in module.functions:
            if node.name.startswith(BANNED_PREFIXES) or re.search(r"_v\d+$", node.name):
                yield Finding(f"{module.path}: {name}", f"{module.path}:{node.lineno} {name} is a filler's name")


def phrases(package: Package) -> Iterator[Finding]:
    """Prose in the field's words: BANNED_PHRASES are not among them."""
    for module in package:
        for number, line in enumerate(module.text.splitlines(), 1):
            for found in BANNED_PHRASES.finditer(line):
                yield Finding(f"{module.path}: {line.strip()}", f"{module.path}:{number} says {found[0]!r}")


RULES: dict[str, Callable[[Package], Iterator[Finding]]] = {
    rule.__name__: rule
    for rule in (
        arrows, mutual_units, cycles, third_parties, private_names, open_arguments, strings_that_select,
        attribute_guesses, swallowed_errors, waits_for_ever, function_lines, module_lines, settings, class_depth,
        world_identity, model_literals, class_attributes, cached_parts, docstrings, annotations, module_names,
        function_names, phrases,
    )
}  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- tests
@pytest.fixture(scope="module")
def package() -> Package:
    return Package(ROOT / "assay")


@pytest.mark.parametrize("rule", RULES)
def test_package_keeps_the_rule(rule: str, package: Package) -> None:
    found = list(dict.fromkeys(RULES[rule](package)))
    excused = EXCEPTIONS.get(rule, {})
    broken = [f"  {finding.detail}\n      key: {finding.key}" for finding in found if finding.key not in excused]
    lasting = {key for key, reason in excused.items() if not reason.startswith("until ")}
    stale = sorted(lasting - {finding.key for finding in found})
    if rule in AT_MOST:
        assert len(broken) <= AT_MOST[rule], f"{rule}: more than {AT_MOST[rule]} breaks\n" + "\n".join(broken)
        if broken:
            pytest.xfail(f"{rule}: {len(broken)} breaks are left")
    assert not broken, f"{rule}: {RULES[rule].__doc__}\n" + "\n".join(broken)
    assert not stale, f"{rule}: these exceptions are no longer needed, remove them: {stale}"


def test_every_exception_names_a_rule_and_a_reason() -> None:
    assert set(EXCEPTIONS) | set(AT_MOST) <= set(RULES)
    assert all(reason.strip() for keys in EXCEPTIONS.values() for reason in keys.values())


def test_arrows_name_only_places_that_exist(package: Package) -> None:
    places = {module.place for module in package}
    assert {place for row in ARROWS.items() for place in (row[0], *row[1])} <= places | {"__init__"}


def source(*lines: str) -> str:
    """A module with a docstring and these lines."""
    return "\n".join(('"""Module."""', *lines, ""))


GO = ("def go() -> None:", '    """Go."""')

GOOD = {
    "__init__.py": source("from assay.runs.run import go"),
    "core/__init__.py": source(),
    "core/record.py": source(),
    "core/slots.py": source(
        "class Credit(Protocol):", '    """C."""', "    def init(self) -> int:", '        """Start."""'
    ),
    "ops/__init__.py": source(),
    "ops/returns.py": source("import torch", "from assay.core.record import X"),
    "parts/__init__.py": source(),
    "parts/credit/__init__.py": source("from .gae import Gae"),
    "parts/credit/gae.py": source(
        "from dataclasses import dataclass", "from assay.ops import returns", "from assay.core.slots import Credit",
        "@dataclass(frozen=True)", "class Gae(Credit):", '    """G."""', "    discount: float = 0.99",
        "    def init(self) -> int:", "        return 0",
        "    def spread(self) -> int:", '        """S."""', "        return 0",
    ),
    "tasks/__init__.py": source(),
    "tasks/adapters/__init__.py": source(*GO, "    import gymnasium"),
    "methods/__init__.py": source(),
    "methods/nsr/__init__.py": source("from assay.methods.nsr import parts", "def recipe() -> Recipe:", "    return 0"),
    "methods/nsr/parts.py": source("from assay.parts.credit import Gae"),
    "engine/__init__.py": source(),
    "engine/loop.py": source(),
    "runs/__init__.py": source(),
    "runs/run.py": source("from assay.methods import nsr", "from assay.ops.returns import y", *GO),
    "claims/__init__.py": source(),
    "claims/nsr.py": source("from assay.methods import nsr", "def one() -> int:", "    return 0", "CLAIMS = Claims()"),
    "report/__init__.py": source("from assay.runs import run", *GO, "    import matplotlib.pyplot"),
}  # fmt: skip
CREDIT = "parts/credit/b.py"
TWO_METHODS = ("    def spread(self) -> int:", "        return 1", "    def go(self) -> int:", "        return 0")
"""The first overrides a method of Gae, which has a docstring."""

# rule -> files that replace or join the good ones, and the keys that must then be found
BAD: dict[str, list[tuple[dict[str, str], set[str]]]] = {
    "arrows": [
        ({CREDIT: source("from assay.engine import loop")}, {"assay.parts.credit.b -> assay.engine.loop"}),
        ({CREDIT: source("from ...runs.run import go")}, {"assay.parts.credit.b -> assay.runs.run"}),
        (
            {"ops/b.py": source(*GO, "    import assay.parts.credit.gae")},
            {"assay.ops.b -> assay.parts.credit.gae"},
        ),
        (
            {"methods/rho/__init__.py": source("from assay.methods import nsr")},
            {"assay.methods.rho -> assay.methods.nsr"},
        ),
        (
            {"methods/rho/parts.py": source("from assay.methods.nsr.parts import Gae")},
            {"assay.methods.rho.parts -> assay.methods.nsr.parts"},
        ),
        ({"runs/b.py": source("from assay import go")}, {"assay.runs.b -> assay"}),
        ({"runs/b.py": source("from assay.report import draw")}, {"assay.runs.b -> assay.report"}),
        ({"runs/b.py": source("from assay.claims import nsr")}, {"assay.runs.b -> assay.claims.nsr"}),
        ({"methods/b.py": source("from assay.claims import Exact")}, {"assay.methods.b -> assay.claims"}),
        ({"models/b.py": source("from assay.rollouts import text")}, {"assay.models.b -> assay.rollouts"}),
        ({"stray.py": source()}, {"stray"}),
    ],
    "mutual_units": [
        ({"core/b.py": source("from assay.ops import returns")}, {"core <-> ops"}),
        ({"runs/b.py": source(*GO, "    from assay import report")}, {"report <-> runs"}),
    ],
    "cycles": [
        (
            {"ops/a.py": source("from assay.ops import b"), "ops/b.py": source(*GO, "    from . import a")},
            {"assay.ops.a <-> assay.ops.b"},
        ),
        (
            {"parts/credit/gae.py": source("from assay.parts.credit import X")},
            {"assay.parts.credit <-> assay.parts.credit.gae"},
        ),
    ],
    "third_parties": [
        ({"tasks/adapters/b.py": source("import gymnasium")}, {"assay/tasks/adapters/b.py: gymnasium"}),
        ({"tasks/b.py": source(*GO, "    import gymnasium")}, {"assay/tasks/b.py: gymnasium"}),
        ({"tasks/b.py": source(*GO, "    x = require('h5py', 'data')")}, {"assay/tasks/b.py: h5py"}),
        ({"runs/run.py": source(*GO, "    import ray")}, {"assay/runs/run.py: ray"}),
        ({"runs/run.py": source("import scipy.stats")}, {"assay/runs/run.py: scipy"}),
        ({"runs/run.py": source("from torch import distributed")}, {"assay/runs/run.py: torch.distributed"}),
        (
            {"runs/run.py": source("import torch", "x = torch.distributed.get_rank()")},
            {"assay/runs/run.py: torch.distributed"},
        ),
    ],
    "private_names": [
        ({CREDIT: source("from assay.parts.credit.gae import _scale")}, {"assay/parts/credit/b.py: _scale"}),
    ],
    "open_arguments": [
        ({CREDIT: source("def f(**kwargs: int) -> None:", '    """F."""')}, {"assay/parts/credit/b.py: f"}),
    ],
    "strings_that_select": [
        ({CREDIT: source("x = kind == 'gae'")}, {"assay/parts/credit/b.py: kind == 'gae'"}),
        ({"engine/loop.py": source("x = kind in ('a', 'b')")}, {"assay/engine/loop.py: kind in ('a', 'b')"}),
        (
            {"engine/loop.py": source("match kind:", "    case 'a':", "        x = 1")},
            {"assay/engine/loop.py: case 'a'"},
        ),
    ],
    "attribute_guesses": [
        ({"runs/run.py": source("x = hasattr(run, 'go')")}, {"assay/runs/run.py: hasattr(run, 'go')"}),
    ],
    "swallowed_errors": [
        (
            {"runs/run.py": source("try:", "    x = 1", "except:", "    x = 2")},
            {"assay/runs/run.py: except everything"},
        ),
        (
            {"runs/run.py": source("try:", "    x = 1", "except OSError:", "    pass")},
            {"assay/runs/run.py: except OSError"},
        ),
    ],
    "waits_for_ever": [
        ({"runs/run.py": source("x = pipe.recv()", "y = ','.join(words)")}, {"assay/runs/run.py: pipe.recv()"}),
        ({"runs/run.py": source("process.join()", "process.join(1.0)")}, {"assay/runs/run.py: process.join()"}),
        ({"runs/run.py": source("event.wait()", "event.wait(timeout=1)")}, {"assay/runs/run.py: event.wait()"}),
        ({"runs/run.py": source("x = queue.get()", "y = table.get(1)")}, {"assay/runs/run.py: queue.get()"}),
        ({"runs/run.py": source("ray.get(one)", "ray.get(one, timeout=9)")}, {"assay/runs/run.py: ray.get(one)"}),
        ({"runs/run.py": source("wait([pipe])", "wait([pipe], 2.0)")}, {"assay/runs/run.py: wait([pipe])"}),
    ],
    "function_lines": [
        ({CREDIT: source(*GO, *["    x = 1"] * 40)}, {"assay/parts/credit/b.py: go"}),
        ({"methods/nsr/b.py": source(*GO, *["    x = 1"] * 40)}, {"assay/methods/nsr/b.py: go"}),
    ],
    "module_lines": [
        ({CREDIT: source(*["x = 1"] * 200)}, {"assay/parts/credit/b.py"}),
        ({"methods/nsr/__init__.py": source(*["x = 1"] * 320)}, {"assay/methods/nsr/__init__.py"}),
    ],
    "settings": [
        (
            {CREDIT: source("@dataclass", "class Many:", '    """M."""', *(f"    x{i}: int" for i in range(7)))},
            {"assay/parts/credit/b.py: Many"},
        ),
    ],
    "class_depth": [
        (
            {CREDIT: source("class Deep(Gae):", '    """D."""', "class Deeper(Deep):", '    """E."""')},
            {"assay/parts/credit/b.py: Deeper"},
        ),
    ],
    "world_identity": [
        ({"runs/run.py": source("x = 1 if world is TABLE else 2")}, {"assay/runs/run.py: world is TABLE"}),
        ({CREDIT: source("x = self.world != TABLE")}, {"assay/parts/credit/b.py: self.world != TABLE"}),
    ],
    "model_literals": [
        ({CREDIT: source("x = view.model('q')", "y = view.model(name)")}, {"assay/parts/credit/b.py: view.model('q')"}),
    ],
    "class_attributes": [
        ({CREDIT: source(*GO, "    Gae.discount = 0.9")}, {"assay/parts/credit/b.py: Gae.discount"}),
        ({CREDIT: source(*GO, "    type(x).y += 1")}, {"assay/parts/credit/b.py: type(x).y"}),
    ],
    "cached_parts": [
        ({CREDIT: source("@lru_cache(maxsize=8)", *GO)}, {"assay/parts/credit/b.py: go"}),
        ({"methods/nsr/b.py": source("@functools.cache", *GO)}, {"assay/methods/nsr/b.py: go"}),
    ],
    "docstrings": [
        (
            {CREDIT: "def f() -> None:\n    pass\n"},
            {"assay/parts/credit/b.py", "assay/parts/credit/b.py: f"},
        ),
        (
            {CREDIT: source("class A:", '    """A."""', "    def go(self) -> None:", "        pass")},
            {"assay/parts/credit/b.py: A.go"},
        ),
        (
            {CREDIT: source("from .gae import Gae", "class A(Gae):", '    """A."""', *TWO_METHODS)},
            {"assay/parts/credit/b.py: A.go"},
        ),
    ],
    "annotations": [({CREDIT: source("def f(x) -> None:", '    """F."""')}, {"assay/parts/credit/b.py: f(x)"})],
    "module_names": [({"ops/utils.py": source()}, {"assay/ops/utils.py"})],
    "function_names": [
        ({CREDIT: source("def process_x() -> None:", '    """P."""')}, {"assay/parts/credit/b.py: process_x"}),
        ({CREDIT: source("def f_v2() -> None:", '    """F."""')}, {"assay/parts/credit/b.py: f_v2"}),
    ],
    "phrases": [({CREDIT: source("# mend it")}, {"assay/parts/credit/b.py: # mend it"})],
}


def written(folder: Path, files: dict[str, str]) -> Package:
    for name, text in files.items():
        path = folder / "assay" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Package(folder / "assay")


@pytest.mark.parametrize("rule", RULES)
def test_rule_is_silent_on_a_good_package(rule: str, tmp_path: Path) -> None:
    assert list(RULES[rule](written(tmp_path, GOOD))) == []


@pytest.mark.parametrize(("rule", "number"), [(rule, number) for rule in RULES for number in range(len(BAD[rule]))])
def test_rule_finds_a_break(rule: str, number: int, tmp_path: Path) -> None:
    files, keys = BAD[rule][number]
    assert {finding.key for finding in RULES[rule](written(tmp_path, GOOD | files))} == keys
