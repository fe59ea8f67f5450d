"""retroagent: progress over what was reached before is paid; half of each group is shown a lesson from a memory.

    R = 10 won + max(0, phi - best[task]),   best[task] <- max(best[task], share of the group that won)
    lesson = argmax 0.6 cos(task, task_i) + 0.4 (u_i + sqrt(ln N / n_i)), cos >= 0.4;   u_i <- 0.95 u_i + 0.05 won

then grpo over the whole group, with and without a lesson. Zhang et al. 2026. Where all attempts at a task fail, grpo
learns nothing; the share phi of subtasks tells them apart until the task is won. Lessons are what earlier attempts
showed, chosen as arms of a bandit: solved examples, or what the policy (retroagent:reflect) or a judge writes of them.
An attempt is an answer or, on tasks of turns such as household, a whole episode.

Axes: B sequences, T decisions, M lessons.
"""

from dataclasses import replace

from assay.method import LANGUAGE, Method, Preset, Recipe, Verifier, recipes
from assay.methods.retroagent.lessons import Lessons
from assay.methods.retroagent.progress import History, Progress, best_progress, group_success
from assay.methods.retroagent.reflection import OwnReflection, Reflect, solved_example
from assay.parts import Episodes, ScaledReward


def recipe(
    preset: Preset = LANGUAGE,
    history: History = group_success,
    lessons: bool = True,
    reflect: Reflect = solved_example,
) -> Recipe:
    """Returns grpo paid for the task and for progress; `lessons` shows half of a group what was learnt before."""
    base = recipes.grpo(preset)
    assert isinstance(base.rollout, Episodes)
    rewards = (Verifier(), ScaledReward(10.0), Progress(history=history))
    rollout = Lessons(base.rollout, reflect=reflect) if lessons else base.rollout
    return replace(base, name="retroagent", rewards=rewards, rollout=rollout)


def reflecting(preset: Preset = LANGUAGE) -> Recipe:
    """Returns the recipe whose lessons the policy writes itself: for a pretrained model."""
    return recipe(preset, reflect=OwnReflection())


METHOD = Method(
    paper="arXiv:2603.08561",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="sorting-3",
    family="guidance",
    base=recipes.grpo,
    variants={"best-progress": lambda preset: recipe(preset, best_progress), "reflect": reflecting},
    departures=(
        "phi is a program: the share of the answer that the completion begins with, of a conversation the subtasks "
        "that its partner counts; or what a judge says (--judge), without which other tasks are refused",
        "a lesson is a solved episode of an earlier group; the policy writes it in retroagent:reflect, a judge with "
        "--judge; similarity is of letter pairs; no prediction of success that keeps wrong reflections out",
        "an evaluation never sees a lesson; the authors show it three",
        "no KL to the reference (authors: 0.01), no second loss on reflections",
        "small models cannot read a lesson: progress is measured without them, retrieval as a bandit; turns are not",
    ),
    results=(
        "the headline fails on sorting-3: 0.34 to 0.43 with progress paid, grpo 0.46 to 0.59, on each of five seeds. "
        "Where grpo finds nothing new (lock:digits=4, right once in 10,000) the same pay gains 0.52 of the pass rate. "
        "So progress helps where outcomes say nothing; that it costs where they do since wrong answers are paid was "
        "not shown",
    ),
)
