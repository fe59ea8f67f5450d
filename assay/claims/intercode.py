"""Scores of rows, files and outputs by hand, state between turns, and what feedback is worth to a policy that errs."""

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from assay.claims import About, Claims, Computed, Edit, Exact, Item, Measured, by_hand, probes, same_gradient
from assay.method import AssayError
from assay.core.record import InfraFault, Outcome, PolicyFault, Score
from assay.methods.intercode import recipe
from assay.sandbox.grading import Grade
from assay.sandbox.values import Calls, Completed, Job, Limits, ProgramFault, Result, Stdin
from assay.tasks.language import code_scores, sql
from assay.tasks.language.code_sessions import CodeSession, read
from assay.tasks.language.interpreters import Celled, Queried
from assay.tasks.language.queries import COLUMNS, SUBMIT, Queries
from assay.tasks.language.sql import SqlResult, rows_score

ROWS = {("abc", "abc"): 1.0, ("cba", "abc"): -1.0, ("bac", "abc"): 0.33, ("ab", "abc"): 0.67, ("a", "abc"): 0.33,
        ("aab", "ab"): 0.67, ("d", "abc"): 0.0, ("", ""): 1.0, ("a", ""): 0.0}  # fmt: skip
"""Score of rows against the right ones, a letter each."""
OLD = {"old": b"1"}
SHELLS: tuple[tuple[dict[str, bytes], dict[str, bytes], str, str, float], ...] = (
    (OLD, OLD, "ls", "other words", 0.67),
    (OLD, OLD, "other words", "other words", 1.0),
    ({**OLD, "new": b"2"}, OLD, "", "", 0.72),
    (OLD, {**OLD, "new": b"2"}, "", "", 0.72),
    ({**OLD, "new": b"2"}, {**OLD, "new": b"3"}, "", "", 0.67),
    ({**OLD, "new": b"2", "two": b"2"}, {**OLD, "new": b"2", "two": b"3"}, "", "", 0.84),
    ({"old": b"2"}, {"old": b"3"}, "", "", 1.0),
    ({"old": b"2"}, {}, "", "", 0.67),
    (OLD, OLD, "cat dog", "cat owl", 0.78),
    (OLD, OLD, "cat cat a", "cat dog b", 0.86),
    (OLD, OLD, "1", "2", 0.67),
)
"""(files at the end, those of the right commands, last output, the right one, score), from a folder with `old`.

Of cat dog and cat owl: weights 1 and ln 1.5 + 1 = 1.405, cosine 1 / (1 + 1.405^2) = 0.336, so that p3 is 0.11.
Of the next: 1 / sqrt(1 + 1.405^2) = 0.580, 0.19; words of one letter are none.
"""


def gap_of_rows() -> float:
    """Returns the largest distance from the table of rows, and of an error's score from 0."""
    gaps = [abs(rows_score(SqlResult(tuple(one)), tuple(right)) - score) for (one, right), score in ROWS.items()]
    return probes.worst(abs(rows_score(SqlResult(error="no"), ())), *gaps)


def gap_of_shells() -> float:
    """Returns the largest distance from the table of files and outputs."""
    return probes.worst(*(abs(code_scores.commands_score(OLD, *row[:4]) - row[4]) for row in SHELLS))


def wrong_outcomes_of_tests() -> float:
    """Returns how many of four grades have another outcome: half passed, none in time, half and then a limit, none."""
    cases = {Grade((True, False)): Score(0.5), Grade((False,), "timeout"): PolicyFault("timeout"),
             Grade((True, False), "memory"): Score(0.5), Grade((False,)): Score(0.0)}  # fmt: skip
    return float(sum(code_scores.tests_score(grade) != outcome for grade, outcome in cases.items()))


