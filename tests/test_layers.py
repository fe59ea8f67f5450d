"""The shape of the package, held by a walk over its syntax trees: import arrows, sizes, names, docstrings.

The tables come first and are meant to be edited. A unit is a top-level module or folder of `assay`. What rightly breaks
a rule stands in EXCEPTIONS with its reason; an exception that is no longer needed fails too. Folders that do not exist
are no failure, a unit that ARROWS does not name is one.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# ------------------------------------------------------------------------------------------------------------- tables
PARTS = {
    "actors", "constraints", "credit", "critics", "curricula", "objectives", "regularizers", "rewards", "rollouts",
    "sources",
}  # fmt: skip
BASICS = {"types", "slots", "ops", "reduce"}
ANYTHING = {"*"}
DOORS = {"cli", "commands", "report", "__init__"}  # `*` does not include these: nothing below may know who shows it

ARROWS: dict[str, set[str]] = {
    "version": set(),
    "types": set(),
    "store": {"types"},
    "ops": {"types"},
    "slots": {"types"},
    "networks": {"types", "ops"},
    "reduce": {"types", "slots", "ops"},
    "schedules": {"types"},
    "optimizers": {"types", "slots"},
    "boosting": {"types", "slots", "ops", "optimizers"},
    "sampling": {"types", "networks", "ops"},
    **{part: BASICS | {"networks", "sampling"} for part in PARTS},
    "settings": {"types"},
    "recipe": {"types", "slots", "ops", "optimizers", "settings"},
    "worlds": BASICS | PARTS | {"recipe", "schedules", "optimizers"},
    "bases": BASICS | PARTS | {"recipe", "schedules", "worlds", "optimizers", "boosting", "datasets"},
    "tasks": BASICS | PARTS | {"recipe", "sampling"},
    "probes": BASICS | PARTS | {"networks", "recipe", "engine", "boosting", "tasks"},
    "claims": {"types", "recipe", "worlds", "tasks", "probes", "evidence"},
    "methods": PARTS
    | {"types", "reduce", "recipe", "optimizers", "boosting", "schedules", "bases", "worlds", "probes", "claims"}
    | {"datasets"},
    "flat": {"types", "slots"},
    "batching": {"types", "ops"},
    "placement": {"slots"},
    "engine": {"types", "slots", "ops", "recipe", "flat", "batching", "optimizers", "placement"},
    "guards": {"types", "slots", "ops", "recipe"},
    "logs": {"types", "store"},
    "memory": {"types", "settings"},
    "loop": {"types", "slots", "ops", "recipe", "engine", "guards", "store", "logs", "sampling", "memory"},
    "datasets": BASICS | PARTS | {"recipe", "settings", "worlds", "loop", "evaluation", "store", "backends", "version"},
    "backends": {"types", "slots", "ops", "tasks", "networks"},
    "evaluation": {"types", "slots"},
    "catalogue": ANYTHING,
    "plan": ANYTHING,
    "discover": ANYTHING,
    "checks": ANYTHING,
    "evidence": ANYTHING,
    "report": ANYTHING,
    "signals": {"types"},
    "run": ANYTHING | {"report"},
    "jobs": ANYTHING | {"report"},
    "stacking": ANYTHING | {"report"},
    "comparison": ANYTHING,
    "fingerprints": ANYTHING,
    "verdicts": ANYTHING,
    "search": ANYTHING,
    "judging": {"types", "slots", "networks", "recipe", "rewards", "bases", "loop", "backends"},
    "data_commands": ANYTHING | {"report"},
    "commands": ANYTHING | {"report"},
    "cli": ANYTHING | {"commands", "report", "__init__"},
    "__main__": {"cli"},
    "__init__": ANYTHING,
}
ALONE = {"methods"}  # units whose modules may not import each other

HARD = {"torch", "numpy", "safetensors", "rich"}
OPTIONAL: dict[str, set[str]] = {  # package -> the units that may import it, inside functions only
    "matplotlib": {"report"},
    "triton": {"sampling", "ops"},
    **{
        name: {"backends"}
        for name in (
            "gymnasium", "mujoco", "minari", "h5py", "transformers", "tokenizers", "peft", "accelerate", "gguf", "ray",
            "vllm", "wandb", "tensorboard", "torch.utils.tensorboard", "torch.distributed", "reasoning_gym",
        )
    },
}  # fmt: skip

FUNCTION_LINES = {"*": 60, **dict.fromkeys(PARTS, 40), "methods": 40, "loop": 80}  # without the docstring
MODULE_LINES = {"*": 400, **dict.fromkeys(PARTS, 200), "methods": 80}
SETTINGS = 6
CLASS_DEPTH = 2
BANNED_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "misc", "data"}
BLIND_TO_NAMES = PARTS | {"reduce", "loop", "engine"}  # where no string may select behaviour

# rule -> key as the failure prints it -> why this is right
EXCEPTIONS: dict[str, dict[str, str]] = {
    "third_parties": {
        "assay/sampling/triton_draws.py: triton": "kernels; only a function imports this module",
        "assay/sampling/triton_draws.py: triton.language": "kernels; only a function imports this module",
        "assay/sampling/triton_kernels.py: triton": "kernels; only a function imports this module",
        "assay/sampling/triton_kernels.py: triton.language": "kernels; only a function imports this module",
        "assay/ops/triton_output.py: triton": "kernels; only a function imports this module",
        "assay/ops/triton_output.py: triton.language": "kernels; only a function imports this module",
        "assay/ops/triton_output.py: triton.tools.tensor_descriptor": "kernels; only a function imports this module",
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

    def within(self, units: set[str]) -> Iterator[Module]:
        return (module for module in self if module.unit in units)

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
                dotted = ast.unparse(node)
                if dotted in OPTIONAL:
                    yield Arrow(dotted, node.lineno, deferred)

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
        else:
            yield from named(child, prefix)


def with_deferral(node: ast.AST, deferred: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Every node, and whether it sits in a function or under TYPE_CHECKING."""
    yield node, deferred
    for child in ast.iter_child_nodes(node):
        later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and child in node.body
        )
        yield from with_deferral(child, deferred or later)


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


