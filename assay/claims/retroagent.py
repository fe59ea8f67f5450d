"""What retroagent's parts compute, against numbers worked out by hand. Axes: B rows, M lessons."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Final, Measured, by_hand, probes, same_gradient
from assay.method import PLACES, Draw, Experience, Need, Origin, Recipe, Scene, Verifier, recipes
from assay.methods.retroagent import Lessons, Progress, SimilarityUtility, cosine_of, pieces, recipe
from assay.ops.random import uniform_tensor
from assay.tasks.language.sorting import sorting

TASK = sorting(4)


ANSWER = TASK.items.item(0, 0).answer


WRONG = "="


SCORES = torch.tensor([0.9624, 0.9424, 1.2033])


GROUP = [ANSWER[:1] + WRONG, ANSWER[:2] + WRONG, ANSWER, WRONG]
"""phi 1/4, 1/2, 1 (won) and 0."""


LOST = [WRONG, GROUP[1], WRONG, WRONG]


def attempts(recipe: Recipe, *tries: list[str]) -> tuple[list[list[float]], float]:
    """What the recipe's rewards pay for groups of four attempts at one prompt, one after the other; and what progress
    remembers of it. A fifth row is an infrastructure fault that would have won, the fourth was cut.
    """
    scene, found = Scene(TASK), []
    states = [part.init(scene) for part in recipe.rewards]
    for completions in tries:
        rows = probes.completed(TASK, [*completions, ANSWER], [0] * 5, cut=[3], faults=[4])
        for part, state in zip(recipe.rewards, states, strict=True):
            rows = part(rows, scene, state)
        found.append((rows.reward * rows.mask).sum(1).tolist())
    return found, sum(states[-1]["best"].values())


def reward_gap(recipe: Recipe) -> float:
    """Of a group's rewards at the first and the second attempt, and of what is remembered, to the sheet's numbers."""
    found, best = attempts(recipe, GROUP, GROUP)
    wanted = [[0.25, 0.5, 11.0, 0.0, 0.0], [0.0, 0.25, 10.75, 0.0, 0.0]]
    return probes.distance(torch.tensor(found), torch.tensor(wanted)) + abs(best - 0.25)


def cosine_gap(recipe: Recipe) -> float:
    """Returns the largest gap of similarities of letter pairs to those by hand."""
    own, worst = pieces("aaab", lessons_of(recipe).letters), 0.0
    for text, wanted in (("aaab", 1.0), ("abab", 0.4), ("ba", 0.0), ("a", 0.0), ("aaaab", 7 / 50**0.5)):
        worst = probes.worst(worst, abs(cosine_of(own, pieces(text, lessons_of(recipe).letters)) - wanted))
    return worst


# ---------------------------------------------------------------------------------------------------- lessons
def retrieved(recipe: Recipe) -> Tensor:
    """Scores of the sheet's four lessons."""
    cosine, utility = torch.tensor([0.9, 0.6, 0.5, 0.39]), torch.tensor([0.5, 0.9, 0.5, 1.0])
    return lessons_of(recipe).retrieve(cosine, utility, torch.tensor([10.0, 10.0, 1.0, 1.0]))


def lessons_of(recipe: Recipe) -> Lessons:
    """The recipe's rollout."""
    assert isinstance(recipe.rollout, Lessons)
    return recipe.rollout


