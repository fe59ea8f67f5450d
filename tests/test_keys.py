"""Adding a method changes its own file, its claims and its record: nothing shared names it.

For every key of `assay/methods/`, a walk over the syntax trees of all that is shared (the package without methods and
without the claims of methods) looks for the key, the classes that its file defines, the columns that only its parts
declare, and the metrics that only it logs. What rightly names a method is in NAMED with its reason; an entry that is no
longer needed fails too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from assay import recipes
from assay.claims import discover
from assay.core.columns import GIVEN
from assay.recipes.families import FAMILIES
from assay.runs import method_index

ROOT = Path(__file__).resolve().parents[1] / "assay"
PROOF = ("laws", "mutants", "probes")  # folders of claims that are shared; testbeds and systems belong to claims

# ------------------------------------------------------------------------------------------------------------- tables
BASES = {name.replace("-", "_") for name in recipes.__all__}
"""Base recipes: their names are words that any message may use, as `ppo` in "Try ppo"."""

ORDINARY = {"real", "int"}
"""Keys that are words of English or of Python: prose and code may use them."""

EXAMPLE = "an example of the methods that can do what was asked"
NAMED: dict[str, str] = {
    "dual_rl in datasets/recorded.py": EXAMPLE,
    "ota in datasets/recorded.py": EXAMPLE,
    "zero_shot_rl in datasets/recorded.py": EXAMPLE,
    "zero_shot_rl in runs/zero_shot.py": EXAMPLE,
    "zero_shot_rl in recipes/forward_backward.py": "a base recipe whose runs have this name",
    "rlpd in method.pyi": "the base recipe of this name, which wsrl takes too",
    "rlpd in recipes/rlpd.py": "the base recipe of this name, which wsrl takes too",
    "safe_rl_review in recipes/constrained.py": "a base recipe, called safe_ppo there, whose runs have this name",
    "envpool in runs/catalogue.py": "the prefix of tasks of the package EnvPool",
    "envpool in runs/library_versions.py": "the package EnvPool, whose version a run records",
    "envpool in tasks/adapters/envpool.py": "the package EnvPool",
    **{f"d4rl in {file}.py": "the suite of settings of this name, for files of MuJoCo tasks"
       for file in ("recipes/conservative", "recipes/presets", "runs/options/training", "runs/resolved", "runs/run")},
    "d4rl in statistics/references.py": "the benchmark whose published references these are",
    "gkd in runs/teachers.py": "errors that name the method for a teacher alone",
    "reward_model in runs/options/own.py": "the option --reward-model",
    "reward_model in runs/keywords.py": "the option --reward-model",
    "score in runs/planner.py": "a kind of call: a model scores what was generated",
    "reward_model in runs/plan.py": "the option --reward-model",
    "reward_model in runs/user_code/reward_model.py": "the option --reward-model",
    "Finished in runs/worker.py": "a word of a sentence",
    "score in report/paper.py": "the result of a run, not the metric of a loss",
    "score in datasets/files.py": "the score of the agent that made the data, in their description",
    "right_signs in report/units.py": "until a measured claim states the unit of its metric",
    **{f"{name} in {file}": "the optimizers with traces and averages state there which metrics they read"
       for file, names in (
           ("core/optimizers.py", ("td_error", "trace_cut", "episode_over")),
           ("claims/laws/optimizer.py", ("td_error", "episode_over", "samples")),
       ) for name in names},
}  # fmt: skip
"""'NAME in FILE': why a shared file names it."""


# ------------------------------------------------------------------------------------------------------------ walking
def own_files() -> dict[str, list[Path]]:
    """Returns the files of each method, by key."""
    found = (path for path in sorted((ROOT / "methods").iterdir()) if not path.name.startswith("__"))
    return {path.stem: [path] if path.is_file() else sorted(path.rglob("*.py")) for path in found}


def is_shared(path: Path) -> bool:
    """Returns whether a file belongs to no method."""
    unit, *rest = path.relative_to(ROOT).parts
    return unit != "methods" and (unit != "claims" or (len(rest) > 1 and rest[0] in PROOF))


@cache
def tree_of(path: Path) -> ast.Module:
    """Returns the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def shared_files() -> tuple[Path, ...]:
    """Returns the files that no method owns, lists of names included."""
    return tuple(path for path in sorted(ROOT.rglob("*.py*")) if path.suffix in (".py", ".pyi") and is_shared(path))


def docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yields strings that are statements: docstrings of modules, classes, functions and constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