def limit(table: dict[str, int], unit: str) -> int:
    return table.get(unit, table["*"])


# -------------------------------------------------------------------------------------------------------------- rules
def arrows(package: Package) -> Iterator[Finding]:
    """A unit imports only what ARROWS gives it."""
    for module in package:
        if module.unit not in ARROWS:
            yield Finding(module.unit, f"{module.path}: unit {module.unit!r} has no row in ARROWS")
            continue
        allowed = ARROWS[module.unit]
        for arrow in package.arrows[module.name]:
            if arrow.target.split(".")[0] != "assay" or arrow.target == module.name:
                continue
            unit = unit_of(arrow.target)
            same = unit == module.unit and (unit not in ALONE or module.is_package)
            if same or unit in allowed or ("*" in allowed and unit not in DOORS):
                continue
            yield Finding(f"{module.name} -> {arrow.target}", f"{module.path}:{arrow.line} imports {arrow.target}")


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
            elif module.unit not in homes:
                yield Finding(key, f"{where} uses {arrow.target}, which belongs to {', '.join(sorted(homes))}")
            elif not arrow.deferred:
                yield Finding(key, f"{where} imports {arrow.target} outside a function")


def prefixes(dotted: str) -> Iterator[str]:
    """The name and its parents, longest first."""
    parts = dotted.split(".")
    return (".".join(parts[:end]) for end in range(len(parts), 0, -1))


def private_names(package: Package) -> Iterator[Finding]:
    """No module imports another module's underscore name."""
    for module in package:
        for node in ast.walk(module.tree):
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
    """No comparison with a string literal where parts, loop and engine live."""
    for module in package.within(BLIND_TO_NAMES):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Compare) and selects(node):
                literal = ast.unparse(node)
            elif isinstance(node, ast.MatchValue) and is_text(node.value):
                literal = f"case {ast.unparse(node)}"
            else:
                continue
            yield Finding(f"{module.path}: {literal}", f"{module.path}:{node.lineno} compares: {literal}")


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
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hasattr":
                call = ast.unparse(node)
                yield Finding(f"{module.path}: {call}", f"{module.path}:{node.lineno} {call}")


def swallowed_errors(package: Package) -> Iterator[Finding]:
    """No bare except, and nothing caught only to be ignored."""
    for module in package:
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = "everything" if node.type is None else ast.unparse(node.type)
            if node.type is None or all(isinstance(line, ast.Pass) for line in node.body):
                yield Finding(f"{module.path}: except {caught}", f"{module.path}:{node.lineno} swallows {caught}")


