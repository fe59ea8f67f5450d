"""queries: "cup" is asked for; "select cost from cup" is answered by rows or SQLite's error, "submit" ends and scores.

The names of columns are hidden. No other task executes what the policy writes, so that an error is what it learns from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from assay.core.errors import AssayError
from assay.core.record import Score
from assay.rollouts.words import WordTokenizer
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.items import Generator, Item
from assay.tasks.language.partners import Reply
from assay.tasks.language.sql import Sqlite, SqlResult, rows_score

TABLES, COLUMNS, DIGITS = ("cup", "hat", "pen"), ("price", "cost", "value", "worth"), "0123456789"
SELECT, FROM, SUBMIT, SKIP, HIDDEN = "select", "from", "submit", "skip", "?"
ERRORS = ("no", "such", "column:", "table:", "near", "syntax", "error", "incomplete", "input", "not", "authorized")
WORDS = (SELECT, FROM, SUBMIT, SKIP, HIDDEN, *TABLES, *COLUMNS, *DIGITS, *ERRORS)
LONGEST = 4
"""Most words of a reply: "no such column: cost", or four rows."""


@dataclass(frozen=True)
class Queries(Generator):
    """A database of three tables, each with one column whose name is not told, and one to four rows; the prompt is a
    table, and its rows in their order are wanted.

    A query is executed on a database of its own and answered by its rows, or by the error; "submit" ends the episode
    and scores the last result (`rows_score`), "skip" ends it with 0, and in the last of `turns` whatever is written is
    submitted, so that one turn is one query. Without `feedback` every reply is the same. The demonstrations try names
    at random, known errors too. Equal databases with an equal prompt are in the same split. arXiv:2306.14898.
    """

    turns: int = 5
    feedback: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.turns <= 10:
            raise AssayError(f"{self}: turns must be 1 to 10")

    @property
    def introduction(self) -> str:
        """Returns the instructions: how to query, which names there may be, how to submit."""
        names = ", ".join(COLUMNS)
        return (
            f"Each table has one column: {names}. Write one query at a time and nothing else, such as '{SELECT} "
            f"{COLUMNS[0]} {FROM} {TABLES[0]}'. When you have seen the rows of the table, write '{SUBMIT}'. The table:"
        )

    @property
    def num_words(self) -> int:
        """Returns the words of the table, of columns and rows, and of the demonstration."""
        return 1 + 6 * len(TABLES) + self.turns

    def propose(self, words: Sequence[int]) -> tuple[str, Item]:
        """Returns a database, the table that is asked for, and queries at random up to the right one."""
        asked, made, schema = TABLES[words[0] % len(TABLES)], {}, []
        for place, table in enumerate(TABLES):
            name, num, *digits = words[1 + 6 * place : 7 + 6 * place]
            rows = [DIGITS[digit % 10] for digit in digits[: 1 + num % 4]]
            made[table] = (COLUMNS[name % len(COLUMNS)], rows)
            values = ", ".join(f"({row})" for row in rows)
            schema.append(f"create table {table} ({made[table][0]}); insert into {table} values {values};")
        column, rows = made[asked]
        tried = [COLUMNS[word % len(COLUMNS)] for word in words[1 + 6 * len(TABLES) :]]
        tried = tried[: max(0, self.turns - 2)]
        wrong = tried[: tried.index(column)] if column in tried else tried
        said = [f"{SELECT} {name} {FROM} {asked}" for name in (*wrong, column)]
        shown = "\n".join([*said, SUBMIT][: self.turns])
        facts = {"schema": " ".join(schema), "gold": tuple(rows)}
        return f"{asked}: {made}", Item(f"{asked}\n", " ".join(rows), shown, facts)

    def reply(self, item: Item, said: Sequence[str]) -> Reply:
        """Returns the result of a query, or the score of the last one."""
        if said[-1] == SKIP:
            return Reply("", Score(0.0))
        if said[-1].startswith(SUBMIT) or len(said) >= self.turns:
            queries = [one for one in said if not one.startswith(SUBMIT)]
            gold = item.facts["gold"]
            assert isinstance(gold, tuple)
            return Reply("", Score(rows_score(self.result(item, queries[-1]), gold) if queries else 0.0))
        return Reply(show_result(self.result(item, said[-1])) if self.feedback else f"{HIDDEN}\n")

    def result(self, item: Item, query: str) -> SqlResult:
        """Returns the result of a query on the item's database."""
        return Sqlite().run(str(item.facts["schema"]), query)


def show_result(result: SqlResult) -> str:
    """Returns the words of a result that the vocabulary has, at most `LONGEST`; "?" if it has none."""
    words = [word for word in result.text.split() if word in WORDS][:LONGEST]
    return " ".join(words or [HIDDEN]) + "\n"


def queries(turns: int = 5, feedback: bool = True) -> DialogueTask:
    """Returns the task; with one turn it is a query without a second try, without `feedback` several blind ones."""
    name = f"queries-{turns}" if feedback else f"queries-{turns}-blind"
    words = WordTokenizer(WORDS)
    return DialogueTask(name, Queries(turns, feedback), words, 2, turns, max_tokens=5, max_reply=LONGEST)


LEVELS: Mapping[str, Callable[[], DialogueTask]] = {
    "queries": queries,
    **{f"queries-{turns}": partial(queries, turns) for turns in (1, 3, 5)},
    **{f"queries-{turns}-blind": partial(queries, turns, False) for turns in (3, 5)},
}