@cache
def code_words(path: Path) -> frozenset[str]:
    """Returns the identifiers of a file, the words of its strings, and in its docstrings those in backticks and those
    of several parts (ClipHigher): others may be ordinary words.
    """
    tree, prose = tree_of(path), "\n".join(str(one.value) for one in docstrings(tree_of(path)))
    hidden = {id(one) for one in docstrings(tree)}
    found = set(re.findall(r"`(\w+)", prose)) | set(re.findall(r"\b[A-Z][a-z0-9]+[A-Z]\w*", prose))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and not ast.unparse(node).startswith("torch."):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found |= {*node.name.split("."), node.asname or ""}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in hidden:
            found |= set(re.findall(r"\w+", node.value))
    return frozenset(found)


def defined(path: Path) -> set[str]:
    """Returns the names that a file defines at its top."""
    found = set()
    for node in tree_of(path).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id for one in targets if isinstance(one, ast.Name)}
    return found


def classes(path: Path) -> set[str]:
    """Returns the names of a file's classes."""
    return {node.name for node in tree_of(path).body if isinstance(node, ast.ClassDef)}


def texts(*nodes: ast.AST | None) -> set[str]:
    """Returns those of the nodes that are strings; of a tuple or mapping its elements or keys."""
    found = set()
    for node in nodes:
        listed = node.elts if isinstance(node, ast.Tuple | ast.Set | ast.List) else [node]
        inner = node.keys if isinstance(node, ast.Dict) else listed
        found |= {str(one.value) for one in inner if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return found - {""}


@cache
def columns_used(path: Path) -> frozenset[str]:
    """Returns the names that a file uses as columns: x.extra["a"], x.extra.get("a"), "a" in x.extra, x.column("a"),
    x.add({"a": ...}), and what `reads`, `writes` and `fills` name.
    """
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Subscript) and is_attribute(node.value, "extra"):
            found |= texts(node.slice)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_get = node.func.attr == "get" and is_attribute(node.func.value, "extra")
            found |= texts(*node.args[:1]) if is_get or node.func.attr in ("column", "add") else set()
        elif isinstance(node, ast.Compare) and any(is_attribute(one, "extra") for one in node.comparators):
            found |= texts(node.left)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found |= texts(node.value) if node.target.id in ("reads", "writes", "fills", "column") else set()
    return frozenset(found)


def is_attribute(node: ast.AST, name: str) -> bool:
    """Returns whether a node is x.name."""
    return isinstance(node, ast.Attribute) and node.attr == name


@cache
def metrics_logged(path: Path) -> frozenset[str]:
    """Returns the names of metrics that a file logs: scene.log("a", ...), {"a": (sum, count)}, and the metrics of
    Regressed(loss, value, {"a": ...}).
    """
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and is_attribute(node.func, "log"):
            found |= texts(*node.args[:1])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Regressed":
            found |= texts(*node.args[2:])
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            found |= texts(*(key for key, value in pairs if isinstance(value, ast.Tuple) and len(value.elts) == 2))
    return frozenset(found)


@cache
def metrics_used(path: Path) -> frozenset[str]:
    """Returns the names that a file may use as metrics: metrics["a"], metrics.get("a"), "a" in metrics, tables of its
    top level, and every string of several words (a_b).
    """
    tree, hidden = tree_of(path), {id(one) for one in docstrings(tree_of(path))}
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in hidden]
    found = {node.value for node in nodes if isinstance(node.value, str) and "_" in node.value}
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and is_metrics(node.value):
            found |= texts(node.slice)
        elif isinstance(node, ast.Call) and is_attribute(node.func, "get") and is_metrics(node.func.value):
            found |= texts(*node.args[:1])
        elif isinstance(node, ast.Compare) and any(map(is_metrics, node.comparators)):
            found |= texts(node.left)
    tops = (node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None)
    named = (node for node in tops if not ast.unparse(node).startswith("__all__"))
    tables = (node.value for node in named if not isinstance(node.value, ast.Constant))
    return frozenset(found.union(*map(texts, tables)))


def is_metrics(node: ast.AST) -> bool:
    """Returns whether a node is `metrics` or x.metrics."""
    return is_attribute(node, "metrics") or (isinstance(node, ast.Name) and node.id == "metrics")


# -------------------------------------------------------------------------------------------------------------- rules
def keys_named() -> Iterator[str]:
    """Yields shared files that name a key, in code or prose."""
    keys = own_files().keys() - BASES - ORDINARY
    for path in shared_files():
        words = set(re.findall(r"(?<![\w.-])[a-z]\w*(?:-\w+)*(?![\w-])", path.read_text(encoding="utf-8")))
        yield from (entry(key, path) for key in sorted(keys & {word.replace("-", "_") for word in words}))


