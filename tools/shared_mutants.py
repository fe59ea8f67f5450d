"""Tries mutants of code that is of no single method: rollouts, sources, curricula, target networks, evaluation, loop.

    python tools/shared_mutants.py --workers 16
    python tools/shared_mutants.py --only assay/parts/sources --each 10 --minutes 20

Mutants are made by the rules of `assay.claims.mutants.rules` and by those of `tools/other_mutants.py`, plus the edits
of `WRITTEN`. Each is written into a copy of the package, so that a process sees nothing else; judges are the tests of
`TESTS` that stand nearest to the file, then the exact claims of `KEYS`, methods that together use this code. A mutant
that all of them accept is printed as survived. Results are kept in `--work` by the mutant, so that the same command
goes on after an interruption.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from other_mutants import sites as other_sites  # noqa: E402

from assay.claims.mutants.rules import sites, variants  # noqa: E402

TESTS = {
    "assay/parts/rollouts": ["tests/engine/test_between_parts.py", "tests/parts/test_rollouts.py"],
    "assay/parts/sources": ["tests/engine/test_between_parts.py"],
    "assay/parts/curricula": ["tests/engine/test_between_parts.py", "tests/engine/test_loop.py"],
    "assay/engine/loop.py": ["tests/engine/test_between_parts.py", "tests/engine/test_loop.py"],
    "assay/engine/evaluation.py": ["tests/engine/test_between_parts.py", "tests/engine/test_evaluation.py"],
    "assay/engine/engine.py": ["tests/engine/test_between_parts.py", "tests/engine/test_invariance.py"],
    "assay/engine/gathering.py": ["tests/engine/test_between_parts.py", "tests/engine/test_loop.py"],
}
"""Shared code and the tests nearest to it; `tests/parts/test_laws.py` follows for parts."""
KEYS = ("grpo", "dapo", "ppo", "dqn", "td3", "sac", "iql", "bc", "dpo", "prefixrl", "hil-serl")
"""Methods that together use every shared rollout, source and curriculum."""
WRITTEN = (
    ("assay/engine/evaluation.py", "Draw(0, (7,)), split=1", "Draw(0, (7,)), split=0"),
    ("assay/engine/loop.py", "part.updated(step.metrics, own)", "pass"),
    ("assay/engine/loop.py", "engine.updates % stage.every == 0", "engine.updates % stage.every != 1"),
    ("assay/engine/engine.py", "self.updates % copy.every == 0", "True"),
    ("assay/parts/sources/fresh.py", "place[index] * num // num_groups", "torch.arange(len(index)) % num"),
    ("assay/parts/rollouts/episodes.py", "(action, ~over, logp", "(action, over | True, logp"),
    ("assay/parts/rollouts/explore.py", "self.actor.clamp(action +", "(action +"),
    ("assay/parts/curricula/in_order.py", "isinstance(task, RepeatingTask)", "False"),
)
"""Mistakes that once passed: file, text, another text."""
SECONDS = 240
"""How long the judges of one mutant may take; one that takes longer is caught, since it does not end."""
CAUGHT, SURVIVED = "caught", "survived"


@dataclass(frozen=True)
class SharedMutant:
    """A file of the package with another text."""

    file: str
    name: str
    text: str

    @property
    def digest(self) -> str:
        """Sixteen hex digits of file and text."""
        return hashlib.sha256(f"{self.file}\n{self.text}".encode()).hexdigest()[:16]


def files_of(place: str) -> list[Path]:
    """Returns the Python files of a folder, or the file."""
    path = ROOT / place
    return [path] if path.is_file() else sorted(path.glob("*.py"))


def made_from(path: Path) -> Iterator[Callable[[], SharedMutant]]:
    """Yields a maker of a mutant for each place of a file's functions at which a rule applies: texts take long."""
    tree, file = ast.parse(path.read_text()), str(path.relative_to(ROOT))
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("check") or node.name == "__post_init__":
            continue
        for rules in (sites, other_sites):
            for rule, told, changed in variants(node, rules):
                yield partial(made, file, tree, node, changed, f"{file}:{node.lineno} {node.name}: {rule}, {told}")


def made(file: str, tree: ast.Module, old: ast.FunctionDef, new: ast.FunctionDef, name: str) -> SharedMutant:
    """Returns the mutant of a file in which one function is another."""
    memo: dict[int, Any] = {id(old): new}  # a copy of the tree that takes the new function for the old one
    return SharedMutant(file, name, ast.unparse(ast.fix_missing_locations(copy.deepcopy(tree, memo))))


