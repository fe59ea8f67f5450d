"""Orders of prompts whose rates are given, and what stands in the place of failed rows. Axes: B rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from assay.claims import About, AtEqual, Claims, Edit, Exact, Item, Measured, PromptTask, by_hand, chain, probes
from assay.claims import same_gradient
from assay.claims.testbeds.language.ladder import dirty
from assay.method import BIGRAMS, DISCARDED, READING, Draw, Experience, Need, Origin, Progress, Recipe, Scene, random
from assay.method import recipes
from assay.methods.adcl_egsr import OwnWords, Resorted, curriculum_alone, recipe, static
from assay.parts import Episodes, InPrompt, Pool
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.textfile import TextFile


@dataclass(frozen=True)
class Rated(PromptTask):
    """Prompts that are solved at given rates, whatever policy answers; it notes what was sampled."""

    rates: dict[int, float] = field(default_factory=dict)
    sampled: list[tuple[int, int]] = field(default_factory=list)

    def play(self, actor: Any, starts: np.ndarray, samples: np.ndarray, draw: Draw, **how: Any) -> Experience:
        self.sampled.extend(zip(starts.tolist(), samples.tolist(), strict=True))
        pairs = zip(starts.tolist(), samples.tolist(), strict=True)
        paid = [float(sample % 8 < 8 * self.rates[start]) for start, sample in pairs]
        return probes.visits(starts.tolist(), starts.tolist(), paid)

    def judge(self, experience: Experience, split: int) -> Experience:
        return experience.add({"score": experience.reward.sum(1)})


def rated(rates: Mapping[int, float]) -> Rated:
    """Returns the task of prompts with these rates."""
    rows = tuple(Item(f"{place}", "1", "1") for place in rates)
    return Rated("rated", TextFile("", "", 0.0, 0, rows), CharacterTokenizer(), 9, 9, rates=dict(rates))


EASY_FIRST = [2, 5, 0, 1, 4, 3]
RATES = {0: 5 / 8, 1: 4 / 8, 2: 1.0, 3: 0.0, 4: 2 / 8, 5: 7 / 8}


def ordered(ours: Recipe, then: Mapping[int, float], batches: int = 3) -> tuple[list[int], Rated, Scene]:
    """Returns the starts of two passes, four at a time, where rates are others after the first four."""
    task = rated(RATES)
    pool = ours.curriculum
    assert isinstance(pool, Pool)
    assert isinstance(pool.rule, Resorted)
    pool = replace(pool, rule=replace(pool.rule, batches=batches))
    scene = Scene(task, models=probes.Only(None), num_starts=4, progress=Progress(0, 9), draw=Draw(3))
    state, found = pool.init(scene), []
    for time in range(3):
        found += pool(scene.given(draw=Draw(3, (time,))), state).tolist()
        task.rates.update(then)
    return found, task, scene


def wrong_orders(ours: Recipe) -> float:
    """Returns how many orders of two passes are wrong: with unchanged rates; where two prompts of the last part and two
    of different parts have changed places; in one part; and how many samples are used twice or are not counted.
    """
    swapped = {4: 0.0, 3: 1.0, 2: 2 / 8, 0: 1.0}
    wrong = int(ordered(ours, {})[0] != EASY_FIRST * 2)
    found, task, scene = ordered(ours, swapped)
    wrong += found != [2, 5, 0, 1, 3, 4, 5, 2, 0, 1, 3, 4]
    wrong += ordered(ours, swapped, 1)[0] != [*EASY_FIRST, 0, 3, 5, 1, 2, 4]
    wrong += len(set(task.sampled)) != len(task.sampled) or len(task.sampled) != 8 * (6 + 2 * 5)
    spent = sum(value for value, _ in scene.metrics[DISCARDED])
    return float(wrong + (spent != len(task.sampled)) + (min(sample for _, sample in task.sampled) < 1 << 24))


def kept_order() -> float:
    """Returns 1 if the rival's order changes with the rates."""
    found, task, _ = ordered(static(), {4: 0.0, 3: 1.0})
    return float(found != EASY_FIRST * 2) + (len(task.sampled) != 48)


DIRTY = dirty(trivial=0.0, impossible=0.5, mislabelled=0.0, solved=12)
STARTS = np.array([17, 2, 20, 18, 25, 30, 19])


def words_of(ours: Recipe, scored: float = 0.0) -> tuple[Experience, Experience, Any, Scene]:
    """Returns what is gathered with and without own words from a random policy that sees the solution, the policy, and
    the scene.
    """
    part = ours.rollout
    assert isinstance(part, OwnWords)
    part = replace(part, hint=InPrompt("{prompt}{hint}"), replaced=2, tries=20, threshold=scored)
    with random.seeded(0), torch.no_grad():
        actor = BIGRAMS.actor.build(DIRTY.spec)
        for tensor in actor.parameters():
            tensor.add_(torch.randn_like(tensor))
    scene = Scene(DIRTY, actor=actor, starts=STARTS, draw=Draw(0), reward=lambda rows: DIRTY.judge(rows, 0))
    with torch.no_grad():
        return part(scene, part.init(scene)), scene.reward(part.gather(scene, part.gather.init(scene))), actor, scene


