"""Conversations: what is recorded, who decided what, how they go on, and the three partners."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from assay import recipes
from assay.claims.laws.rollout import built, small_actor
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, InfraFault, Need, PolicyFault, Score
from assay.core.slots import DemonstratedTask, ResumableTask, Scene, Task
from assay.engine.loop import Loop
from assay.methods.delethink import Chunks
from assay.recipes.presets import LANGUAGE, preset_for
from assay.rollouts.resumed_episodes import first_decisions
from assay.rollouts.text import CharacterTokenizer
from assay.rollouts.turns import utterances
from assay.rollouts.words import WordTokenizer
from assay.runs import catalogue
from assay.tasks.language import calculator, household, twenty_questions
from assay.tasks.language.dialogue import DialogueTask, Reply
from assay.tasks.language.items import Item
from tests.scenes import gathering

DRAW = Draw(3, (0,))
NAMES = [*twenty_questions.LEVELS, *calculator.LEVELS, *household.LEVELS]
EVERY_LEVEL = pytest.mark.parametrize("name", NAMES)
HOME = pytest.mark.parametrize("name", ["twenty-questions-2", "calculator-1", "household"])
STARTS, SAMPLES = np.array([5, 1, 1, 8, 5, 2]), np.array([0, 0, 1, 0, 2, 0])


def actor_of(task: DialogueTask):
    return built(small_actor(task.spec), task.spec)


def played(task: DialogueTask, starts=STARTS, samples=SAMPLES, greedy=False) -> Experience:
    return task.play(actor_of(task), starts, samples, DRAW, split=0, greedy=greedy)


def row_of(experience: Experience, row: int) -> list:
    return experience.action[row][experience.context["valid"][row]].tolist()


# ---------------------------------------------------------------------------------------------------- playing
@HOME
def test_recorded_log_probabilities_are_those_of_scoring(name: str) -> None:
    task = catalogue.find_task(name)
    record = played(task)
    again = actor_of(task).score(record, frozenset({Need.LOGP})).logp
    assert torch.allclose(again, record.logp, atol=1e-5)
    assert bool((record.logp[record.mask] < 0).all())
    assert not record.logp[~record.mask].any()


@HOME
def test_a_row_does_not_depend_on_the_others_nor_on_padding(name: str) -> None:
    task = catalogue.find_task(name)
    whole = played(task)
    for row in (1, 4):
        alone = played(task, STARTS[row : row + 1], SAMPLES[row : row + 1])
        assert row_of(alone, 0) == row_of(whole, row)
        size = alone.num_columns
        assert torch.equal(alone.mask[0], whole.mask[row, :size])
        assert torch.equal(alone.turn[0], whole.turn[row, :size])
        assert torch.allclose(alone.logp[0], whole.logp[row, :size], atol=1e-5)
    assert row_of(whole, 1) != row_of(whole, 2)  # other sample, other numbers
    assert torch.equal(played(task, greedy=True).action[1], played(task, greedy=True).action[2])


@HOME
def test_replies_are_context_and_stand_where_they_were_given(name: str) -> None:
    """Rebuilt by hand from the utterances alone."""
    task = catalogue.find_task(name)
    record = played(task)
    for row, (start, said) in enumerate(zip(STARTS, task.conversations(record), strict=True)):
        item = task.partner.item(int(start), 0)
        tokens = [1, *task.tokenizer.encode(item.prompt)]
        mask, turn = [False] * len(tokens), [0] * len(tokens)
        own = utterances(record.action[row].tolist(), record.mask[row].tolist(), record.turn[row].tolist())
        for place, ids in enumerate(own):
            tokens, mask, turn = [*tokens, *ids], mask + [True] * len(ids), turn + [place] * len(ids)
            assert ids[-1] == 2 or len(ids) == task.max_tokens
            reply = task.partner.reply(item, said[: place + 1])
            if place + 1 < len(own):
                assert reply.outcome is None
                heard = task.tokenizer.encode(reply.text)
                tokens, mask = [*tokens, *heard], mask + [False] * len(heard)
                turn = turn + [place + 1] * len(heard)
        assert len(own) == task.max_turns or reply.outcome is not None
        assert row_of(record, row) == tokens
        assert record.mask[row, : len(mask)].tolist() == mask
        assert record.turn[row, : len(turn)].tolist() == turn
        assert record.terminal[row].nonzero().flatten().tolist() == [len(tokens) - 1]
        assert bool(record.truncated[row].any()) == (own[-1][-1] != 2 or reply.outcome is None)


@HOME
@pytest.mark.parametrize("limit", [None, 1, 3])
def test_going_on_is_playing(name: str, limit: int | None) -> None:
    task = catalogue.find_task(name)
    assert isinstance(task, ResumableTask)
    actor, whole, begun = actor_of(task), played(task), task.begin(STARTS, 0)
    parts = []
    for _ in range(1 if limit is None else 200):
        part = task.resume(actor, begun, SAMPLES, DRAW, split=0, limit=limit)
        parts.append(part)
        begun = part
        if bool((part.terminal | part.truncated | ~part.mask.any(1, keepdim=True)).any(1).all()):
            break
    assert [row_of(begun, row) for row in range(6)] == [row_of(whole, row) for row in range(6)]
    assert torch.equal(begun.column("answer")[:, : whole.num_columns], whole.mask)
    total = torch.stack([torch.nn.functional.pad(p.logp, (0, whole.num_columns - p.num_columns)) for p in parts]).sum(0)
    assert torch.allclose(total, whole.logp, atol=1e-5)
    assert torch.equal(begun.turn, whole.turn)


@HOME
def test_going_on_after_some_decisions_is_the_same_episode(name: str) -> None:
    task = catalogue.find_task(name)
    whole = played(task)
    for given in (1, 2, 5):
        begun = first_decisions(whole, torch.full((6,), given))
        again = task.resume(actor_of(task), begun, SAMPLES, DRAW, split=0)
        assert [row_of(again, row) for row in range(6)] == [row_of(whole, row) for row in range(6)]
        assert bool((again.mask.sum(1) == (whole.mask.sum(1) - given).clamp(min=0)).all())


def test_a_rollout_that_forgets_is_refused() -> None:
    task = catalogue.find_task("twenty-questions-2")
    rollout = Chunks(num_starts=2, group_size=1, chunk=4, carry=1)
    with pytest.raises(AssayError, match="has conversations of turns"):
        rollout.init(Scene(task))
    with pytest.raises(AssayError, match="whole conversations"):
        rollout(gathering(task, actor_of(task), np.array([0, 1]), DRAW), {})


# ---------------------------------------------------------------------------------------------------- judging
@dataclass(frozen=True)
class Counting:
    """Says 7; an utterance of 8 ends well, 9 is a fault of ours; 5 earns a half."""

    def item(self, ordinal: int, split: int) -> Item:
        return Item(f"{ordinal}=", "8", "5\n8")

    def reply(self, item: Item, said: Sequence[str]) -> Reply:
        outcome = {"8": Score(1.0), "9": InfraFault("the tool is away"), "6": PolicyFault("six", -1.0)}.get(said[-1])
        return Reply("7", outcome, reward=0.5 if said[-1] == "5" else 0.0)


COUNTING = DialogueTask("counting", Counting(), CharacterTokenizer(), 4, max_turns=3, max_tokens=2, max_reply=1)


class Scripted:
    """An actor that says the given tokens, whatever it sees."""

    def __init__(self, words: dict[int, str]) -> None:
        self.words, self.tokenizer = words, CharacterTokenizer()

    def decoder(self, prompts, repeats, num_new):
        rows = [list(prompt) for prompt, times in zip(prompts, repeats, strict=True) for _ in range(times)]
        return ScriptedDecoder(self, rows)


class ScriptedDecoder:
    def __init__(self, actor: Scripted, rows: list[list[int]]) -> None:
        self.actor, self.rows, self.said = actor, rows, [0] * len(rows)

    def logits(self) -> torch.Tensor:
        result = torch.full((len(self.rows), 64), -50.0)
        for place, row in enumerate(self.rows):
            script = self.actor.words[int(self.actor.tokenizer.decode(row[1:2]))].replace("/", "\0")
            heard = self.actor.tokenizer.decode(row[3:]).count("7")
            ids = [2 if c == "\0" else self.actor.tokenizer.encode(c)[0] for c in script]
            spoken = len(row) - 3 - heard
            result[place, ids[min(spoken, len(ids) - 1)]] = 50.0
        return result

    def push(self, tokens: torch.Tensor) -> None:
        for row, token in zip(self.rows, tokens.tolist(), strict=True):
            row.append(token)

    def keep(self, rows: torch.Tensor) -> None:
        self.rows = [self.rows[row] for row in rows.tolist()]


def test_outcomes_faults_and_rewards_of_turns() -> None:
    scripts = {0: "8/", 1: "5/5/8/", 2: "1/2/3/", 3: "9/", 4: "12345", 5: "5/6/"}
    starts = np.arange(6)
    record = COUNTING.play(Scripted(scripts), starts, np.zeros(6, np.int64), DRAW, split=0, greedy=False)
    assert COUNTING.conversations(record) == [
        ["8"],
        ["5", "5", "8"],
        ["1", "2", "3"],
        ["9"],
        ["12", "34", "55"],
        ["5", "6"],
    ]
    judged = COUNTING.judge(record, 0)
    assert judged.column("score").tolist() == [1.0, 2.0, 0.0, 0.0, 0.0, -0.5]
    assert judged.column("policy_fault").tolist() == [False, False, True, False, True, True]
    assert judged.column("infra_fault").tolist() == [False, False, False, True, False, False]
    assert not judged.mask[3].any()
    assert judged.reward[1][judged.mask[1]].tolist() == [0.0, 0.5, 0.0, 0.5, 0.0, 1.0]
    assert judged.reward[5][judged.mask[5]].tolist() == [0.0, 0.5, 0.0, -1.0]
    assert record.truncated.any(1).tolist() == [False, False, True, False, True, False]
    told = COUNTING.describe(judged, 2)
    assert (told["completion"], told["turns"], told["fault"]) == ("1 > 7 | 2 > 7 | 3 > 7", 3, "the turns ran out")
    unfinished = COUNTING.judge(COUNTING.begin(starts, 0), 0)
    assert not unfinished.column("score").any()


def test_a_partner_that_breaks_its_contract_is_named() -> None:
    class Broken(Counting):
        def reply(self, item, said):
            return "7"

    class Long(Counting):
        def reply(self, item, said):
            return Reply("77")

    for partner, message in ((Broken(), "must return a Reply"), (Long(), "max_reply is 1")):
        task = replace(COUNTING, partner=partner)
        with pytest.raises(AssayError, match=message):
            task.play(Scripted({0: "1/"}), np.array([0]), np.array([0]), DRAW, split=0, greedy=False)


# ---------------------------------------------------------------------------------------------------- partners
@EVERY_LEVEL
def test_every_demonstration_wins_within_the_limits(name: str) -> None:
    task = catalogue.find_task(name)
    assert isinstance(task, Task)
    assert isinstance(task, DemonstratedTask)
    assert preset_for(task) is LANGUAGE
    for split in (0, 1):
        shown = task.demonstrate(np.arange(100), split)
        assert shown.column("score").tolist() == [1.0] * 100
        assert int(shown.turn.max()) < task.max_turns
        assert shown.num_columns <= task.spec.horizon
        assert shown.reward.sum(1).tolist() == [1.0] * 100
        assert torch.equal(shown.mask.any(1), torch.ones(100, dtype=torch.bool))


@EVERY_LEVEL
def test_no_content_is_in_both_splits_and_items_are_functions_of_their_number(name: str) -> None:
    task = catalogue.find_task(name)

    def content(ordinal: int, split: int) -> str:
        item = task.partner.item(ordinal, split)
        numbers = sorted(item.prompt.strip("=").split("*"))
        return f"{numbers} {item.answer}" if "*" in item.prompt else f"{item.prompt} {item.answer} {item.facts}"

    train, held = ({content(ordinal, split) for ordinal in range(300)} for split in (0, 1))
    assert not train & held
    assert task.partner.item(7, 0) == task.partner.item(7, 0)
    assert task.partner.item(7, 0) != task.partner.item(7, 1)


@pytest.mark.parametrize("level", [2, 3])
def test_asking_what_is_not_known_always_wins_twenty_questions(level: int) -> None:
    task = catalogue.find_task(f"twenty-questions-{level}")
    known = twenty_questions.ATTRIBUTES[:level]
    for ordinal in range(60):
        item = task.partner.item(ordinal, 0)
        answers, said = item.prompt.split(), []
        while True:
            left = [
                [v for v in values if f"yes-{v}" in answers] or [v for v in values if f"no-{v}" not in answers]
                for values in known
            ]
            open_ones = [values for values in left if len(values) > 1]
            said.append(f"{open_ones[0][0]} ?" if open_ones else " ".join(v[0] for v in left) + " !")
            reply = task.partner.reply(item, said)
            if reply.outcome is not None:
                break
            answers.append(reply.text.strip())
        assert reply.outcome == Score(1.0)
        assert len(said) <= task.max_turns


@pytest.mark.parametrize(
    ("said", "reply", "value"),
    [
        ("[6*7]", "42", None), ("[(1+2)*3]", "9", None), ("[1/3]", "?", None), ("[1/0]", "?", None),
        ("[__import__]", "?", None), ("[99*99*99]", "?", None), ("[]", "?", None), ("12", "wrong", 0.0),
        ("[6*7", "wrong", 0.0), (" 56 ", "right", 1.0), ("", "wrong", 0.0),
    ],
)  # fmt: skip
def test_the_calculator_computes_and_never_raises(said: str, reply: str, value: float | None) -> None:
    item = Item("7*8=", "56", "56")
    given = calculator.Calculator(1).reply(item, [said])
    assert given.text.strip() == reply
    assert (None if given.outcome is None else given.outcome.value) == value


def test_the_household_obeys_its_rules() -> None:
    house = household.House("kitchen", (("apple", "bed"), ("cup", "fridge")))
    item = Item("", "", "", {"house": house, "thing": "cup", "target": "sink"})
    lines = {
        "take cup": "nothing", "put sink": "nothing", "open sink": "nothing", "open drawer": "nothing",
        "open fridge": "fridge cup", "open": "nothing", "take apple": "nothing", "take cup now": "nothing",
        "take cup ": "ok", "go bedroom": "bedroom : bed apple ; drawer closed", "take apple ": "nothing",
        "put drawer": "nothing", "put sink ": "nothing", "go kitchen": "kitchen : sink ; fridge", "put sink  ": "done",
    }  # fmt: skip
    said = list(lines)
    for place, expected in enumerate(lines.values()):
        reply = household.Household(2).reply(item, said[: place + 1])
        assert reply.text.strip() == expected, said[place]
        assert (reply.outcome is not None) == (expected == "done")


def test_every_command_of_two_words_is_answered_within_the_limit() -> None:
    task = catalogue.find_task("household-3")
    item = task.partner.item(0, 0)
    for pair in itertools.product(household.WORDS, repeat=2):
        reply = task.partner.reply(item, [" ".join(pair)])
        assert len(task.tokenizer.encode(reply.text)) <= task.max_reply


def test_words_go_there_and_back() -> None:
    tokenizer = WordTokenizer(("a", "bb", "?"))
    assert tokenizer.encode("bb ?\n a") == [4, 5, 3]
    assert tokenizer.decode([1, 4, 5, 3, 2]) == "bb ? a"
    assert tokenizer.decode([99]) == "\N{REPLACEMENT CHARACTER}"
    with pytest.raises(ValueError, match="lacks 'c'"):
        tokenizer.encode("a c")


# ---------------------------------------------------------------------------------------------------- in a run
@HOME
def test_a_token_method_trains_on_conversations_and_describes_them(name: str) -> None:
    task = catalogue.find_task(name)
    recipe = recipes.grpo(LANGUAGE).set("rollout.num_starts", 3).set("rollout.group_size", 2).set("actor.width", 16)
    loop = Loop(recipe, task, seed=0, num_steps=2)
    steps = [loop.step() for _ in range(2)]
    assert not [alarm for step in steps for alarm in step.alarms if alarm.stop]
    told = task.describe(steps[0].fresh, 0)
    assert len(told["tokens"]) == len(told["credit"]) == int(steps[0].fresh.mask[0].sum())
