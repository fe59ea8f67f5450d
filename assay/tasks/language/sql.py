"""Executes queries that a policy wrote, on a database of their own that is gone afterwards; scores their rows.

A query may read and do nothing else: SQLite asks an authorizer before each access, and stops at a deadline. What it
returns is limited in rows and bytes. The schema (tables and their rows) is the task's own and is trusted.
"""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Protocol

from assay.core.errors import AssayError
from assay.core.extras import require

READS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
"""What the authorizer allows."""
DENIED = frozenset({"load_extension", "random", "randomblob", "readfile", "writefile", "edit", "fts3_tokenizer"})
"""Functions that a query may not call: they reach outside of the database, or give other rows every time."""
STEPS = 1000
"""Instructions of SQLite's machine between two looks at the clock."""
TIMED_OUT = "timed out"


@dataclass(frozen=True)
class SqlLimits:
    """Limits of one query: seconds, rows, and bytes of the query, of a value and of all rows together."""

    seconds: float = 2.0
    rows: int = 1000
    bytes: int = 100_000
    not_a_part: ClassVar[str] = "limits of a task"

    def __post_init__(self) -> None:
        for name, value in {"seconds": self.seconds, "rows": self.rows, "bytes": self.bytes}.items():
            if not value > 0:
                raise AssayError(f"SqlLimits.{name} is {value}. Use a positive number")


@dataclass(frozen=True)
class SqlResult:
    """The rows of a query as text, in their order; or the error that a policy can read, and no rows."""

    rows: tuple[str, ...] = ()
    error: str = ""
    not_a_part: ClassVar[str] = "the result of a query"

    @property
    def text(self) -> str:
        """The observation: the error, else the rows, one a line."""
        return self.error or "\n".join(self.rows)


class Dialect(Protocol):
    """A database in memory. Laws: nothing is left after a call; a query changes nothing; errors are results."""

    def run(self, schema: str, query: str, limits: SqlLimits = SqlLimits()) -> SqlResult:
        """Returns the result of one query on a new database; AssayError if the schema itself cannot be executed."""


@dataclass(frozen=True)
class Sqlite:
    """SQLite of Python's standard library."""

    not_a_part: ClassVar[str] = "a database"

    def run(self, schema: str, query: str, limits: SqlLimits = SqlLimits()) -> SqlResult:
        """Returns the result of one statement; several are an error, as is all that is not a read."""
        database = sqlite3.connect(":memory:")
        try:
            make(database, schema)
            return self.read(database, query, limits)
        finally:
            database.close()

    def read(self, database: sqlite3.Connection, query: str, limits: SqlLimits) -> SqlResult:
        """Returns the result of a query under an authorizer, a deadline and limits."""
        deadline = time.monotonic() + limits.seconds
        for limit in (sqlite3.SQLITE_LIMIT_LENGTH, sqlite3.SQLITE_LIMIT_SQL_LENGTH):
            database.setlimit(limit, limits.bytes)
        database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        database.set_authorizer(allowed)
        database.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
        try:
            return bounded(database.execute(query), limits)
        except sqlite3.OperationalError as error:
            return SqlResult(error=TIMED_OUT if "interrupted" in str(error) else str(error))
        except (sqlite3.Error, sqlite3.Warning, ValueError, UnicodeError) as error:
            return SqlResult(error=str(error) or type(error).__name__)


def make(database: sqlite3.Connection, schema: str) -> None:
    """Creates the tables; AssayError with SQLite's words if the schema is wrong."""
    try:
        database.executescript(schema)
    except sqlite3.Error as error:
        raise AssayError(f"the schema {schema[:60]!r} cannot be executed: {error}. Fix it") from error


def allowed(action: int, first: str | None, second: str | None, *place: str | None) -> int:
    """Returns whether an access may happen: reads, and functions that are not in `DENIED`."""
    is_denied = action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in DENIED
    return sqlite3.SQLITE_OK if action in READS and not is_denied else sqlite3.SQLITE_DENY


def bounded(rows: Iterable[Sequence[Any]], limits: SqlLimits) -> SqlResult:
    """Returns the rows as text; too many of them, or of their bytes, are an error."""
    found: list[str] = []
    size = 0
    for row in rows:
        found.append(" ".join(map(str, row)))
        size += len(found[-1].encode("utf-8", "replace"))
        if len(found) > limits.rows or size > limits.bytes:
            return SqlResult(error=f"too many rows: at most {limits.rows} with {limits.bytes} bytes")
    return SqlResult(tuple(found))


