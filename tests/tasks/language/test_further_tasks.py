"""Paths in graphs, values in long texts, reasoning-gym's generators, and GSM8K as a file."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from assay.core.errors import AssayError
from assay.core.record import InfraFault, PolicyFault, Score
from assay.runs import catalogue
from assay.tasks.language.arithmetic import stated_numbers
from assay.tasks.language.graph_path import GraphPath, graph_path
from assay.tasks.language.items import Item
from assay.tasks.language.lookup import lookup
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.textfile import textfile

GSM8K = Path(__file__).resolve().parents[4] / "shared" / "data" / "gsm8k"


# ---------------------------------------------------------------------------------------------------- graph-path
def paths(item: Item) -> list[str]:
    """Every path without a node twice, by trying all orders of nodes: slow and independent."""
    told, begin, end = re.fullmatch(r"([a-z,]+):([a-z])>([a-z])=", item.prompt).groups()  # type: ignore[union-attr]
    edges = {frozenset(pair) for pair in told.split(",")}
    nodes = sorted(set(told) - {",", begin, end})
    found = []
    for length in range(len(nodes) + 1):
        for middle in itertools.permutations(nodes, length):
            path = (begin, *middle, end)
            if all(frozenset(step) in edges for step in itertools.pairwise(path)):
                found.append("".join(path))
    return found


def test_every_shortest_path_counts_and_no_other() -> None:
    task, several = graph_path(6, extra=5), 0
    for ordinal in range(40):
        item = task.items.item(ordinal, ordinal % 2)
        every = paths(item)
        least = min(map(len, every))
        assert least >= 3
        assert item.demonstration in every
        several += sum(len(path) == least for path in every) > 1
        for path in every:
            assert task.items.verify(item, f" {path}\n") == Score(float(len(path) == least))
    assert several > 3


def test_what_is_no_path_is_a_fault() -> None:
    task = graph_path(6)
    item = task.items.item(0, 0)
    begin, end = item.answer[0], item.answer[-1]
    faults = {
        "": "no answer",
        begin + end: "follows an edge that does not exist",
        item.answer[::-1]: "does not lead from the first to the second",
        item.answer[:-1]: "does not lead from the first to the second",
        item.answer + "z": "not a sequence of nodes, each at most once",
        item.answer * 9: "not a sequence of nodes, each at most once",
    }
    for written, kind in faults.items():
        assert task.items.verify(item, written) == PolicyFault(kind)


def test_graphs_of_both_splits_differ_in_more_than_the_order_of_telling() -> None:
    def content(item: Item) -> str:
        told, ends = item.prompt.split(":")
        return f"{sorted(told.split(','))} {sorted(ends)}"

    for level in (5, 8):
        items = graph_path(level).items
        seen = [{content(items.item(i, split)) for i in range(300)} for split in (0, 1)]
        assert not seen[0] & seen[1]
        assert len(seen[1]) > 50
    with pytest.raises(AssayError, match="level"):
        GraphPath(2)


@pytest.mark.parametrize("task", [graph_path(16), graph_path(26, 40), lookup(256), lookup(2), lookup(676)])
def test_prompts_and_answers_fit(task: PromptTask) -> None:
    for ordinal in range(20):
        item = task.items.item(ordinal, ordinal % 2)
        assert len(item.prompt) < task.max_prompt
        assert len(item.demonstration) < task.max_tokens
        assert task.items.verify(item, item.demonstration) == Score(1.0)


# ---------------------------------------------------------------------------------------------------- lookup
def test_lookup_asks_for_one_of_its_entries() -> None:
    task, places = lookup(32), set()
    for ordinal in range(200):
        item = task.items.item(ordinal, 0)
        told, asked = item.prompt.removesuffix("=").split("?")
        entries = {entry[:2]: entry[2:] for entry in told.split(",")}
        assert len(entries) == 32
        assert entries[asked] == item.answer
        places.add(list(entries).index(asked))
        wrong = f"{(int(item.answer) + 1) % 100:02d}"
        assert task.items.verify(item, wrong) == Score(0.0)
    assert len(places) > 28
    assert catalogue.find_task("lookup-64").spec.horizon == 64 * 5 + 4 + 3


# ---------------------------------------------------------------------------------------------------- reasoning-gym
def gym_task(name: str) -> PromptTask:
    pytest.importorskip("reasoning_gym")
    found = catalogue.find_task(f"reasoning-gym:{name}")
    assert isinstance(found, PromptTask)
    return found


def test_a_generator_is_a_task_with_its_own_scorer() -> None:
    task = gym_task("leg_counting:min_animals=1,max_animals=2")
    items = [[task.items.item(i, split) for i in range(60)] for split in (0, 1)]
    assert not {item.prompt for item in items[0]} & {item.prompt for item in items[1]}
    for item in items[0] + items[1]:
        assert len(item.prompt.encode()) < task.max_prompt
        assert task.items.verify(item, item.demonstration) == Score(1.0)
        assert task.items.verify(item, f"so\n#### {item.answer}") == Score(1.0)
        assert task.items.verify(item, " ") == PolicyFault("no answer")
        assert task.items.verify(item, "9" * 5000) == PolicyFault("longer than any answer")
        assert task.items.verify(item, "-1") == Score(0.0)
    assert items[0][3] == gym_task("leg_counting:min_animals=1,max_animals=2").items.item(3, 0)


def test_a_scorer_that_raises_is_a_fault_of_the_infrastructure() -> None:
    task = gym_task("prime_factorization")
    assert isinstance(task.items.verify(task.items.item(0, 0), "[x for"), InfraFault)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("leg_count", "nearest is 'leg_counting'"),
        ("leg_counting:legs=1", "refuses leg_counting"),
        ("leg_counting:legs", "name=value"),
        ("graph_color", "has no answers"),
    ],
)
def test_a_generator_that_cannot_be_used_is_refused(name: str, message: str) -> None:
    with pytest.raises(AssayError, match=message):
        gym_task(name)


# ---------------------------------------------------------------------------------------------------- GSM8K
@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("she makes $1,250.", ["1,250"]),
        ("5-3=2", ["5", "3", "2"]),
        ("it is -3", ["-3"]),
        ("18% of 0.50", ["18", "0.50"]),
        ("none", []),
        ("1" + ",000" * 200, [",".join(["000"] * 100)]),
        ("7 " * 100_000, ["7"] * 200),
    ],
)
def test_numbers_that_a_text_states(text: str, numbers: list[str]) -> None:
    assert stated_numbers(text) == numbers


@pytest.mark.filterwarnings("ignore:.*the prompt contains the answer")
@pytest.mark.skipif(not GSM8K.is_dir(), reason="GSM8K is not on this machine")
def test_gsm8k_is_a_file_like_any_other() -> None:
    task = catalogue.find_task(str(GSM8K / "test.jsonl"))
    assert isinstance(task, PromptTask)
    assert task.name == "gsm8k-test"
    for ordinal in range(100):
        item = task.items.item(ordinal, ordinal % 2)
        assert len(item.demonstration.encode()) < task.max_tokens
        for right in (item.demonstration, item.answer, f"#### ${item.answer}", f"That makes {item.answer} in all."):
            assert task.items.verify(item, right) == Score(1.0)
        for wrong in (f"#### {item.answer} or 3", f"{item.answer} is wrong, it is 1234567"):
            assert task.items.verify(item, wrong) == Score(0.0)
    assert task.items.verify(task.items.item(0, 0), "I do not know") == PolicyFault("no number")


def test_a_file_makes_room_for_its_longest_demonstration(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text('{"prompt": "q", "answer": "%s #### 5"}\n' % ("x" * 500))
    task = textfile(str(path))
    assert task.max_tokens == 500 + len(" #### 5") + 1
    assert task.name == f"{tmp_path.name}-train"
    assert textfile(str(path), max_tokens=300).max_tokens == 300


def test_generators_that_evaluate_answers_are_refused() -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    with pytest.raises(AssayError, match="may evaluate answers as code"):
        catalogue.find_task("reasoning-gym:countdown")