def wrong_rows(ours: Recipe) -> float:
    """Returns how many rows are wrong: live groups that changed, failed ones without a right answer of the policy's
    own or with more than two, groups of another size, answers after another prompt, old log-probabilities that are not
    the policy's after the bare prompt, and tokens that are not counted.
    """
    after, before, actor, scene = words_of(ours)
    assert after.group is not None
    assert before.group is not None
    wrong, swapped = int(after.column("start").tolist() != before.column("start").tolist()), 0
    for label in before.group.unique():
        old, new = before.rows(before.group == label), after.rows(after.group == label)
        is_new = new.column("hinted")
        own, live = new.rows(~is_new), bool((old.column("score") > 0).any())
        wrong += len(new) != len(old) or bool(live and is_new.any()) or int(is_new.sum()) > 2
        wrong += not torch.equal(own.action[own.mask], old.rows(slice(0, len(own))).action[old.mask[: len(own)]])
        taught, swapped = new.rows(is_new), swapped + int(is_new.sum())
        assert taught.source is not None
        wrong += bool((taught.column("score") <= 0).any()) or bool((taught.source != int(Origin.HINTED)).any())
        told = [DIRTY.tokenizer.decode(row[1:2].tolist()) for row in taught.context["tokens"]]
        wrong += told != DIRTY.prompts(taught.column("start").numpy(), 0)
        wrong += not bool((taught.mask.int().argmax(1) == 2).all()) if len(taught) else 0
        with torch.no_grad():
            logp = actor.score(taught, frozenset({Need.LOGP})).logp if len(taught) else taught.logp
        wrong += not torch.allclose(torch.where(taught.mask, logp, 0.0), taught.logp, atol=1e-6)
    failed = {int(start) for start in STARTS if not (before.column("score")[before.column("start") == start] > 0).any()}
    spent = sum(value for value, _ in scene.metrics[DISCARDED])
    return float(wrong + (swapped < 3) + (spent != 2 * 20 * len(failed)))


def changed_live() -> float:
    """Returns how many rows change where the threshold makes every group a live one."""
    after, before, _, scene = words_of(recipe(), -1.0)
    changed = (after.action != before.action).sum() + (after.logp != before.logp).sum()
    return float(changed) + len(scene.metrics.get(DISCARDED, ()))


def accepted() -> float:
    """Returns how many of two unfit tasks are accepted: states, and a file whose answers stand alone."""
    return float(sum(not probes.is_refused(recipe(), task) for task in (chain(4), probes.prompts_of("a"))))


def of_seven(ours: Recipe) -> Recipe:
    """Returns the recipe with seven prompts a step."""
    assert isinstance(ours.rollout, OwnWords)
    return replace(ours, rollout=replace(ours.rollout, gather=Episodes(7, 8)))


CLAIMS = Claims(
    claims=(
        Exact("parts are sorted again by the present policy when they are reached, and keep their prompts",
              lambda: wrong_orders(curriculum_alone()), equals=0.0),
        Exact("the rival keeps the start's order", kept_order, equals=0.0, of="a variant"),
        Exact("in failed groups right answers of the policy's own stand after the bare prompt, at its log-probability",
              lambda: wrong_rows(of_seven(recipe())), equals=0.0),
        Exact("live groups are as gathered, to the bit", changed_live, equals=0.0, illustrates=True),
        same_gradient("its gradient is grpo's", recipe, by_hand.grpo_loss),
        Exact("every visit is remembered, guided answers are not", lambda: probes.wrong_table(recipe()), equals=0.0),
        Exact("each visit of a prompt has samples of its own", lambda: probes.wrong_visits(curriculum_alone(), dirty()),
              equals=0.0),
        Exact("states and files whose answers stand alone are refused", accepted, equals=0.0, of="refusals"),
        Measured("where the start is right once in 10,000 it is right more often than grpo at equally many generated "
                 "tokens", "reading:digits=4", recipe(READING), recipes.grpo(READING),
                 AtEqual("pass_rate", reached="decisions_total"), margin=0.1, seeds=5, minutes=4.0, steps=60, looks=2,
                 about=About.HEADLINE),
    ),
    mutants=(
        Edit("hard first", Resorted.sorted, "np.argsort(-right", "np.argsort(right"),
        Edit("all are sorted again", Resorted.choose, "own = self.sorted(own, seen",
             "own = self.sorted(sum(state['parts'], []), seen"),
        Edit("wrong guided answers too", OwnWords.matched, "> self.threshold", "> self.threshold - 1"),
        Edit("the log-probability under the hint", OwnWords.__call__, "logp_of(scene.actor, bare)", "bare.logp"),
        Edit("after the guided prompt", OwnWords.__call__,
             'task.onto(used, task.prompts(used.column("start").numpy(), scene.split))', "used"),
    ),
)
