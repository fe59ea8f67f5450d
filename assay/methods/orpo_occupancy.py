"""orpo-occupancy: PPO on a proxy reward minus a divergence of visited state-actions from a base policy's.

    reward_t = proxy_t - clip(weight * D(d_t), limit),   d = log mu_pi(s, a) - log mu_base(s, a)
    D = d (KL), e^d - 1 (chi2), (e^d - 1) / sqrt(chi2) (here)
    discriminator loss = mean_pi softplus(-d) + mean_base softplus(d); in language d = log pi - log pi_ref

Laidlaw et al. 2024 (not the preference loss of that name). A proxy that correlates with the reward where the base goes
says nothing of where it does not. Small steps away at every action can lead far from there; the divergence of the
visits bounds what is lost, (J(pi, R) - J(base, R)) / sd >= (proxy gain / sd - sqrt((1 - r^2) chi2)) / r.

Axes: B, T, N samples.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.method import EVERY, TABLE, Adam, Choice, Copy, Experience, Method, Need, Origin, Phase, Preset, ProxyTask
from assay.method import Recipe, Reward, Scene, Stage, State, Verifier, is_last_true, model_name, recipes
from assay.models import ActionValue
from assay.parts import Fragments, FromModel, Label, Log, Logged, OfAction, Replay, Retained, told_apart


@dataclass(frozen=True)
class OfAnswers(Choice):
    """d = log pi(y | x) - log pi_base(y | x), exact: an answer is one step, so there is nothing to learn.

    On the last decision of each row, not a number elsewhere; as recorded for the policy, computed for the base.
    """

    model: str = model_name("reference")

    def __call__(self, critic: Any, rows: Experience) -> Tensor:
        """[B, T]."""
        base = critic.score(rows, frozenset({Need.LOGP})).logp.to(rows.logp.dtype)
        total = ((rows.logp - base) * rows.mask).sum(1, keepdim=True)
        return torch.where(is_last_true(rows.mask), total, torch.nan)


def chi_square(d_N: Tensor) -> Tensor:
    """D = e^d - 1: chi2(mu_pi || mu_base). Half of its gradient, as in the authors' code: `weight` absorbs the 2."""
    return d_N.exp() - 1.0


def root_chi_square(d_N: Tensor, trim: float = 0.01) -> Tensor:
    """D = (e^d - 1) / sqrt(c), c = mean of e^d - 1 without a share `trim` at each end: the gradient of sqrt(chi2).

    Degenerate: c <= 0 divides by nothing; fewer than 1 / trim samples are all kept; infinite ones are not in c.
    """
    excess = chi_square(d_N)
    kept = excess[excess.isfinite()].sort().values
    cut = int(trim * len(kept))
    centre = kept[cut : len(kept) - cut].sum() / max(1, len(kept) - 2 * cut)
    return excess / centre.sqrt() if bool(centre > 0) else excess


@dataclass(frozen=True)
class Penalty(Choice):
    """clip(-weight * D(d), +-limit), and 0 where D is infinite or not a number; D is the KL with `ops.divergences.k1`.

    Logs the divergence and how often the clip acts. Episodes of unequal length would be paid for their length by the
    constant in D: use it with a fixed horizon, or on whole answers.
    """

    divergence: Callable[[Tensor], Tensor] = root_chi_square
    weight: float = 0.1
    limit: float = 10.0
    breaks: ClassVar[dict[str, str]] = {"alone_in_batch": "the occupancy is that of the whole batch"}

    def __call__(self, d_N: Tensor, scene: Scene) -> Tensor:
        """[N]."""
        cost = self.divergence(d_N)
        num, cost = float(cost.isfinite().sum()), torch.where(cost.isfinite(), cost, 0.0)
        scene.log("occupancy_divergence", float(cost.sum()), num)
        scene.log("occupancy_clipped", float((self.weight * cost.abs() > self.limit).sum()), num)
        return (-self.weight * cost).clamp(-self.limit, self.limit)


@dataclass(frozen=True)
class SeenReward(Reward):
    """reward = the task's proxy of the context after each decision; logs `reward/true` and `reward/proxy`.

    The task's own reward stays what is evaluated. Degenerate: on a task without a proxy the reward stays as it is,
    and is the proxy.
    """

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        proxy, num = scene.task.proxy if isinstance(scene.task, ProxyTask) else None, float(experience.mask.sum())
        seen = experience
        if proxy is not None:
            after = {name: column.roll(-1, 1) for name, column in experience.context.items()}
            seen = experience.with_columns(reward=proxy(after).to(experience.reward.dtype) * experience.mask)
        for name, one in (("true", experience), ("proxy", seen)):
            scene.log(f"reward/{name}", float((one.reward * one.mask).sum()), num)
        return seen


BASE, OF = Logged((Log(episodes=50, noise=0.8),)), OfAction("discriminator")


CLASSES = (Label(1.0), Label(0.0, int(Origin.DATASET)))


def recipe(
    preset: Preset = TABLE, weight: float = 0.2, divergence: Callable[[Tensor], Tensor] = root_chi_square
) -> Recipe:
    """Returns ppo with a penalty on visits unlike those of a base policy, by a discriminator."""
    paid = FromModel(OfAnswers() if preset.tokens else OF, Penalty(divergence, weight), adds=True)
    base = recipes.ppo(preset)
    base = replace(
        base, name="orpo-occupancy", copies={"reference": Copy(of="actor")}, rewards=(Verifier(), SeenReward(), paid)
    )
    if preset.tokens:
        return base
    assert isinstance(preset.fragment_rollout, Fragments)
    gathered = preset.fragment_rollout.num_envs * preset.fragment_rollout.steps
    visits = Retained(Replay(gathered, batch=256, updates=4, warmup=1), BASE, kept=0.5)
    apart = Stage("discriminator", (OF.model,), critic=told_apart(OF, *CLASSES), optimizer=Adam(0.05), source=visits)
    return replace(
        base,
        critics={**base.critics, "discriminator": replace(preset.value, head=ActionValue(1))},
        stages=(apart, *base.stages),
        before=(Phase("base", replace(recipes.bc(preset), source=BASE), 60),),
    )


METHOD = Method(
    paper="arXiv:2403.03185",
    recipe=recipe,
    presets=EVERY,
    default_task="tomato",
    family="safe",
    base=recipes.ppo,
    departures=(
        "the base is its recorded decisions, drawn again every step, not rolled out; the policy starts as its clone",
        "rewards use the discriminator as the step before left it; the authors train it first",
        "visits are counted undiscounted, of the last step's decisions; no total variation, no Wasserstein",
        "the constant -1 in D is free only at a fixed horizon: with early ends it pays for length",
        "a 3 x 3 grid with three tomatoes; both weights swept over 1.5 decades around their best on seeds 100 and 101",
        "not measured: no penalty, and a KL of visits; the rival is the KL of actions at its best weight",
    ),
    results=(
        "undecided at its margin of 10, not at 0: the lead is above 0 on all five seeds, 21 [7, 36] on average, and "
        "1 on one of them",
    ),
)
