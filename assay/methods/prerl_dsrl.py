"""prerl-dsrl: first lowers wrong answers without their prompts, then grpo.

    in the first twentieth of a run: loss = -0.01 mean_t A clipped(rho_t),   rho_t = P(y_t | y_<t) / P_old(y_t | y_<t)
    over answers with A = R - mean R of the group < 0, after the start token alone;   then grpo with a mean over tokens

2026 (arXiv:2604.14142, DSRL). Answers are sampled from prompts and verified as usual. The gradients of log P(y) and
log P(y | x) point the same way in a language model, so that wrong reasoning is pruned for all prompts at once. The
optimizer keeps its state at the switch. Not a policy gradient; recorded log-probabilities are recomputed, or the
ratio would compare two contexts. A model that never saw a bare answer has little to say about P(y).

Axes: B rows, T decisions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from assay.method import LANGUAGE, AssayError, Experience, Method, Phase, Prepare, Preset, PromptedTask, Recipe, Scene
from assay.method import State, concatenate, groups, logp_of, model_name, recipes, with_policy
from assay.parts import BySign, Demonstrations, DualClip, GroupMean, OutcomeCredit, PolicyGradient, Reweigh, WithoutIdle


def need_prompts(scene: Scene) -> None:
    """Raises AssayError if the task has no prompts; does nothing without a task."""
    if scene.task is not None and not isinstance(scene.task, PromptedTask):
        what = f"task '{scene.task.name}' has no prompts that answers could be scored without"
        raise AssayError(f"{what}. Use a language task of single answers")


@dataclass(frozen=True)
class WithoutPrompt(Prepare):
    """In the first `share` of the run: rows are the start token and the answer, with the log-probabilities that `actor`
    gives them there, and only wrong ones learn, by `coefficient` times (outcome - group mean).

    `right` and `wrong` weigh answers above and below the mean: 0 leaves them out of every mean. Afterwards nothing is
    changed. Place it after the credit of the rest of the run. Degenerate: share 0 changes nothing; outside of a run,
    without a task, contexts stay.
    """

    share: float = 0.05
    coefficient: float = 0.01
    right: float = 0.0
    wrong: float = 1.0
    actor: str = model_name("actor")
    reads: ClassVar[tuple[str, ...]] = ("advantage",)

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if the task has no prompts."""
        need_prompts(scene)
        return {}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites contexts, log-probabilities, `advantage` and the mask."""
        if scene.progress.fraction >= self.share:
            return experience
        task, weights = scene.task, BySign(self.coefficient * self.right, self.coefficient * self.wrong)
        # Rounding of the mean must not turn one of equal answers into a wrong one.
        differs = groups.differs(groups.outcome(experience), groups.row_groups(experience)).unsqueeze(1)
        experience = OutcomeCredit(GroupMean())(experience)
        experience = experience.add({"advantage": experience.column("advantage") * differs})
        for part in (Reweigh(weights), WithoutIdle()):
            experience = part(experience)
        if not isinstance(task, PromptedTask):  # outside of a run; `init` refuses such tasks
            return experience
        bare = task.bare(experience)
        logp = scene.models.over(self.actor, bare, logp_of).to(bare.logp.dtype)
        return replace(bare, logp=logp * bare.mask)


@dataclass(frozen=True)
class Unprompted(Demonstrations):
    """Yields `batch` demonstrations per step, each once, in order; every other one after the start token alone.

    A model from scratch learns P(y) beside P(y | x) so; a language model has it from pretraining.
    """

    def init(self, scene: Scene) -> State:
        """Returns ordinal 0; raises AssayError if the task has no demonstrations or no prompts."""
        need_prompts(scene)
        return super().init(scene)

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields one batch."""
        (shown,) = super().__call__(scene, state)
        assert isinstance(scene.task, PromptedTask)
        yield concatenate([shown.rows(slice(0, None, 2)), scene.task.bare(shown.rows(slice(1, None, 2)))])


def plain(preset: Preset = LANGUAGE) -> Recipe:
    """Returns grpo with a mean over tokens: what the method is after the switch."""
    return with_policy(recipes.grpo(preset), "grpo-tokens", PolicyGradient(trust=DualClip(0.2, 0.2, 10.0)))


def recipe(preset: Preset = LANGUAGE, first: WithoutPrompt = WithoutPrompt()) -> Recipe:
    """Returns grpo after a phase that lowers wrong answers without their prompts."""
    base = plain(preset)
    taught = replace(recipes.sft(preset), actor=base.actor, source=Unprompted())
    phase = Phase("unprompted", taught, 100, from_scratch=True)
    return replace(base, name="prerl-dsrl", credit=(*base.credit, first), before=(phase,))


def prerl(preset: Preset = LANGUAGE) -> Recipe:
    """Without the second phase: wrong answers without their prompts to the end."""
    return recipe(preset, WithoutPrompt(share=1.0))


METHOD = Method(
    paper="arXiv:2604.14142",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="sorting-5",
    family="policy gradient",
    base=plain,
    variants={"nsr-prerl": prerl, "grpo-tokens": plain},
    results=(
        "undecided after ten seeds: right within 16 tries 0.744 and grpo 0.750, more on four of them; a gain "
        "above 0.012 is excluded",
    ),
    departures=(
        "the first twentieth of the run instead of 20 steps",
        "the dual clip of 10 stays on after the switch",
        "a model from scratch first learns P(y): a phase of demonstrations, half of them without their prompts",
        "pass@16 is claimed on sorting: tables of tokens share no parameters between prompts and no prompt, and a "
        "transformer on countdown takes more time than a claim here may",
    ),
    pilots=(
        "two designs for the cosine (a larger transformer: +0.07, one seed)",
        "with the first fifth of the run a small model forgets its task, 0.59 to 0.02 on sorting-5, and ends at 0.71; "
        "with a twentieth it does not, and ends at 0.69 (one seed each). On countdown, 0.10 at first, it ends at 0.00",
    ),
)
