"""Tries every mutant of every method, in parallel and resumably, and writes the records.

    python -m assay.claims.mutants.every --workers 16
    python -m assay.claims.mutants.every --workers 16 --keys grpo dpo
    python -m assay.claims.mutants.every --rules setting written --minutes 30

A piece of work is a few mutants of one method. Each finished piece is a file of the folder `--work`; after an
interruption, or when `--minutes` are over, the same command resumes with the rest. A piece holds for the code that it
was tried with: if a file of the package has changed, pieces are tried again. When all pieces of a method are there, its
record is written; with `--rules` nothing is recorded, since a record is of all mutants.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from assay.claims.mutants import trial
from assay.claims.mutants.find import mutants
from assay.claims.mutants.mutant import Mutant
from assay.claims.mutants.trial import NO_EFFECT, NOT_REACHED, SURVIVED, Result
from assay.core import store
from assay.core.errors import AssayError
from assay.runs import catalogue

PACKAGE = Path(__file__).parents[2]
PIECE = 24
"""Mutants in one piece of work."""
ERROR = "error"
"""The rule of a result that tells why a piece could not be tried."""


@dataclass(frozen=True)
class Piece:
    """Every `of`-th mutant of a method, from that at `place` on, of the rules that were chosen (all if none is)."""

    key: str
    place: int
    of: int
    rules: tuple[str, ...]
    file: Path


def code_digest() -> str:
    """Returns sixteen hex digits of all Python files of the package."""
    found = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def pieces_of(key: str, rules: tuple[str, ...], folder: Path) -> list[Piece]:
    """Returns the pieces of a method's mutants."""
    made = [one for one in mutants(key, catalogue.find_method(key)[1]) if not rules or one.rule in rules]
    num = max(1, -(-len(made) // PIECE))
    name = "-".join((key, *rules)).replace("/", "_").replace(" ", "_")
    return [Piece(key, place, num, rules, folder / f"{name}-{place}-of-{num}.json") for place in range(num)]


def try_piece(piece: Piece) -> Piece:
    """Tries the mutants of a piece and writes the results; an AssayError is a result too."""
    torch.set_num_threads(1)

    def chosen(found: list[Mutant]) -> list[Mutant]:
        return [one for one in found if not piece.rules or one.rule in piece.rules][piece.place :: piece.of]

    try:
        results = list(trial.trials(piece.key, chosen))
    except AssayError as error:
        results = [Result(ERROR, piece.key, str(error))]
    store.write_text(piece.file, json.dumps([asdict(one) for one in results], indent=1) + "\n")
    return piece


def read_piece(piece: Piece) -> list[Result]:
    """Returns the results of a finished piece."""
    return [Result(**one) for one in json.loads(piece.file.read_text())]


def tried(pieces: Sequence[Piece], workers: int, deadline: float) -> Iterator[Piece]:
    """Tries the pieces that have no file, and yields each when it is finished; begins none after the deadline."""
    waiting = [piece for piece in pieces if not piece.file.is_file()]
    # Not a fork: the threads of this process's libraries do not survive one.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        jobs = {pool.submit(try_piece, piece) for piece in waiting}
        for job in as_completed(jobs):
            yield job.result(timeout=0)  # it is finished
            if time.monotonic() > deadline:
                pool.shutdown(wait=True, cancel_futures=True)
                return


def report(key: str, results: Sequence[Result], *, records: bool) -> dict[str, object]:
    """Returns the summary of a method's mutants; writes it into the record if asked to and nothing failed."""
    errors = [one.outcome for one in results if one.rule == ERROR]
    if errors:
        return {"error": errors[0]}
    if records:
        trial.write(key, results)
    told = trial.summary(results)
    judged = Counter(one.rule for one in results if one.outcome not in (NO_EFFECT, NOT_REACHED))
    survived = [f"{one.rule}, {one.name}" for one in results if one.outcome == SURVIVED]
    return {name: told[name] for name in ("made", "caught", "written_without_effect", "cover")} | {
        "by_rule": dict(judged), "survived": survived,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line for each finished method and writes summary.json; exit code 1 if a mutant survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", nargs="*", default=[], help="methods (default: all)")
    parser.add_argument("--rules", nargs="*", default=[], help="only mutants of these rules; writes no records")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=720.0, help="after which no piece begins")
    parser.add_argument("--work", type=Path, default=Path("runs/mutants"), help="folder of finished pieces")
    chosen = parser.parse_args(arguments)
    deadline, rules = time.monotonic() + 60 * chosen.minutes, tuple(chosen.rules)
    folder = chosen.work / code_digest()
    folder.mkdir(parents=True, exist_ok=True)
    planned = {key: pieces_of(key, rules, folder) for key in chosen.keys or sorted(catalogue.methods())}
    summary: dict[str, dict[str, object]] = {}

    def finish(key: str) -> None:
        results = [one for piece in planned[key] for one in read_piece(piece)]
        summary[key] = report(key, results, records=not rules)
        print(f"{key:28}{json.dumps(summary[key])}", flush=True)
        store.write_text(folder / "summary.json", json.dumps(summary, indent=1) + "\n")

    def is_done(key: str) -> bool:
        return all(piece.file.is_file() for piece in planned[key])

    for key in [key for key in planned if is_done(key)]:
        finish(key)
    for piece in tried([one for some in planned.values() for one in some], chosen.workers, deadline):
        if piece.key not in summary and is_done(piece.key):
            finish(piece.key)
    missing = [key for key in planned if key not in summary]
    if missing:
        print(f"not finished, run the command again: {' '.join(missing)}")
    return int(any(one.get("survived") or one.get("error") for one in summary.values()) or bool(missing))


if __name__ == "__main__":
    sys.exit(main())
