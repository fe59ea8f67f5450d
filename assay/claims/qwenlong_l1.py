"""Phases, weights of what comes back and verdicts by hand."""

from dataclasses import replace
from typing import Any

import numpy as np

from assay.claims import About, Claims, Edit, Exact, Expect, Final, Item, Measured, by_hand, chain, probes
from assay.claims import same_gradient
from assay.claims.testbeds.language.ladder import dirty
from assay.method import READING, Draw, Experience, Progress, Recipe, Scene, State
from assay.methods.qwenlong_l1 import ChatSame, Either, Growing, at_once, phased, recipe, stands_in
from assay.parts import Pool
from assay.tasks.language.household import household

INPUTS = Scene(probes.prompts_of("a" * 15, "b" * 16, "c" * 63, "d" * 64, "e" * 3, "f" * 255))
"""With the start token these are inputs of 16, 17, 64, 65, 4 and 256 tokens."""
FACTS = probes.listed(Item("Who?", "the red fox", "the red fox"))


def limited(ours: Recipe) -> Recipe:
    """Returns the recipe with limits of 16, 64 and 256 tokens."""
    pool = ours.curriculum
    assert isinstance(pool, Pool)
    assert isinstance(pool.rule, Growing)
    return replace(ours, curriculum=replace(pool, rule=replace(pool.rule, limits=(16, 64, 256))))


def asked(ours: Recipe, state: State, step: int, num: int = 8, steps: int = 90) -> list[int]:
    """Returns the starts that a step of a run proposes."""
    scene = INPUTS.given(num_starts=num, progress=Progress(step, steps), draw=Draw(0, (step,)))
    assert ours.curriculum is not None
    return [int(start) for start in ours.curriculum(scene, state)]


def wrong_phases(ours: Recipe) -> float:
    """Returns how many starts of a run do not belong to their phase, with a quarter of each batch from earlier ones;
    with limits, and by thirds of the pool.
    """
    wrong = 0
    for one, parts in ((limited(ours), ((0, 4), (1, 2), (3, 5))), (ours, ((0, 4), (1, 2), (3, 5)))):
        state = one.curriculum.init(INPUTS)  # type: ignore[union-attr]
        for step in range(90):
            found, phase = asked(one, state, step), step // 30
            earlier = {start for own in parts[:phase] for start in own}
            own, back = [start for start in found if start in parts[phase]], [x for x in found if x in earlier]
            wrong += len(own) != 8 - 2 * (phase > 0) or len(back) != 2 * (phase > 0)
            wrong += not abs(own.count(parts[phase][0]) - own.count(parts[phase][1])) <= 1
    return float(wrong)


def back_gap(ours: Recipe) -> float:
    """Returns how far the shares of four earlier prompts, last right in 0, 1/8, 1/2 and all of their answers, are from
    8 : 8 : 2 : 1, beyond what 16,000 draws leave, and the weights of four others from the sheet's.
    """
    one = limited(ours)
    pool, state = probes.pool_state(one, INPUTS, [0.5, 0.0], [0.5], [0.9, 1.0], [], [0.125])
    starts = np.concatenate([asked(one, state, step, 400, 480) for step in range(320, 480)])
    shares = np.array([(starts == start).sum() for start in (0, 4, 1, 2)]) / 16_000
    weights = pool.rule.weights(np.array([0.125, 0.25, 0.5, 1.0]))  # type: ignore[attr-defined]
    apart = float(not np.abs(weights - [0.53333, 0.26667, 0.13333, 0.06667]).max() <= 1e-4)
    return apart + float(not np.abs(shares - np.array([8, 8, 2, 1]) / 19).max() <= 0.015)


def judged(ours: Recipe, *said: str, judge: Any = None) -> list[float]:
    """Returns the rewards of answers to a question whose right answer is "the red fox"; the last row is a fault."""
    reward = ours.rewards[-1]
    assert isinstance(reward, Either)
    rows: Experience = probes.completed(FACTS, [*said, said[0]], [0] * (len(said) + 1), faults=[len(said)])
    part = reward if judge is None else reward.with_judge(judge)
    return probes.rewarded(replace(ours, rewards=(*ours.rewards[:-1], part)), FACTS, rows).tolist()


