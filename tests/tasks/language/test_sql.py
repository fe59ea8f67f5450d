"""Queries that a policy wrote: what they may do, how long they may take, and what their rows are worth."""

from __future__ import annotations

import time

import pytest

from assay.core.errors import AssayError
from assay.core.record import Score
from assay.runs import catalogue
from assay.tasks.language.queries import LEVELS, WORDS, Queries, queries
from assay.tasks.language.sql import Dialect, Duckdb, Sqlite, SqlLimits, SqlResult, gold_rows, rows_score, sql_reward

SCHEMA = "create table cup (cost int, name text); insert into cup values (3, 'a'), (1, 'b'), (3, 'c');"


@pytest.fixture(params=[Sqlite(), Duckdb()], ids=["sqlite", "duckdb"])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    if isinstance(request.param, Duckdb):
        pytest.importorskip("duckdb", reason="the second dialect is an extra")
    found: Dialect = request.param
    return found


def test_rows_are_read_in_their_order(dialect: Dialect) -> None:
    assert dialect.run(SCHEMA, "select cost, name from cup order by name desc").rows == ("3 c", "1 b", "3 a")


@pytest.mark.parametrize(
    "query",
    [
        "insert into cup values (1, 'd')",
        "delete from cup",
        "drop table cup",
        "create table other (x int)",
        "attach 'stolen.db' as other",
        "pragma database_list",
        "select 1; select 2",
        "select cost from nothing",
        "select nothing from cup",
        "selec",
        "",
    ],
)
def test_what_is_not_one_read_is_an_error_and_leaves_nothing(dialect: Dialect, query: str, tmp_path: object) -> None:
    found = dialect.run(SCHEMA, query)
    assert not found.rows
    assert found.error or not query
    assert dialect.run(SCHEMA, "select count(*) from cup").rows == ("3",)


def test_sqlite_denies_functions_that_reach_outside_or_give_other_rows() -> None:
    for query in ("select load_extension('x')", "select random()", "select hex(randomblob(4))"):
        assert "not authorized" in Sqlite().run(SCHEMA, query).error


def test_duckdb_reads_no_files() -> None:
    pytest.importorskip("duckdb", reason="the second dialect is an extra")
    assert "Permission" in Duckdb().run(SCHEMA, "select * from read_csv('/etc/passwd')").error


def test_an_endless_query_is_stopped_at_its_deadline(dialect: Dialect) -> None:
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
    began = time.monotonic()
    assert dialect.run(SCHEMA, endless, SqlLimits(seconds=0.2)).error == "timed out"
    assert time.monotonic() - began < 10.0


def test_rows_and_bytes_are_limited(dialect: Dialect) -> None:
    many = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 11) select i from n"
    assert len(dialect.run(SCHEMA, many, SqlLimits(rows=11)).rows) == 11
    assert "too many rows" in dialect.run(SCHEMA, many, SqlLimits(rows=10)).error
    assert dialect.run(SCHEMA, "select 'abcdefgh' || 'abcdefgh', 1", SqlLimits(bytes=60)).rows
    assert dialect.run(SCHEMA, "select 'abcdefgh' from cup, cup as x", SqlLimits(bytes=60)).error


def test_sqlite_makes_no_value_larger_than_its_limit() -> None:
    assert Sqlite().run(SCHEMA, "select zeroblob(1000000000)").error


@pytest.mark.parametrize("query", ["select 'a\0b'", "select \ud800", "select x'ff'", "select cast(x'ff' as text)"])
def test_no_text_of_a_query_raises(query: str) -> None:
    assert isinstance(Sqlite().run(SCHEMA, query), SqlResult)


def test_a_wrong_schema_and_a_wrong_right_query_are_one_sentence() -> None:
    with pytest.raises(AssayError, match="the schema 'create'"):
        Sqlite().run("create", "select 1")
    with pytest.raises(AssayError, match="the right query 'select x'"):
        gold_rows(SCHEMA, "select x")
    with pytest.raises(AssayError, match=r"SqlLimits.seconds is 0"):
        SqlLimits(seconds=0)


def test_users_rows_are_scored_by_their_own_query() -> None:
    said = [
        "select cost from cup",
        "so:\n```sql\nselect cost from cup where cost > 1\n```\n",
        "no idea",
        "drop table cup",
    ]
    assert sql_reward(said, [SCHEMA] * 4, ["select cost from cup"] * 4) == [1.0, 0.67, 0.0, 0.0]
    assert sql_reward(["select name from cup order by 1 desc"], [SCHEMA], ["select name from cup"]) == [0.0]


def test_equal_rows_are_not_undone_by_their_order() -> None:
    assert rows_score(SqlResult(("a", "a")), ("a", "a")) == 1.0


def test_every_demonstration_of_queries_scores_one_in_known_words() -> None:
    for make in LEVELS.values():
        task = make()
        partner = task.partner
        assert isinstance(partner, Queries)
        for ordinal in range(50):
            item = partner.item(ordinal, ordinal % 2)
            said = item.demonstration.split("\n")
            replies = task.replies(item, said)
            assert len(said) <= partner.turns
            assert isinstance(replies[-1].outcome, Score)
            assert replies[-1].outcome.value == 1.0
            assert {word for reply in replies for word in reply.text.split()} <= set(WORDS)


def test_the_number_of_turns_is_checked() -> None:
    with pytest.raises(AssayError, match="turns must be 1 to 10"):
        queries(0)


def test_every_task_is_found_by_its_name() -> None:
    assert catalogue.find_task("queries-5-blind").name == "queries-5-blind"
    assert [name for name in catalogue.tasks() if catalogue.built_in_task(name) is None] == []
