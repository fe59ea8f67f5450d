"""The functions behind mpo-meta's exact claims."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from assay.claims import About, Claims, Edit, Exact, Expect, Measured, by_hand, probes, refuses, same_gradient, sorting
from assay.method import LANGUAGE, Adam, Experience, Progress, Recipe, Scene
from assay.methods.mpo_meta import LOOSE, Criterion, EvolvingRubric, Rubric, limit_exploited, points, recipe
from assay.parts import Episodes, FromFunction
from assay.tasks.language.proxy_strings import proxy_strings


TASK = proxy_strings()


def part_of(recipe: Recipe) -> EvolvingRubric:
    """The recipe's own reward."""
    (part,) = recipe.rewards
    assert isinstance(part, EvolvingRubric)
    return part


def exploiting(step: int) -> Experience:
    """Rows of four prompts that are marks and one letter; the last one has left training, the one before is cut."""
    rows = probes.completed(TASK, ["##########"] * 4, range(4), cut=(2,), faults=(3,))
    return rows.add({"sample": torch.full((4,), step)})


def reward_error(recipe: Recipe) -> float:
    """Against an independent count on five rows: content, marks, beyond the limit, cut, fault."""
    letters = TASK.prompts(torch.tensor([0]).numpy(), 0)[0][:3]
    said = [letters[0] * 3, letters[0] * 6, "##!", "#" * 11, letters]
    paid = probes.rewarded(recipe, TASK, probes.completed(TASK, said, [0] * 5, cut=(3,), faults=(4,)))
    points = torch.tensor([3.0, 4.0 - 2.0, 2 * 2.0 + 1.5, 11 * 2.0, 0.0])
    return probes.distance(paid, points / (4.0 + 24.0 + 18.0))