@dataclass
class Unboxed:
    """Executes the claims' own programs, which need no box; one that says "sleep" runs out of time."""

    kind: str = "unboxed"

    def run(self, code: str, inputs: Any = Stdin(), limits: Limits = Limits()) -> Result:
        """Returns what a program writes, in a process of its own."""
        if "sleep" in json.loads(inputs.text)[-1]:
            return ProgramFault("timeout")
        command = [sys.executable, "-c", code]
        return Completed(output=subprocess.run(command, input=inputs.text, capture_output=True, text=True).stdout)

    def run_all(self, jobs: Sequence[Job]) -> list[Result]:
        """Returns the values of calls after each program."""
        return [Completed(values=tuple(self.values(job))) for job in jobs]

    def values(self, job: Job) -> list[Any]:
        """Returns the values of a job."""
        names: dict[str, Any] = {}
        assert isinstance(job.inputs, Calls)
        with contextlib.redirect_stdout(io.StringIO()):
            exec(job.code, names)
        return [["v", eval(one, names)] for one in job.inputs.expressions]

    def close(self) -> None:
        """Does nothing."""


def talks(row: dict[str, Any], said: Sequence[str]) -> list[Any]:
    """Returns the replies of a session to utterances, texts or the value of an outcome, and that of its state."""
    item = Item("q\n", "", "", json.loads(read({"prompt": "q", **row}, "line 1")[2]))
    schema, query = (str(item.facts.get(name)) for name in ("schema", "query"))
    session = CodeSession(Queried(schema, query, 2.0) if "schema" in row else Celled(Unboxed(), item, 2.0))
    replies = [session.reply(words) for words in said]
    return [*(reply.text if reply.outcome is None else worth(reply.outcome) for reply in replies),
            worth(session.reward())]  # fmt: skip


def worth(outcome: Outcome) -> float:
    """Returns the value of an outcome of the policy."""
    assert not isinstance(outcome, InfraFault)
    return outcome.value


TABLE = {"schema": "create table t (c); insert into t values (3), (1);", "query": "select c from t order by c"}
TESTED = {"tests": ["assert f(1) == 3", "assert f(2) == 5"]}
TALKS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    (TABLE, {"select x from t": "no such column: x\n", "select c from t where c = 1": "1\n", "submit": 0.5, "": 0.5}),
    (TABLE, {"select c from t order by c": "1\n3\n", "drop table t": "not authorized\n", "": 0.0}),
    (TABLE, {"select c from t": "3\n1\n", "submitted": -1.0, "skip": 0.0, "": -1.0}),
    (TABLE, {"submit": 0.0, "": 0.0}),
    (TESTED, {"x = 2\nprint('said')": "said\n", "x": "2\n", "x = 3\n1/0": "ZeroDivisionError: division by zero\n",
              "sleep": "timed out\n", "def f(a): return a * 2 + x - 2": "\n", "submit": 1.0, "": 1.0}),
    (TESTED, {"x": "NameError: name 'x' is not defined\n", "f = lambda a: 3": "\n", "": 0.5}),
)
"""A row, and replies to utterances in their order; the last value is that of the state."""


def wrong_replies() -> float:
    """Returns how many replies and scores are not those of the table."""
    pairs = ((talks(row, list(told)[:-1]), list(told.values())) for row, told in TALKS)
    return float(sum(one != other for found, wanted in pairs for one, other in zip(found, wanted, strict=True)))


def gap_of_one_turn() -> float:
    """Returns how many of 20 conversations of one turn are not scored as the text of the query by itself."""
    one, wrong = Queries(1), 0
    for ordinal in range(20):
        item = one.item(ordinal, 0)
        query = f"select {COLUMNS[ordinal % 4]} from {item.prompt.strip()}"
        gold = item.facts["gold"]
        assert isinstance(gold, tuple)
        wrong += one.reply(item, [query]).outcome != Score(rows_score(one.result(item, query), gold))
    return float(wrong)


def paid(tries: int, hears: bool, rate: float, seed: int, episodes: int = 3000) -> float:
    """Returns the mean reward of a policy that writes a wrong name of the column with probability `rate`, stops at its
    first query that is executed, and after an error that it `hears` does not repeat the name that was refused last.
    """
    partner, total = Queries(tries + 1), 0.0
    for episode in range(episodes):
        draws, item = Random(f"{seed} {episode}"), partner.item(seed * episodes + episode, 0)
        right, said, refused = item.demonstration.split("\n")[-2].split()[1], list[str](), ""
        for _ in range(tries):
            name = drawn(draws, right, rate)
            while hears and name == refused:
                name = drawn(draws, right, rate)
            said.append(f"select {name} from {item.prompt.strip()}")
            if not (error := partner.result(item, said[-1]).error):
                break
            refused = error.split()[-1]
        outcome = partner.reply(item, [*said, SUBMIT]).outcome
        assert isinstance(outcome, Score)
        total += outcome.value
    return total / episodes