def classes_named() -> Iterator[str]:
    """Yields shared files that name a class of a method's file, unless something shared has the same name."""
    shared = set().union(*map(defined, shared_files()))
    for files in own_files().values():
        for name in sorted(set().union(*map(classes, files)) - shared):
            yield from (entry(name, path) for path in shared_files() if name in code_words(path))


def own_columns() -> Mapping[str, str]:
    """Returns the columns that parts of one method alone declare, with its key."""
    owners: dict[str, set[str]] = {}
    for one in discover.declarations():
        unit, *rest = one.cls.__module__.split(".")[1:]
        owners.setdefault(one.column, set()).add(rest[0] if unit == "methods" else "")
    return {column: min(keys) for column, keys in owners.items() if len(keys) == 1 and "" not in keys}


def columns_named() -> Iterator[str]:
    """Yields shared files that use a column of one method."""
    own = own_columns()
    for path in shared_files():
        yield from (entry(name, path) for name in sorted(own.keys() & columns_used(path)))
    yield from (f"{name} in GIVEN" for name in sorted(own.keys() & GIVEN.keys()))


def metrics_named() -> Iterator[str]:
    """Yields shared files that name a metric which one method alone logs."""
    shared = set().union(*map(metrics_logged, shared_files()))
    for files in own_files().values():
        for name in sorted(set().union(*map(metrics_logged, files)) - shared):
            yield from (entry(name, path) for path in shared_files() if name in metrics_used(path))


def entry(name: str, path: Path) -> str:
    """Returns the key of NAMED."""
    return f"{name} in {path.relative_to(ROOT).as_posix()}"


RULES = {rule.__name__: rule for rule in (keys_named, classes_named, columns_named, metrics_named)}


@cache
def found_by(rule: str) -> tuple[str, ...]:
    """Returns what a rule finds, each once."""
    return tuple(dict.fromkeys(RULES[rule]()))


# -------------------------------------------------------------------------------------------------------------- tests
@pytest.mark.parametrize("rule", RULES)
def test_nothing_shared_names_a_method(rule: str) -> None:
    found = [one for one in found_by(rule) if one not in NAMED]
    fix = "let the method's own parts declare it, or state the reason in NAMED"
    assert not found, f"{RULES[rule].__doc__}\n" + "\n".join(found) + f"\n{fix}"


def test_every_reason_is_needed() -> None:
    found = {one for rule in RULES for one in found_by(rule)}
    assert NAMED.keys() <= found, f"no longer named: {sorted(NAMED.keys() - found)}"
    assert all(reason.strip() for reason in NAMED.values())


SHARED = '''
"""Reads the column `clip_range` of ElasticRange, and Distinct words."""
BESIDE = ("intervened",)
TABLE = {"left": 1}
share = moment.metrics.get("gain") or step.metrics["solved"] or "lessons" in metrics or f("beyond_bins")
found = batch.extra["left"] + batch.extra.get("mode") + batch.column("probe") + f("prefix")
is_there, marked = "dropped" in batch.extra, batch.add({"balance": 1})
kind = Overseen() if type(part).__name__ == "ElasticRange" else torch.Without
class Part:
    reads: ClassVar[Mapping[str, str]] = {"uniform": "B"}
'''


def test_a_shared_file_that_names_a_method_is_found(tmp_path: Path) -> None:
    path = tmp_path / "shared.py"
    path.write_text(SHARED, encoding="utf-8")
    assert {"Overseen", "ElasticRange"} <= code_words(path)
    assert not {"Distinct", "Without"} & code_words(path)
    assert columns_used(path) == {"left", "mode", "probe", "dropped", "balance", "uniform"}
    assert metrics_used(path) >= {"intervened", "gain", "solved", "lessons", "beyond_bins"}
    assert not {"prefix", "mode"} & metrics_used(path)


def test_columns_and_metrics_of_methods_are_known() -> None:
    own = own_columns()
    assert (own["clip_range"], own["left"], own["intervened"]) == ("etr", "t_ppo", "hil_serl")
    assert not {"advantage", "entropy_weight", "logp_held", "hinted"} & own.keys(), "several methods share them"
    logged = {key: set().union(*map(metrics_logged, files)) for key, files in own_files().items()}
    assert "intervened" in logged["hil_serl"]
    assert "beyond_bins" in logged["hl_gauss"]
    assert "right_signs" in logged["ota"]


def test_every_method_is_of_a_listed_family() -> None:
    """One that is not stops `assay list --all` and the site; this needs no import of a method."""
    strange = {key: entry.family for key, entry in method_index.entries().items() if entry.family not in FAMILIES}
    assert strange == {}
