"""Scores of six curves by hand, what is kept, the table that is passed on, and what the kept prompts are worth."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from assay.claims import About, Claims, Computed, Edit, Exact, Expect, Loop, Measured, by_hand, probes, same_gradient
from assay.claims.testbeds.language.ladder import dirty
from assay.method import BIGRAMS, AssayError, Preset, Recipe, Scene, State
from assay.methods.limr import HANDED, NearTheMean, by_chance, impact, recipe, scores_of

MEAN = np.array([0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
CURVES = (MEAN, MEAN[::-1], [0.5] * 6, [0, 0, 0, 1, 1, 1], [0.0] * 6, [1.0] * 6)
"""The mean, falling, flat, a late jump, never and always right; two more make the mean that of the first."""
REST = 8 * MEAN - np.sum(np.array(CURVES), 0)
SCORES = (1.0, 0.64824, 0.90452, 0.60302, 0.30151, 0.0)
TASK = dirty()


def score_gap() -> float:
    return probes.distance(impact(np.array([*CURVES, REST / 2, REST / 2]))[:6].tolist(), list(SCORES))


def after(ours: Recipe, *visits: list[float]) -> tuple[Scene, State]:
    """Returns a scene in which a pool of as many prompts had these visits in the first run, and that run's table."""
    scene = Scene(probes.prompts_of(*"abcdefghijkl"[: len(visits)]))
    first = probes.pool_state(ours.before[0].recipe, scene, *visits)[1]
    (path,) = ours.before[0].data
    assert path == "curriculum", path
    return scene.given(handed={ours.before[0].data[path]: first}), first


def wrong_choice(ours: Recipe) -> float:
    """Returns how many of the prompts that are proposed, in shuffled passes, are not near the mean; a longer curve is
    cut, and a prompt that was not visited left out. Infinite if another pool or an empty choice is accepted.
    """
    curves = [[*map(float, one)] for one in (*CURVES, REST / 2, REST / 2)]
    scene, _ = after(ours, curves[0] + [0.0], *curves[1:], [])
    pool, state = probes.pool_state(ours, scene)
    wrong = probes.wrong_passes(probes.chosen(ours, scene, state, 5, calls=6), state["rule"]["kept"])
    wrong += len(set(state["rule"]["kept"]) - {6, 7} ^ {0, 1, 2, 3})
    refused = [after(ours, [], []), after(ours, [1.0], [1.0]), (scene.given(task=probes.prompts_of("a")), {})]
    for given, _ in refused:
        try:
            pool.init(given)
        except AssayError:
            continue
        return np.inf
    return wrong


def gap_to_whole() -> float:
    """Returns how many starts differ between a threshold of -inf and no earlier run, in three batches."""
    ours = recipe(rule=NearTheMean(-np.inf))
    scene, _ = after(ours, [0.0], [1.0], [0.3], [0.2])
    pool = ours.curriculum
    assert pool is not None
    first, second = (probes.chosen(ours, one, pool.init(one), 3, 3) for one in (scene, Scene(scene.task)))
    return float(np.abs(np.subtract(first, second)).sum())


def drawn_by_chance() -> float:
    """Returns how many of four pools' random halves are as large as the chosen ones and not equal to them."""
    scene, _ = after(recipe(), [0.5], [0.5], [0.5], [0.4], [1.0], [1.0], [0.0], [0.0])
    sizes, other = 0, 0
    for seed in range(4):
        here = scene.given(draw=replace(scene.draw, seed=seed))
        pools = [one.curriculum for one in (recipe(), by_chance()) if one.curriculum is not None]
        ours, theirs = (pool.init(here)["rule"]["kept"] for pool in pools)
        sizes, other = sizes + (len(ours) == len(theirs) == len(set(theirs))), other + (ours != theirs)
    return float(min(sizes, other))


def first_run(seed: int, steps: int) -> State:
    """Returns the table of a first run."""
    loop = Loop(recipe(BIGRAMS).set("actor.rank", 64).before[0].recipe, TASK, seed=seed, num_steps=64)
    for _ in range(steps):
        loop.step()
    return loop.states["curriculum"]


def useless(seed: int, steps: int = 64) -> float:
    """Returns the share of impossible and mislabelled prompts among those kept after a first run."""
    score = scores_of(first_run(seed, steps)["visits"])
    return float(np.mean([8 <= place < 16 for place in np.flatnonzero(score >= 0.6)])) + 1e-9 * float(score.mean())


def learnt(make: Callable[[Preset], Recipe], seed: int, first: int = 64, steps: int = 40) -> float:
    """Returns the pass rate on learnable prompts after a second run on what the first one's table leaves."""
    loop = Loop(replace(make(BIGRAMS).set("actor.rank", 64), before=()), TASK, seed=seed, num_steps=40)
    loop.begin({HANDED: first_run(seed, first)})
    for _ in range(steps):
        loop.step()
    return float(TASK.exact(loop.actor)["pass_rate/3-learnable"])


def side(function: Callable[..., float], *given: object, **small: int) -> Computed:
    """Returns a side that is computed, and its small version."""
    return Computed(partial(function, *given), small=partial(function, *given, **small))

CLAIMS = Claims(
    claims=(
        Exact("a rising, falling, flat and jumping curve, zeros and ones have the formula's scores", score_gap,
              equals=0.0, tolerance=1e-5),
        Exact("prompts with a score of at least 0.6 are kept, in shuffled passes", lambda: wrong_choice(recipe()),
              equals=0.0),
        Exact("the first run's table holds every visit", lambda: probes.wrong_table(recipe().before[0].recipe),
              equals=0.0),
        Exact("each visit of a prompt has samples of its own", lambda: probes.wrong_visits(recipe(), dirty()),
              equals=0.0),
        same_gradient("its gradient is grpo's", recipe, by_hand.grpo_loss),
        Exact("a threshold of -inf keeps the order of the whole pool", gap_to_whole, equals=0.0,
              illustrates=True),
        Exact("the rival keeps as many, by chance", drawn_by_chance, equals=4.0, of="a variant"),
        Exact("prompts that are never right pass once the constant mean is below 0.387",
              lambda: impact(np.array([[0.0] * 4, [0.38743 * 2] * 4]))[0], equals=0.6, tolerance=1e-4,
              illustrates=True),
        Measured("after a first run that learns, fewer kept prompts are impossible or mislabelled than in the pool",
                 "", side(useless, steps=3), 0.25, expect=Expect.BELOW, margin=0.1, seeds=5, minutes=6.0),
        Measured("after a short first run they are kept: a control", "",
                 Computed(partial(useless, steps=16), small=partial(useless, steps=3)), 0.25, expect=Expect.ABOVE,
                 seeds=5, about=About.COMPONENT),
        Measured("learnable prompts are solved more often than after training on as many drawn at random",
                 "", side(learnt, recipe, first=8, steps=8), side(learnt, by_chance, first=8, steps=8),
                 seeds=5, looks=2, margin=0.05, minutes=8.0, about=About.HEADLINE),
    ),
    mutants=(
        Edit("the mirrored score", NearTheMean.init, "score >= self.threshold", "1 - score >= self.threshold"),
        Edit("nearness to one", impact, "shares_PK - mean", "shares_PK - 1.0"),
        Edit("another name", recipe, '{"curriculum": HANDED}', '{"curriculum": HANDED + "s"}'),
        Edit("chance is ignored", NearTheMean.init, "if self.chance:", "if False:"),
    ),
)