def shown_wrongly(recipe: Recipe) -> float:
    """Rows whose prompt is not the task's own (first half) or the lesson before it (second half), rows that are marked
    wrongly, and the gap of the lesson's utility and count to those of rows that win in the second half of the group.
    """
    rollout, members = lessons_of(recipe), lessons_of(recipe).gather.group_size
    (prompt,) = TASK.prompts(np.array([0]), 0)
    lesson: dict[str, Any] = {"prompt": prompt, "text": f"{prompt}{ANSWER}", "utility": 0.5, "count": 1}
    state = {"lessons": [lesson, {"prompt": "777", "text": "777=7", "utility": 0.9, "count": 1}]}

    def won(rows: Experience) -> Experience:
        return Verifier()(rows, Scene(TASK)).add({"score": (rows.extra["sample"] >= members // 2).float()})

    actor = probes.small_policy(TASK)
    rows = rollout(Scene(TASK, actor=actor, starts=np.array([0]), draw=Draw(0), reward=won), state)
    begun = [TASK.tokenizer.decode(row[there & ~decided].tolist()) for row, there, decided in zip(
             rows.context["tokens"], rows.context["valid"], rows.mask, strict=True)]  # fmt: skip
    wanted = [prompt] * (members // 2) + [f"{lesson['text']} {prompt}"] * (members // 2)
    wrong = sum(one != other for one, other in zip(begun, wanted, strict=True))
    with torch.no_grad():  # what was decoded saw the prompt that the row records
        wrong += int(not (actor.score(rows, frozenset({Need.LOGP})).logp - rows.logp).abs().max() <= 1e-4)
    wrong += int((rows.extra["hinted"] != (rows.extra["sample"] >= members // 2)).sum())
    utility = 1.0 - 0.5 * (1.0 - rollout.rate) ** (members // 2)
    last = TASK.texts(rows, 0)[-1]["completion"]
    new = {"prompt": prompt, "text": f"{prompt}{last}", "utility": 0.5, "count": 1}
    stored = [one for one in state["lessons"][2:] if one == new]
    lost = {"utility": 0.5, "count": 1}
    rollout.learn(lost, False)
    wrong += int(not abs(float(lost["utility"]) - 0.475) <= 1e-9)
    assert rows.source is not None
    source = torch.where(rows.extra["hinted"], int(Origin.HINTED), int(Origin.POLICY))
    wrong += int((rows.source != source).sum())
    return wrong + abs(lesson["utility"] - utility) + abs(lesson["count"] - 1 - members // 2) + abs(len(stored) - 1)


def mean_success(rollout: Lessons, seed: int, pulls: int = 2000) -> float:
    """Fifty lessons, ten contexts, cosines in [0.2, 0.95], lessons that help with probability 0.1 to 0.9: how often
    the lesson that is shown helps.
    """
    draw = [uniform_tensor(Draw(seed, (tag,)), shape) for tag, shape in enumerate(((10, 50), (50,), (pulls, 2)))]
    cosine, helps, chance = 0.2 + 0.75 * draw[0], 0.1 + 0.8 * draw[1], draw[2]
    lessons = [{"utility": 0.5, "count": 1} for _ in range(50)]
    found = 0
    for context, luck in zip((10 * chance[:, 0]).long().tolist(), chance[:, 1].tolist(), strict=True):
        utility, count = (torch.tensor([float(one[name]) for one in lessons]) for name in ("utility", "count"))
        choice = int(rollout.retrieve(cosine[context], utility, count).argmax())
        has_won = luck < float(helps[choice])
        rollout.learn(lessons[choice], has_won)
        found += has_won
    return found / pulls


SIMILAR = Lessons(retrieve=SimilarityUtility(share=1.0))


CLAIMS = Claims(
    mutants=(
        Edit("progress is paid in full", Progress.apply, "(phi - before)", "phi"),
        Edit("the newest share counts", Progress.apply, 'max(best.get(row["prompt"], 0.0), value)', "value"),
        Edit("the first half is shown the lesson", Lessons.__call__, ">= members // 2", "< members // 2"),
        Edit("lessons of lost rows", Lessons.remember, "if has_won", "if not has_won"),
        Edit("rare lessons are not preferred", SimilarityUtility.__call__, "self.bonus *", "0.0 *"),
        Edit("the farthest lesson", Lessons.nearest, "score.argmax()", "score.argmin()"),
        Edit("the outcome is not scaled", recipe, "ScaledReward(10.0)", "ScaledReward(1.0)"),
    ),
    claims=(
        Exact("it pays 10 won + max(0, phi - best before the group), twice; cut rows count, faults do not",
              lambda: reward_gap(recipe()), equals=0.0),
        same_gradient("its gradient is grpo's over the whole group", lambda: replace(recipe(), rewards=()),
                      by_hand.grpo_loss),
        Exact("the best share is kept after a group that failed",
              lambda: attempts(recipe(), GROUP, LOST)[1], equals=0.25),
        Exact("lessons are compared by their letter pairs", lambda: cosine_gap(recipe()), at_most=1e-6),
        Exact("lessons score 0.9624, 0.9424, 1.2033",
              lambda: (retrieved(recipe())[:3] - SCORES).abs().max(), at_most=1e-4),
        Exact("a lesson for another task is dropped", lambda: retrieved(recipe())[3].exp(), equals=0.0),
        Exact("half of a group is shown the lesson, and its utility learns from that half; what won is stored",
              lambda: shown_wrongly(recipe()), equals=0.0),
        Measured("similarity and utility choose lessons that help more often than similarity alone", "",
                 lambda seed: mean_success(Lessons(), seed), lambda seed: mean_success(SIMILAR, seed),
                 seeds=20, minutes=0.5, about=About.COMPONENT),
        Measured("where the start is right once in 10,000, paid progress is worth 0.2 of grpo's pass rate or more",
                 "lock:digits=4", recipe(PLACES, lessons=False), recipes.grpo(PLACES), Final("pass_rate"), margin=0.2,
                 seeds=5, minutes=3.0, steps=100, about=About.MECHANISM),
        Measured("with progress paid it scores higher than grpo where groups mostly fail; refuted by no gain",
                 "sorting-3", recipe(lessons=False), recipes.grpo(), seeds=5, minutes=4.0, steps=80, warmup=30,
                 about=About.HEADLINE),
    ),
)
