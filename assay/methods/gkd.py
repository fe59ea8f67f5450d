"""gkd: distils a teacher on the student's own answers, token by token; no reward and no critic.

    loss = mean over tokens of D(pi, q),   y ~ pi on a share of the prompts, demonstrations on the others
    D = beta KL(q || m) + (1 - beta) KL(pi || m),   m = beta q + (1 - beta) pi;   beta 0: KL(q || pi), 1: KL(pi || q)

Agarwal et al. 2024. A student that is trained on given texts alone meets prefixes of its own when it writes; here
the teacher corrects it where it goes. D is over the teacher's 100 likeliest tokens and all others together. `sampled`
is the policy gradient with the advantage log q(y_t) - log pi(y_t) of sampled tokens alone.
"""

from dataclasses import dataclass, replace

import torch

from assay.method import LANGUAGE, AssayError, Copy, DemonstratedTask, Experience, Method, Origin, Phase, Preset
from assay.method import Recipe, Rollout, Scene, State, concatenate, logp_of, random, recipes, with_policy
from assay.parts import Around, Distil, Episodes, JensenShannon, NoTrust, PolicyGradient, RewardToGo, TeacherCandidates
from assay.parts import TeacherReward, TokenMean


@dataclass(frozen=True)
class PartlyShown(Around):
    """Plays `gather` on a share `own` of the starts, drawn for each, and takes the task's demonstrations of the others.

    Demonstrations are recorded with the log-probabilities of the acting policy, so that their ratio is 1. Degenerate:
    share 1 is `gather`; share 0 is supervised distillation, which samples nothing.
    """

    gather: Rollout = Episodes()
    own: float = 1.0

    def init(self, scene: Scene) -> State:
        """Returns the state of the inner rollout; raises AssayError if the task has no demonstrations to show."""
        if not 0.0 <= self.own <= 1.0:
            raise AssayError(f"rollout.own is {self.own}. Use a share from 0 (demonstrations) to 1 (own answers)")
        if self.own < 1.0 and not isinstance(scene.task, DemonstratedTask):
            what = f"task '{scene.task.name}' has no demonstrations"
            raise AssayError(f"{what}. Set rollout.own=1, or add a field 'answer' to its rows")
        return super().init(scene)

    def __call__(self, scene: Scene, state: State) -> Experience:
        is_own, parts = random.uniform(scene.draw.at(17), scene.starts) < self.own, []
        if is_own.any():
            played = self.gather(scene.given(starts=scene.starts[is_own]), state)
            parts.append(replace(played, source=torch.full((len(played),), int(Origin.POLICY))))
        if not is_own.all():
            assert isinstance(scene.task, DemonstratedTask)
            shown = scene.task.demonstrate(scene.starts[~is_own], scene.split)
            parts.append(replace(shown, logp=logp_of(scene.actor, shown)))
        return concatenate(parts)


def recipe(preset: Preset = LANGUAGE, beta: float = 0.5, own: float = 1.0) -> Recipe:
    """Returns distillation of the teacher, a share `own` of it on answers of the policy itself."""
    base = with_policy(recipes.rloo(preset), "gkd", Distil(JensenShannon(beta)))
    return taught(
        replace(
            base,
            credit=(TeacherCandidates(),),
            copies={"teacher": Copy(of="actor")},
            rollout=PartlyShown(Episodes(PROMPTS, 1), own),
        ),
        preset,
    )


PROMPTS = 128
"""Prompts of a step, one answer each: answers of one prompt are not compared."""


def taught(ours: Recipe, preset: Preset, steps: int = 600) -> Recipe:
    """Returns the recipe after a phase in which a teacher of the student's size learns from demonstrations; with
    --teacher the phase is left out.
    """
    phase = Phase("teacher", recipes.sft(preset), steps, hands={"actor": "teacher"}, from_scratch=True)
    return replace(ours, before=(phase,))


def reverse(preset: Preset = LANGUAGE) -> Recipe:
    """KL(pi || q), whose weights are the policy's: over its own likeliest tokens."""
    ours = recipe(preset, beta=1.0)
    return replace(ours, credit=(TeacherCandidates(of_policy=True),))


def forward(preset: Preset = LANGUAGE) -> Recipe:
    """KL(q || pi), whose weights are the teacher's."""
    return recipe(preset, beta=0.0)


def supervised(preset: Preset = LANGUAGE) -> Recipe:
    """The same loss on demonstrations alone: supervised distillation."""
    return recipe(preset, own=0.0)


def sampled(preset: Preset = LANGUAGE) -> Recipe:
    """A policy gradient on KL(pi || q) with the sampled tokens alone: one log-probability of the teacher for each."""
    ours = with_policy(recipe(preset), "gkd", PolicyGradient(trust=NoTrust(), aggregate=TokenMean()))
    return replace(ours, credit=(TeacherReward(own=0.0), RewardToGo(discount=0.0)))


METHOD = Method(
    paper="arXiv:2306.13649",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="sorting-5",
    family="distillation",
    base=recipes.rloo,
    variants={"reverse": reverse, "forward": forward, "supervised": supervised, "sampled": sampled},
    departures=(
        "D is over the teacher's 100 likeliest tokens (gkd:reverse: the student's) and all others together, not over "
        "the whole vocabulary; with no more tokens than that it is the same",
        "the share of own answers is drawn for each prompt, not for each batch",
        "a reward beside the distance is not in this loss: --teacher-weight adds the teacher to any method's rewards",
    ),
)