def function_lines(package: Package) -> Iterator[Finding]:
    """Functions fit on a screen."""
    for module in package:
        most = limit(FUNCTION_LINES, module.unit)
        for name, node in module.functions:
            if (count := code_lines(node)) > most:
                detail = f"{module.path}:{node.lineno} {name} has {count} lines of at most {most}"
                yield Finding(f"{module.path}: {name}", detail)


def module_lines(package: Package) -> Iterator[Finding]:
    """Modules are read in one sitting."""
    for module in package:
        most = limit(MODULE_LINES, module.unit)
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
    """Protocol, then final: no class inherits from a class of ours that inherits from a class of ours."""
    ours = {node.name: node for module in package for _, node in module.classes}

    def depth(node: ast.ClassDef, seen: frozenset[str]) -> int:
        bases = {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
        known = [ours[base] for base in bases if base in ours and base not in seen]
        return 1 + max((depth(base, seen | {base.name}) for base in known), default=0)

    for module in package:
        for name, node in module.classes:
            if (count := depth(node, frozenset({node.name}))) > CLASS_DEPTH:
                detail = f"{module.path}:{node.lineno} {name} is {count} classes deep, at most {CLASS_DEPTH}"
                yield Finding(f"{module.path}: {name}", detail)


def docstrings(package: Package) -> Iterator[Finding]:
    """Every module, public class, function and method says what it is; for a slot's methods the slots may say it.

    The functions of a method file compute its claims; each claim is a sentence already.
    """
    slots = [module for module in package if module.name.startswith("assay.core.slots")]
    told = {name.split(".")[-1] for module in slots for name, node in module.functions if ast.get_docstring(node)}
    for module in package:
        if module.tree.body and not ast.get_docstring(module.tree):
            yield Finding(module.path, f"{module.path} has no docstring")
        for name, node in () if "/methods/" in str(module.path) else public(module.tree):
            if not ast.get_docstring(node) and not ("." in name and node.name in told) and not is_overload(node):
                yield Finding(f"{module.path}: {name}", f"{module.path}:{node.lineno} {name} has no docstring")


def public(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, Named]]:
    """Classes, functions and methods whose whole path is without an underscore; nothing inside functions."""
    for child in node.body:
        if isinstance(child, Named) and not child.name.startswith("_"):
            yield prefix + child.name, child
            if isinstance(child, ast.ClassDef):
                yield from public(child, f"{prefix}{child.name}.")


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