@dataclass(frozen=True)
class Duckdb:
    """DuckDB (`pip install 'assay[sql]'`), without access to files or the network and with limited memory."""

    megabytes: int = 256
    not_a_part: ClassVar[str] = "a database"

    def run(self, schema: str, query: str, limits: SqlLimits = SqlLimits()) -> SqlResult:
        """Returns the result of one SELECT; a timer interrupts it."""
        duckdb: Any = require("duckdb", "sql", "queries in DuckDB's dialect")
        settings = {"enable_external_access": "false", "memory_limit": f"{self.megabytes}MB", "threads": "1"}
        database = duckdb.connect(":memory:", config=settings)
        try:
            database.execute(schema)
            database.execute("SET lock_configuration = true")
        except duckdb.Error as error:
            database.close()
            raise AssayError(f"the schema {schema[:60]!r} cannot be executed: {error}. Fix it") from error
        timer = threading.Timer(limits.seconds, database.interrupt)
        timer.start()
        try:
            statements = database.extract_statements(query[: limits.bytes])
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                return SqlResult(error="not authorized: write one SELECT")
            return bounded(database.execute(statements[0]).fetchmany(limits.rows + 1), limits)
        except duckdb.InterruptException:
            return SqlResult(error=TIMED_OUT)
        except (duckdb.Error, RuntimeError, ValueError) as error:
            return SqlResult(error=str(error) or type(error).__name__)
        finally:
            timer.cancel()
            database.close()


# ---------------------------------------------------------------------------------------------------- rewards
def rows_score(found: SqlResult, gold: Sequence[str]) -> float:
    """Returns IoU x Kendall's tau of two lists of rows, rounded to two digits (InterCode, arXiv:2306.14898).

        IoU = sum of smaller counts / sum of larger counts;   tau of the common rows in both orders, by their text

    tau is left out where it is undefined: one row, or equal ones. It is -1 for the reverse order, and so is the score.
    An error is 0; no rows where none are wanted are 1.
    """
    if found.error:
        return 0.0
    mine, theirs = Counter(found.rows), Counter(gold)
    common, every = mine & theirs, mine | theirs
    if not every:
        return 1.0
    tau = kendall_tau(kept(found.rows, common), kept(gold, common))
    overlap = common.total() / every.total()
    return round(overlap if math.isnan(tau) else overlap * tau, 2)


def kept(rows: Iterable[str], common: Counter[str]) -> list[str]:
    """Returns the first rows of each text, as many as are common, in their order."""
    left, found = Counter(common), []
    for row in rows:
        if left[row] > 0:
            left[row] -= 1
            found.append(row)
    return found


def kendall_tau(one: Sequence[str], other: Sequence[str]) -> float:
    """Returns tau-b of two lists of texts, paired by place; nan if all texts of a list are equal."""
    signs = [((a > b) - (a < b), (c > d) - (c < d)) for (a, c), (b, d) in combinations(zip(one, other, strict=True), 2)]
    untied = math.prod(sum(pair[side] != 0 for pair in signs) for side in range(2))
    return sum(a * b for a, b in signs) / math.sqrt(untied) if untied else math.nan


def sql_reward(completions: Sequence[str], schema: Sequence[str], query: Sequence[str], **columns: Any) -> list[float]:
    """Scores completions that are queries by the rows of each row's own `query` on its `schema`: a reward function.

    Text around a block of ```sql is left out. Negative scores, of rows in reverse order, count as 0.
    """
    database = Sqlite()
    pairs = zip(completions, schema, query, strict=True)
    return [
        max(0.0, rows_score(database.run(made, unfenced(text)), gold_rows(made, gold))) for text, made, gold in pairs
    ]


def gold_rows(schema: str, query: str, dialect: Dialect = Sqlite()) -> tuple[str, ...]:
    """Returns the rows of a query that is known to be right; AssayError if it is not."""
    found = dialect.run(schema, query)
    if found.error:
        raise AssayError(f"the right query {query[:60]!r} cannot be executed: {found.error}. Fix the row")
    return found.rows


def unfenced(text: str) -> str:
    """Returns the last block of code in a text, or the text."""
    _, fence, block = text.rpartition("```sql")
    return (block.partition("```")[0] if fence else text).strip()
