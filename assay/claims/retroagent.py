"""What retroagent's parts compute, against numbers worked out by hand. Axes: B rows, M lessons."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Final, Item, Measured, by_hand, probes, refuses, same_gradient
from assay.claims import sorting
from assay.claims.testbeds.language.formats import formats
from assay.method import PLACES, Draw, Experience, Need, Origin, Recipe, Scene, Verifier, recipes
from assay.methods.retroagent import recipe
from assay.methods.retroagent.lessons import Lessons, SimilarityUtility, cosine_of, pieces
from assay.methods.retroagent.progress import Progress
from assay.methods.retroagent.reflection import REFLECTED, OwnReflection, solved_example
from assay.ops.random import uniform_tensor
from assay.tasks.language.scratch import scratch

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


def paid_elsewhere(ours: Recipe) -> list[float]:
    """Returns what half of the answer of prompt 1 is paid after all attempts at prompt 0 won, and again after one of
    its own group of two won.
    """
    part, scene = ours.rewards[-1], Scene(TASK)
    other, state, paid = TASK.items.item(1, 0).answer, part.init(scene), []
    for said, starts in (([ANSWER] * 2, [0, 0]), ([other[:2] + WRONG, other], [1, 1]), ([other[:2] + WRONG], [1])):
        rows = part(Verifier()(probes.completed(TASK, said, starts), scene), scene, state)
        paid.append(float((rows.reward * rows.mask).sum(1)[0]))
    return paid[1:]


def judged_wrongly(ours: Recipe) -> float:
    """Returns how many shares and lessons of a judge are read wrongly."""

    def judge(prompts: Sequence[str]) -> list[str]:
        assert all("{" not in one for one in prompts)
        return [" be calm " if "attempt was" in one else "Score: 4" if "half" in one else "well" for one in prompts]

    progress, lessons = ours.rewards[-1].with_judge(judge), lessons_of(ours).with_judge(judge)  # type: ignore[attr-defined]
    rows = [{"prompt": "p", "completion": "half"}, {"prompt": "q", "completion": "all"}]
    return (progress.phi(rows) != [0.4, 0.0]) + (lessons.reflect(Scene(TASK), rows, [True, False]) != ["be calm"] * 2)


def reflected_wrongly(ours: Recipe) -> float:
    """Returns how many lessons differ from what a policy samples after the question; none if the task cannot ask."""
    task = probes.listed(Item("p", "7", "7"), Item("q", "7", "7"))
    actor, rows = probes.small_policy(task), [{"prompt": "p", "completion": "7"}, {"prompt": "q", "completion": "8"}]
    scene = Scene(task, actor=actor, draw=Draw(3))
    asked = [REFLECTED.format(prompt=row["prompt"], completion=row["completion"], verdict=said) for row, said in zip(
             rows, ("was right", "was wrong"), strict=True)]  # fmt: skip
    with torch.no_grad():
        found = lessons_of(ours).reflect(scene, rows, [True, False])
        again = task.play_prompts(actor, asked, np.arange(2), np.zeros(2, dtype=int), Draw(3).at(9), split=0)
    wrong = sum(one != other.strip() for one, other in zip(found, task.completions(again), strict=True))
    return wrong + (not probes.is_refused(ours, formats())) + (len(set(found)) < 2)


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
        Edit("lessons of lost rows", solved_example, "if is_won", "if not is_won"),
        Edit("one best for all prompts", Progress.apply, 'best.get(row["prompt"], 0.0) for',
             "max(best.values(), default=0.0) for"),
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
        Exact("what was reached in one task is not taken from the progress in another",
              lambda: probes.distance(paid_elsewhere(recipe()), [0.5, 0.0]), equals=0.0),
        Exact("a judge says how much is done and writes lessons; what it does not say is 0",
              lambda: judged_wrongly(recipe()), equals=0.0),
        refuses("a task with worked answers is refused", recipe, lambda: scratch(4)),
        Exact("the policy's lesson is what it writes after its attempt and the verdict",
              lambda: reflected_wrongly(recipe(reflect=OwnReflection())), equals=0.0, of="reflect"),
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