def wrong_verdicts(ours: Recipe) -> float:
    """Returns how many of ten answers are paid wrongly: by the rule, by the program and by a chat model."""
    said = {"the red fox": 1, "Red fox!": 1, "a red fox it is": 1, "a very old and red fox": 0, "red": 0, "fox red": 0,
            "redfox": 0, "the": 0}  # fmt: skip
    wrong = sum(abs(one - two) for one, two in zip(judged(ours, *said), [*said.values(), 0], strict=True))
    seen: list[str] = []

    def ask(prompts: Any) -> list[str]:
        seen.extend(prompts)
        told = {"vixen": "Verdict: no. Verdict: yes", "hound": "verdict: **no**", "cat": "yes"}
        return [next((reply for word, reply in told.items() if f"answer: {word}" in one), "?") for one in prompts]

    paid = judged(ours, "vixen", "the red fox", "hound", "cat", "{answer}", judge=ask)
    asked_of = [one.split("Given answer: ")[1].split("\n")[0] for one in seen]
    return wrong + float(np.abs(np.array(paid) - [1, 1, 0, 0, 0, 0]).sum()) + (
        asked_of != ["vixen", "hound", "cat", "{answer}"]) + any("Who?" not in one for one in seen)  # fmt: skip


def whole_passes() -> float:
    """Returns how many of six batches of one phase do not have every prompt."""
    ours = at_once()
    state = ours.curriculum.init(INPUTS)  # type: ignore[union-attr]
    return probes.wrong_passes([start for step in range(6) for start in asked(ours, state, 16 * step, 6)], range(6))


def accepted() -> float:
    """Returns how many of three unfit tasks are accepted: states, conversations, and an input above the last limit."""
    short = recipe(rule=Growing(limits=(16, 64)))
    tasks: list[tuple[Recipe, Any]] = [(recipe(), chain(4)), (recipe(), household(2)), (short, INPUTS.task)]
    return float(sum(not probes.is_refused(*one) for one in tasks))


CLAIMS = Claims(
    claims=(
        Exact("a phase asks inputs up to its limit and above the one before, and brings back a quarter",
              lambda: wrong_phases(recipe()), equals=0.0),
        Exact("what comes back is drawn by 1 / success at the last visit, 1/8 at least", lambda: back_gap(recipe()),
              equals=0.0),
        Exact("an answer is right by the rule, the program or a chat model, never by a fragment",
              lambda: wrong_verdicts(recipe()), equals=0.0),
        same_gradient("its gradient is grpo's", lambda: replace(recipe(), rewards=()), by_hand.grpo_loss),
        Exact("every visit is remembered", lambda: probes.wrong_table(phased()), equals=0.0),
        Exact("each visit of a prompt has samples of its own", lambda: probes.wrong_visits(recipe(), dirty()),
              equals=0.0),
        Exact("in one phase every pass has all prompts", whole_passes, equals=0.0, of="a variant"),
        Exact("states, conversations and inputs above the last limit are refused", accepted, equals=0.0, of="refusals"),
        Measured("where the longest inputs ask for five digits they are solved more often than with all lengths at "
                 "once, after as many tokens", "stretched", recipe(READING), at_once(READING), Final("pass_rate"),
                 margin=0.1, seeds=5, looks=2, steps=120, minutes=4.0, about=About.HEADLINE),
        Measured("where they ask for four, in three quarters of the steps, they are solved less often: a control",
                 "stretched:digits=4", recipe(READING), at_once(READING), Final("pass_rate"), Expect.BELOW, seeds=5,
                 looks=2, steps=90, minutes=4.0, about=About.COMPONENT),
    ),
    mutants=(
        Edit("mastered prompts come back", Growing.weights, "1.0 / np.maximum(success_P, self.floor)",
             "np.maximum(success_P, self.floor)"),
        Edit("twice the judge", Either.apply, "torch.maximum(total[rows], judged)", "total[rows] + 2 * judged"),
        Edit("the mean success", Growing.choose, "seen.shares[place][-1] if", "float(np.mean(seen.shares[place])) if"),
        Edit("any substring", stands_in, "<= 2 * len(right)", "<= 99 * len(right)"),
        Edit("the first verdict", ChatSame.__call__, "own[-1] == YES", "own[0] == YES"),
    ),
)