def written() -> Iterator[SharedMutant]:
    """Yields the edits of `WRITTEN`; a text that is not there is an error."""
    for file, old, new in WRITTEN:
        text = (ROOT / file).read_text()
        if old not in text:
            raise SystemExit(f"{file} has no '{old}'. Write the edit again in tools/shared_mutants.py")
        yield SharedMutant(file, f"{file}: written, {old} -> {new}", text.replace(old, new, 1))


def chosen_mutants(only: Sequence[str], each: int, seed: int) -> list[SharedMutant]:
    """Returns the written mutants and `each` drawn at random from each place."""
    places = [place for place in TESTS if not only or any(place.startswith(one) for one in only)]
    found = [one for one in written() if any(one.file.startswith(place) for place in places)]
    for place in places:
        makers = [one for path in files_of(place) for one in made_from(path)]
        random.Random(f"{seed} {place}").shuffle(makers)
        found += [make() for make in makers[:each]]
    return list({one.digest: one for one in found}.values())


def judged(mutant: SharedMutant, deadline: float) -> str | None:
    """Returns caught with the judge, survived, or None after the deadline; the mutant is in a copy of the package."""
    if time.monotonic() > deadline:
        return None
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for folder in ("assay", "tests"):
            shutil.copytree(ROOT / folder, place / folder, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", place / "pyproject.toml")
        (place / mutant.file).write_text(mutant.text)
        variables = {**os.environ, "PYTHONPATH": name, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        begin = time.monotonic()
        for judge, command in judges(mutant.file):
            left = SECONDS - (time.monotonic() - begin)
            try:
                done = subprocess.run(command, cwd=place, env=variables, capture_output=True, timeout=max(left, 1))
            except subprocess.TimeoutExpired:
                return f"{CAUGHT} by time: {judge}"
            if done.returncode:
                return f"{CAUGHT} by {judge}"
    return SURVIVED


def judges(file: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the name and the command of each judge of a file, the nearest first."""
    place = next(place for place in TESTS if file.startswith(place))
    for test in TESTS[place]:
        yield test, [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    for key in KEYS:
        yield f"claims of {key}", [sys.executable, "-m", "assay", "claim", key, "--exact"]
    if place.startswith("assay/parts"):
        name = "tests/parts/test_laws.py"
        yield name, [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", name]


def check_judges(mutants: Sequence[SharedMutant], workers: int, deadline: float) -> None:
    """Ends with an error if a judge rejects the package as it is: it would reject every mutant."""
    places = sorted({next(place for place in TESTS if one.file.startswith(place)) for one in mutants})
    files = [str(files_of(place)[0].relative_to(ROOT)) for place in places]
    plain = [SharedMutant(file, file, (ROOT / file).read_text()) for file in files]
    with ThreadPoolExecutor(workers) as pool:
        for one, outcome in zip(plain, pool.map(partial(judged, deadline=deadline), plain), strict=True):
            if outcome != SURVIVED:
                raise SystemExit(f"{one.file} without a mutant: {outcome or 'time is up'}. Fix it first")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints each mutant with its outcome, then the counts; exit code 1 if one survives or time was up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="places that begin so (default: all)")
    parser.add_argument("--each", type=int, default=40, help="mutants by rules of each place")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no mutant begins")
    parser.add_argument("--work", type=Path, default=Path("runs/shared_mutants"), help="folder of results")
    chosen = parser.parse_args(arguments)
    chosen.work.mkdir(parents=True, exist_ok=True)
    deadline, found = time.monotonic() + 60 * chosen.minutes, dict[str, str]()
    waiting = []
    for mutant in chosen_mutants(chosen.only, chosen.each, chosen.seed):
        kept = chosen.work / f"{mutant.digest}.json"
        if kept.is_file():
            found[mutant.name] = json.loads(kept.read_text())["outcome"]
        else:
            waiting.append((mutant, kept))
    unfinished = 0
    check_judges([mutant for mutant, _ in waiting], chosen.workers, deadline)
    with ThreadPoolExecutor(chosen.workers) as pool:
        jobs = {pool.submit(judged, mutant, deadline): (mutant, kept) for mutant, kept in waiting}
        for job in as_completed(jobs):
            mutant, kept = jobs[job]
            outcome = job.result(timeout=0)
            if outcome is None:
                unfinished += 1
                continue
            found[mutant.name] = outcome
            kept.write_text(json.dumps({**asdict(mutant), "outcome": outcome}) + "\n")
            print(f"{outcome:40} {mutant.name}", flush=True)
    print(json.dumps(dict(Counter(one.split(" by ")[0] for one in found.values()))))
    for name, outcome in found.items():
        if outcome == SURVIVED:
            print(f"survived: {name}")
    if unfinished:
        print(f"{unfinished} not tried: time was up. Run the command again")
    return int(SURVIVED in found.values() or bool(unfinished))


if __name__ == "__main__":
    sys.exit(main())