RULES: dict[str, Callable[[Package], Iterator[Finding]]] = {
    rule.__name__: rule
    for rule in (
        arrows, cycles, third_parties, private_names, open_arguments, strings_that_select, attribute_guesses,
        swallowed_errors, function_lines, module_lines, settings, class_depth, docstrings, annotations, module_names,
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
    stale = sorted(set(excused) - {finding.key for finding in found})
    assert not broken, f"{rule}: {RULES[rule].__doc__}\n" + "\n".join(broken)
    assert not stale, f"{rule}: these exceptions are no longer needed, remove them: {stale}"


def test_every_exception_names_a_rule_and_a_reason() -> None:
    assert set(EXCEPTIONS) <= set(RULES)
    assert all(reason.strip() for keys in EXCEPTIONS.values() for reason in keys.values())


def test_arrows_name_only_units_of_the_table() -> None:
    assert {unit for allowed in ARROWS.values() for unit in allowed} <= set(ARROWS) | ANYTHING


def source(*lines: str) -> str:
    """A module with a docstring and these lines."""
    return "\n".join(('"""Module."""', *lines, ""))


GO = ("def go() -> None:", '    """Go."""')

GOOD = {
    "__init__.py": source("from assay.runs.run import go"),
    "types.py": source(),
    "slots.py": source(
        "class Credit(Protocol):", '    """C."""', "    def init(self) -> int:", '        """Start."""'
    ),
    "ops/__init__.py": source(),
    "ops/returns.py": source("import torch", "from assay.core.record import X"),
    "credit/__init__.py": source("from .gae import Gae"),
    "credit/gae.py": source(
        "from dataclasses import dataclass", "from assay.ops import returns", "from assay.core.slots import Credit",
        "@dataclass(frozen=True)", "class Gae(Credit):", '    """G."""', "    discount: float = 0.99",
        "    def init(self) -> int:", "        return 0",
    ),
    "backends/__init__.py": source(*GO, "    import gymnasium"),
    "methods/__init__.py": source(),
    "methods/nsr.py": source("from assay.credit import Gae"),
    "run.py": source("from assay import report", "from assay.ops.returns import y", *GO),
    "report/__init__.py": source(*GO, "    import matplotlib.pyplot"),
}  # fmt: skip

# rule -> files that replace or join the good ones, and the keys that must then be found
BAD: dict[str, list[tuple[dict[str, str], set[str]]]] = {
    "arrows": [
        ({"credit/gae.py": source("from assay.actors import mlp")}, {"assay.credit.gae -> assay.actors"}),
        ({"credit/gae.py": source("from ..run import go")}, {"assay.credit.gae -> assay.runs.run"}),
        ({"ops/b.py": source(*GO, "    import assay.credit.gae")}, {"assay.ops.b -> assay.credit.gae"}),
        ({"methods/rho.py": source("from assay.methods import nsr")}, {"assay.methods.rho -> assay.methods.nsr"}),
        ({"checks.py": source("from assay import go")}, {"assay.proof.laws -> assay"}),
        ({"checks.py": source("from assay.app.report import draw")}, {"assay.proof.laws -> assay.app.report"}),
        ({"stray.py": source()}, {"stray"}),
    ],
    "cycles": [
        (
            {"ops/a.py": source("from assay.ops import b"), "ops/b.py": source(*GO, "    from . import a")},
            {"assay.ops.a <-> assay.ops.b"},
        ),
        ({"credit/gae.py": source("from assay.credit import X")}, {"assay.credit <-> assay.credit.gae"}),
    ],
    "third_parties": [
        ({"backends/b.py": source("import gymnasium")}, {"assay/backends/b.py: gymnasium"}),
        ({"run.py": source(*GO, "    import ray")}, {"assay/runs/run.py: ray"}),
        ({"run.py": source("import scipy.stats")}, {"assay/runs/run.py: scipy"}),
        ({"run.py": source("from torch import distributed")}, {"assay/runs/run.py: torch.distributed"}),
        (
            {"run.py": source("import torch", "x = torch.distributed.get_rank()")},
            {"assay/runs/run.py: torch.distributed"},
        ),
    ],
    "private_names": [
        ({"credit/b.py": source("from assay.credit.gae import _scale")}, {"assay/credit/b.py: _scale"}),
    ],
    "open_arguments": [
        ({"credit/b.py": source("def f(**kwargs: int) -> None:", '    """F."""')}, {"assay/credit/b.py: f"}),
    ],
    "strings_that_select": [
        ({"credit/b.py": source("x = kind == 'gae'")}, {"assay/credit/b.py: kind == 'gae'"}),
        ({"loop.py": source("x = kind in ('a', 'b')")}, {"assay/engine/loop.py: kind in ('a', 'b')"}),
        ({"loop.py": source("match kind:", "    case 'a':", "        x = 1")}, {"assay/engine/loop.py: case 'a'"}),
    ],
    "attribute_guesses": [({"run.py": source("x = hasattr(run, 'go')")}, {"assay/runs/run.py: hasattr(run, 'go')"})],
    "swallowed_errors": [
        ({"run.py": source("try:", "    x = 1", "except:", "    x = 2")}, {"assay/runs/run.py: except everything"}),
        ({"run.py": source("try:", "    x = 1", "except OSError:", "    pass")}, {"assay/runs/run.py: except OSError"}),
    ],
    "function_lines": [({"credit/b.py": source(*GO, *["    x = 1"] * 40)}, {"assay/credit/b.py: go"})],
    "module_lines": [({"credit/b.py": source(*["x = 1"] * 200)}, {"assay/credit/b.py"})],
    "settings": [
        (
            {"credit/b.py": source("@dataclass", "class Many:", '    """M."""', *(f"    x{i}: int" for i in range(7)))},
            {"assay/credit/b.py: Many"},
        ),
    ],
    "class_depth": [({"credit/b.py": source("class Deep(Gae):", '    """D."""')}, {"assay/credit/b.py: Deep"})],
    "docstrings": [
        ({"credit/b.py": "def f() -> None:\n    pass\n"}, {"assay/credit/b.py", "assay/credit/b.py: f"}),
        (
            {"credit/b.py": source("class A:", '    """A."""', "    def go(self) -> None:", "        pass")},
            {"assay/credit/b.py: A.go"},
        ),
    ],
    "annotations": [({"credit/b.py": source("def f(x) -> None:", '    """F."""')}, {"assay/credit/b.py: f(x)"})],
    "module_names": [({"ops/utils.py": source()}, {"assay/ops/utils.py"})],
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
