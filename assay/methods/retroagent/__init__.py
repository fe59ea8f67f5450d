"""retroagent: progress over what was reached before is paid; half of each group is shown a lesson from a memory.

    R = 10 won + max(0, phi - best[task]),   best[task] <- max(best[task], share of the group that won)
    lesson = argmax 0.6 cos(task, task_i) + 0.4 (u_i + sqrt(ln N / n_i)), cos >= 0.4;   u_i <- 0.95 u_i + 0.05 won

then grpo over the whole group, with and without a lesson. Zhang et al. 2026. Where all attempts at a task fail, grpo
learns nothing; the share phi of subtasks tells them apart until the task is won. Lessons are what earlier attempts
showed, chosen as arms of a bandit.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Edit, Exact, Final, Measured, Method, by_hand, same_gradient
from assay.core.recipe import Recipe
from assay.core.verifier import Verifier
from assay.methods.retroagent import claims
from assay.methods.retroagent.lessons import Lessons, SimilarityUtility
from assay.methods.retroagent.progress import History, Progress, best_progress, group_success
from assay.parts.rewards.scaled import ScaledReward
from assay.parts.rollouts.episodes import Episodes
from assay.recipes.defaults import LANGUAGE, PLACES, Defaults


def recipe(world: Defaults = LANGUAGE, history: History = group_success, lessons: bool = True) -> Recipe:
    base = recipes.grpo(world)
    assert isinstance(base.rollout, Episodes)
    rewards = (Verifier(), ScaledReward(10.0), Progress(history=history))
    return replace(base, name="retroagent", rewards=rewards, rollout=Lessons(base.rollout) if lessons else base.rollout)


SIMILAR = Lessons(retrieve=SimilarityUtility(share=1.0))

METHOD = Method(
    "arXiv:2603.08561", recipe, worlds=(LANGUAGE,), default_task="sorting-3", family="guidance", base=recipes.grpo,
    variants={"best-progress": lambda world: recipe(world, best_progress)},
    mutants=(
        Edit("progress is paid in full", Progress.apply, "(phi - before)", "phi"),
        Edit("the newest share counts", Progress.apply, 'max(best.get(row["prompt"], 0.0), value)', "value"),
        Edit("the first half is shown the lesson", Lessons.__call__, ">= members // 2", "< members // 2"),
        Edit("lessons of lost rows", Lessons.remember, "if has_won", "if not has_won"),
        Edit("rare lessons are not preferred", SimilarityUtility.__call__, "self.bonus *", "0.0 *"),
        Edit("the farthest lesson", Lessons.nearest, "score.argmax()", "score.argmin()"),
        Edit("the outcome is not scaled", recipe, "ScaledReward(10.0)", "ScaledReward(1.0)"),
    ),
    departures=(
        "phi is a program: the share of the answer that the completion begins with; no reflection by the model",
        "a lesson is a solved prompt of an earlier group, not a text by the model; similarity is of letter pairs",
        "an evaluation never sees a lesson; the authors show it three",
        "no KL to the reference (authors: 0.01), no second loss on reflections; an attempt is one answer",
        "small models cannot read a lesson: progress is measured without them, retrieval as a bandit",
    ),
    claims=(
        Exact("pays 10 won + max(0, phi - best before the group), twice; cut rows count, faults do not",
              lambda: claims.reward_gap(recipe()), equals=0.0),
        same_gradient("its gradient is grpo's over the whole group", lambda: replace(recipe(), rewards=()),
                      by_hand.grpo_loss),
        Exact("a task that was never won pays its full phi again and again",
              lambda: claims.attempts(recipe(), *[claims.LOST] * 5)[0][-1][1], equals=0.5),
        Exact("the best share is kept after a group that failed",
              lambda: claims.attempts(recipe(), claims.GROUP, claims.LOST)[1], equals=0.25),
        Exact("lessons are compared by their letter pairs", lambda: claims.cosine_gap(recipe()), at_most=1e-6),
        Exact("lessons score 0.9624, 0.9424, 1.2033",
              lambda: (claims.retrieved(recipe())[:3] - claims.SCORES).abs().max(), at_most=1e-4),
        Exact("a lesson for another task is dropped", lambda: claims.retrieved(recipe())[3].exp(), equals=0.0),
        Exact("half of a group is shown the lesson, and its utility learns from that half; what won is stored",
              lambda: claims.shown_wrongly(recipe()), equals=0.0),
        Measured("similarity and utility choose lessons that help more often than similarity alone", "",
                 lambda seed: claims.mean_success(Lessons(), seed), lambda seed: claims.mean_success(SIMILAR, seed),
                 seeds=20, minutes=0.5),
        Measured("where the start is right once in 10,000, paid progress is worth 0.2 of grpo's pass rate or more",
                 "lock:digits=4", recipe(PLACES, lessons=False), recipes.grpo(PLACES), Final("pass_rate"), margin=0.2,
                 seeds=5, minutes=3.0, steps=100),
        Measured("with progress paid, scores higher than grpo where groups mostly fail; refuted by no gain",
                 "sorting-3", recipe(lessons=False), recipes.grpo(), seeds=5, minutes=4.0, steps=80, warmup=30),
    ),
)  # fmt: skip