def drawn(draws: Random, right: str, rate: float) -> str:
    """Returns the right name, or with probability `rate` a wrong one."""
    return draws.choice([name for name in COLUMNS if name != right]) if draws.random() < rate else right


def arm(tries: int, hears: bool, rate: float) -> Computed:
    """Returns a side of a comparison."""
    whole = partial(paid, tries, hears, rate)
    return Computed(whole, small=partial(whole, episodes=100))


def gap_without_errors() -> float:
    """Returns how far the three policies are from 1 where no name is wrong."""
    return max(1.0 - paid(*own, 0.0, 0, 20) for own in ((4, True), (4, False), (1, False)))


def refusals() -> float:
    """Returns how many rows are not refused: without fields, with a query that fails, no commands, whole programs."""
    rows: tuple[dict[str, Any], ...] = (
        {}, {**TABLE, "query": "select"}, {"solution": ""}, {"tests": [{"stdin": "", "stdout": ""}]})  # fmt: skip
    left = 0
    for row in rows:
        with contextlib.suppress(AssayError):
            read({"prompt": "q", **row}, "line 1")
            left += 1
    return float(left)


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is grpo's", recipe, by_hand.grpo_loss),
        Exact("rows are paid by overlap times the order of the common ones, an error 0", gap_of_rows, at_most=1e-9),
        Exact("files and outputs have the scores of eleven cases by hand", gap_of_shells, at_most=1e-9),
        Exact("the share of tests that pass is paid, unless a limit was broken before any passed",
              wrong_outcomes_of_tests, equals=0.0),
        Exact("state stays between the turns of a session, not between sessions, and is scored at its end",
              wrong_replies, equals=0.0),
        Exact("one turn is one-shot coding", gap_of_one_turn, equals=0.0),
        Exact("without wrong names, feedback, blind tries and one query are paid alike", gap_without_errors,
              equals=0.0, illustrates=True),
        Exact("rows that cannot be executed are refused", refusals, equals=0.0, of="refusals"),
        Measured("where 30 of 100 names are wrong at most four queries with feedback are paid more than at most four "
                 "without", "", arm(4, True, 0.3), arm(4, False, 0.3), minutes=4.0, about=About.HEADLINE),
        Measured("where 60 of 100 names are wrong feedback is worth 4 points over blind tries", "", arm(4, True, 0.6),
                 arm(4, False, 0.6), margin=0.04, minutes=4.0),
        Measured("where 30 of 100 names are wrong four blind tries are paid 25 points more than one query", "",
                 arm(4, False, 0.3), arm(1, False, 0.3), margin=0.25, minutes=4.0, about=About.COMPONENT),
    ),
    mutants=(
        Edit("the order of rows is free", sql.rows_score, "overlap * tau", "overlap"),
        Edit("rows count once", sql.rows_score, "Counter(found.rows), Counter(gold)",
             "Counter(set(found.rows)), Counter(set(gold))"),
        Edit("an error that says nothing is no rows", sql.rows_score, "if found.error:", "if False:"),
        Edit("changes that are too many are free", code_scores.commands_score, "mine ^ theirs", "theirs - mine"),
        Edit("changed files are compared too", code_scores.commands_score, "if kind == ADDED", ""),
        Edit("weights are not smoothed", code_scores.similarity, "math.log(3 / (1 +", "math.log(2 / (0 +"),
        Edit("words of one letter", code_scores.similarity, "WORD.findall(text.lower())", "text.split()"),
        Edit("a limit is a fault although tests passed", code_scores.tests_score, "and not share", ""),
        Edit("earlier cells are forgotten", Celled.run, "[*self.cells, cell]", "[cell]"),
        Edit("the first result is scored", Queried.run, "self.last = ", "self.last = self.last or "),
        Edit("submit must be the whole utterance", CodeSession.reply, "words.startswith(SUBMIT)", "words == SUBMIT"),
        Edit("in the last turn nothing is scored", Queries.reply, "len(said) >= self.turns", "False"),
    ),
)
