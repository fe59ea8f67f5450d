"""Prefixes by hand: of a task with one answer, and of worked solutions. Axes: B sequences, T decisions."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch

from assay.claims import About, Claims, Exact, Final, Gain, Item, Measured, PromptTask, by_hand, probes, sorting
from assay.claims.probes.rollouts import small_policy
from assay.method import PLACES, Draw, Experience, Recipe, Scene, recipes
from assay.methods.prefixrl import FromPrefixes, own_solutions, recipe
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.textfile import TextFile


def worked(solutions: list[tuple[str, str]]) -> PromptTask:
    """Returns the task of a file with these (solution, answer)."""
    rows = tuple(Item(f"{place}", answer, text) for place, (text, answer) in enumerate(solutions))
    return PromptTask("worked", TextFile("", "", 0.0, 0, rows, worked=True), CharacterTokenizer(), 8, 120)


def wrong_rows(recipe: Recipe) -> float:
    """Returns how many rows of groups of 8 are not: the prompt, the first `prefix` decisions of the demonstration
    without mask, then decisions with their log-probabilities; plus groups with several prefixes.
    """
    task = sorting(9)
    (found,), actor, _ = probes.gathered(recipe, task, starts=6)
    with torch.no_grad():
        logp = actor.score(found, frozenset()).logp
    wrong = float(not (logp - found.logp * found.mask).abs().max() <= 1e-4)
    pairs = zip(found.column("start").tolist(), found.column("prefix").tolist(), strict=True)
    for row, (start, given) in enumerate(pairs):
        tokens = task.begin(np.array([start]), 0).context["tokens"][0].tolist()
        tokens += task.tokenizer.encode(task.items.item(start, 0).demonstration)[:given]
        wrong += found.context["tokens"][row, : len(tokens)].tolist() != tokens
        wrong += int(found.mask[row].nonzero()[0]) != len(tokens)
    assert found.group is not None
    for start in range(6):
        prefix = found.column("prefix")[found.group == start]
        wrong += len(prefix) != 8 or len(prefix.unique()) > 1
    return wrong + float(found.column("prefix").max() == 0)


class Thirds(PromptTask):
    """A task in which an answer is right if its first token's number is divisible by 3."""

    def judge(self, experience: Experience, split: int) -> Experience:
        """Adds `score`."""
        first = experience.mask.long().argmax(1, keepdim=True)
        return experience.add({"score": (experience.action.gather(1, first)[:, 0] % 3 == 0).float()})


class Base:
    """The models of a scene: a base policy under the name `reference`, and no other."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def model(self, name: str) -> Any:
        """Returns the base policy."""
        assert name == "reference", name
        return self.policy

    def over(self, name: str, experience: Experience, function: Any) -> torch.Tensor:
        """Returns function(model, rows)."""
        found: torch.Tensor = function(self.model(name), experience)
        return found


def wrong_solutions(recipe: Recipe, starts: int = 12) -> float:
    """Returns how many groups of 8 do not begin with the base policy's first right sample, drawn here one by one, or
    have a prefix although no sample is right; plus 1 if no problem, or every one, has a solution.
    """
    usual, rollout = sorting(9), recipe.rollout
    assert isinstance(rollout, FromPrefixes)
    task = Thirds(*(getattr(usual, field.name) for field in fields(usual) if field.init))
    base, draw = small_policy(task, seed=1), Draw(0, (3,))
    scene = Scene(task, Base(base), draw, actor=small_policy(task), starts=np.arange(starts))
    with torch.no_grad():
        found = replace(rollout, plain=0.0)(scene, {})
        wrong = num_solved = 0
        for start in range(starts):
            tries = [
                task.play(base, np.array([start]), np.array([one]), draw.at(12), split=0, greedy=False)
                for one in range(4)
            ]
            right = [one.action[one.mask].tolist() for one in tries if int(one.action[one.mask][0]) % 3 == 0]
            num_solved += bool(right)
            for row in (found.column("start") == start).nonzero().flatten().tolist():
                given, told = int(found.column("prefix")[row]), found.action[row][found.column("answer")[row]]
                first = right[0] if right else []
                wrong += told[:given].tolist() != first[:given] or given > len(first) or (given == 0 and len(first) > 2)
    return float(wrong + (num_solved in (0, starts)))


def gap_of_fractions(recipe: Recipe) -> float:
    """Returns how far 300 prefixes of solutions of 100 tokens are outside of what uniform ones are, in shares."""
    task = worked([("." * 98 + "7", "7")])
    one = replace(recipe, rollout=replace(recipe.rollout, group_size=1))  # type: ignore[type-var]
    (found,), _, _ = probes.gathered(one, replace(task, max_tokens=101), starts=300)
    share = found.column("prefix").double() / 100
    some = share[share > 0]
    low, high, mean = some.min(), some.max(), some.mean()
    gaps = [0.4 - low, low - 0.41, high - 0.8, 0.78 - high, (mean - 0.595).abs() - 0.02]
    return probes.worst(0.0, *map(float, gaps), abs(len(some) / 300 - 0.75) - 0.06)


def prefixes_with_the_answer(recipe: Recipe) -> float:
    """Returns how many prefixes contain the answer of their solution, or are shorter than they need be."""
    early, late = "first 12 and 6 make 18. so 18 it is.\n#### 18", "we add 12 and 6 and find\n#### 18"
    part = replace(recipe.rollout, plain=0.0, shortest=0.8, group_size=1)  # type: ignore[type-var]
    (found,), _, _ = probes.gathered(replace(recipe, rollout=part), worked([(early, "18"), (late, "18"), ("18", "18")]))
    right = (early.index("18"), int(0.8 * (len(late) + 1)), int(0.8 * 3))
    return float(sum(one != other for one, other in zip(found.column("prefix").tolist(), right, strict=True)))


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradient is grpo's, on the decisions after the prefix",
              lambda: probes.formula_gap(recipe(), probes.ANY_OUTCOME, by_hand.grpo_loss), at_most=1e-9),
        Exact("a group continues one prefix of the demonstration, which is no decision", lambda: wrong_rows(recipe()),
              equals=0.0),
        Exact("prefixes are uniform from 40 to 80 %, and a quarter of the starts has none",
              lambda: gap_of_fractions(recipe()), at_most=0.0),
        Exact("with own solutions prefixes are of the base policy's first right sample, none without one",
              lambda: wrong_solutions(own_solutions(tries=4)), equals=0.0),
        Exact("no prefix of a worked solution states the answer", lambda: prefixes_with_the_answer(recipe()),
              equals=0.0),
        Measured(
            "where the start is right once in 10,000, without a prefix it is right more often than grpo",
            "lock:digits=4", recipe(PLACES), recipes.grpo(PLACES), Final("pass_rate"), seeds=5, minutes=10.0, steps=100,
            looks=2,
            about=About.HEADLINE,
        ),
        Measured(
            "where the start is right once in 10,000, it opens more locks within 64 tries than grpo",
            "lock:digits=4", recipe(PLACES), recipes.grpo(PLACES), Final("pass@64"), margin=0.1, seeds=5, minutes=10.0,
            steps=100, looks=2, about=About.HEADLINE,
        ),
        Measured(
            "trained from prefixes alone, the score without a prefix rises",
            "sorting-5", recipe(plain=0.0), 0.0, metric=Gain(), seeds=5, minutes=4.0, steps=100, warmup=60,
            about=About.MECHANISM,
        ),
    ),
)