def version_errors(recipe: Recipe) -> int:
    """Of seven steps with T = 3: those whose rows carry another version than 0 0 0 1 1 1 2, or another rubric, or after
    which other limits or another number of rollouts is kept.
    """
    part, seen, wrong = part_of(recipe), set(), 0
    state = part.init(Scene(TASK))
    for step in range(7):
        rows = part(exploiting(step), Scene(TASK, progress=Progress(step, 7)), state)
        (version,), (mark,) = (rows.column(name).unique().tolist() for name in ("rubric_version", "rubric_hash"))
        seen.add(mark)
        found = (version, len(seen), [one[3] for one in state["rubric"]], len(state["rollouts"]))
        wrong += found != (step // 3, 1 + (step > 2), [4, 1 if step > 2 else 12, 12], 3 + 3 * (step % 3))
    return wrong


def closed_wrongly(recipe: Recipe) -> int:
    """Rewrites that change the rubric though what was paid differs with the prompt, or all rollouts have one prompt."""
    part, starts = part_of(recipe), torch.arange(8).numpy()
    shown = TASK.texts(TASK.demonstrate(starts, 0), 0)
    same = TASK.texts(probes.completed(TASK, ["####"] * 3, [0] * 3), 0)
    return sum(part.rewrite(LOOSE, rows) != LOOSE for rows in (shown, same))


def rewrites(ours: Recipe, steps: int = 40) -> list[int]:
    """Returns at which of these steps the shipped recipe rewrites its rubric, by a rewrite that closes nothing."""
    seen = list[int]()

    def rewrite(rubric: Rubric, rollouts: Sequence[Mapping[str, Any]]) -> Rubric:
        seen.append(step)
        return rubric

    part = replace(part_of(ours), rewrite=rewrite)
    state = part.init(Scene(TASK))
    for step in range(steps):
        part(exploiting(step), Scene(TASK, progress=Progress(step, steps)), state)
    return seen


def chat(prompts: Sequence[str]) -> list[str]:
    """A chat model that gives a right answer 6, 2 and 1 points, others 0. It rewrites to one criterion if it is shown
    these points, and gives 4 of its 5; a 9 is out of range.
    """
    said = {True: "right: 6\nreasons: 2\nbrief: 1\nx: 4", False: "right: 0\nreasons: 9\nbrief: none\nx: 9"}
    new = ["x | 5 | the number" if "Points: 9" in one else "" for one in prompts]
    return [new[k] if "NAME | MOST" in one else said["Answer:\n7\n" in one] for k, one in enumerate(prompts)]


def chat_error(ours: Recipe) -> float:
    """Returns how far answers are from a chat model's points of 10, 9 for a right one, 0 for what cannot be read, and
    in the next interval from its points of 5 by the rubric that it wrote; and whether that is the rubric then.
    """
    part = replace(part_of(ours).with_judge(chat), every=1)
    task, rows = probes.answered(["7", "8"])
    state = part.init(Scene(task))
    paid = [part(rows, Scene(task, progress=Progress(step, 2)), state).reward.sum(1) for step in range(2)]
    error = probes.distance(torch.cat(paid), torch.tensor([0.9, 0.0, 0.8, 0.0]))
    return error + (state["rubric"] != [["x", "the number", 1.0, 5]])


def first_rubric(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """The first rubric's reward of each row."""
    values = []
    for row in rows:
        said, total = str(row["completion"]), 0.0
        asked = sum(character in str(row["answer"]) for character in said)
        for count, worth, limit in ((asked, 1.0, 4), (said.count("#"), 2.0, 12), (said.count("!"), 1.5, 12)):
            total += worth * (min(count, limit) - max(0, count - limit))
        values.append(total / 46.0)
    return values


def fixed_difference(recipe: Recipe) -> float:
    """Largest difference of weights after two steps to the same recipe that a function pays the first rubric's way."""
    rival = replace(recipe, rewards=(FromFunction(first_rubric),))
    ours, theirs = (probes.trained(one, TASK, seed=5, steps=2).engine.flats for one in (recipe, rival))
    return probes.worst(*(probes.distance(ours[name].values, theirs[name].values) for name in ours))


NEVER = 10**9


SMALL = replace(LANGUAGE, fragment_rollout=Episodes(8, 4), optimizer=Adam(learning_rate=1e-3, clip_norm=1.0))


FIXED = replace(recipe(SMALL, every=NEVER), name="ppo-fixed-rubric")


ORACLE = replace(recipe(SMALL, (Criterion(),), NEVER), name="ppo-oracle-rubric")
"""Pays content alone, as one would who knew the gold score: no loophole, and nothing to rewrite."""


CLAIMS = Claims(
    mutants=(
        Edit("matches beyond the limit are free", points, " - max(0, count - criterion.limit)", ""),
        Edit("loopholes stay open", limit_exploited, "replace(one, limit=1)", "one"),
        Edit("whatever differs with the prompt is closed", limit_exploited, "len(said) == 1", "len(said) >= 1"),
        Edit("the rubric is rewritten at every step", EvolvingRubric.apply, "scene.progress.step // self.every >",
             "scene.progress.step >"),
        Edit("rollouts of all intervals", EvolvingRubric.apply, ", rollouts=[])", ")"),
        Edit("the meta-judge sees faults", EvolvingRubric.keep, "if is_there", "if True"),
        Edit("KL is rewarded", recipe, "KlInReward(0.02 / 5)", "KlInReward(-0.02 / 5)"),
    ),
    claims=(
        same_gradient("its gradients are ppo's with 0.004 KL in the reward", lambda: replace(recipe(), rewards=()),
                      lambda seen: by_hand.ppo_of_tokens(by_hand.with_kl(seen, 0.004))),
        Exact("rows with content, with marks, beyond the limit, cut and faulty get the points counted by hand",
              lambda: reward_error(recipe()), equals=0.0),
        Exact("with T = 3 rows of steps 1 to 7 carry versions 0 0 0 1 1 1 2, the second with a closed loophole",
              lambda: version_errors(recipe(every=3)), equals=0.0),
        Exact("the shipped recipe rewrites in steps 10, 20 and 30 of 40",
              lambda: probes.distance(torch.tensor(rewrites(recipe())), torch.tensor([10, 20, 30])), equals=0.0),
        Exact("a chat model's points are a share of the attainable, what cannot be read is 0, its rewrite is read",
              lambda: chat_error(recipe()), at_most=1e-6),
        refuses("without a rubric other tasks are refused", recipe, lambda: sorting(3)),
        Exact("no loophole that differs with the prompt is closed, and none if there is one prompt",
              lambda: closed_wrongly(recipe()), equals=0.0),
        Exact("with T longer than the run it is ppo with the fixed rubric, bitwise", lambda: fixed_difference(
              recipe(replace(SMALL, fragment_rollout=Episodes(2, 2)), every=NEVER)), equals=0.0, tolerance=0.0),
        Measured("gold at the end is within 0.1 of that under an oracle's rubric, which pays content alone",
                 "proxy-strings", recipe(SMALL), ORACLE, expect=Expect.WITHIN, margin=0.1, seeds=5, minutes=4.0,
                 steps=50, warmup=30, about=About.MECHANISM),
        Measured("with two loopholes planted, gold at the end is above that of the fixed rubric", "proxy-strings",
                 recipe(SMALL), FIXED, seeds=5, minutes=4.0, steps=50, warmup=30, about=About.HEADLINE),
    ),
)
