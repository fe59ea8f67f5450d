"""self-redteam: one policy attacks and defends in one game, with separate credit by role and hidden thoughts.

    A = (R - mean of the role's R) / deviation of the role's R,   R = reward of the role - 0.01 sum log(pi / ref)
    loss = -mean over tokens of min(rho A, clip(rho) A)

Liu et al. 2025. Against a static attacker a defender stops improving: in self-play attacks move to where the defense
is weak, and the defense adapts. Rewards are those of the released code. Only answers are shown: see `tasks.redteam`.
"""

from dataclasses import replace
from functools import partial

import torch

from assay import recipes
from assay.claims import Exact, Measured, Method, by_hand, probes
from assay.core.recipe import Copy, Recipe, Stage
from assay.core.record import Experience
from assay.methods.self_redteam.credit import PlayerDeviation, PlayerMean
from assay.methods.self_redteam.rollout import FixedOpponents, SelfPlay
from assay.parts.credit.outcome import OutcomeCredit
from assay.parts.credit.shaping import KlInReward
from assay.parts.objectives.imitation import LogLikelihood
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import Clip
from assay.parts.rollouts.episodes import Episodes
from assay.parts.sources.demonstrations import Demonstrations
from assay.recipes.defaults import LANGUAGE, Defaults
from assay.tasks.language.redteam import RedTeaming
from assay.tasks.language.sorting import sorting


def recipe(world: Defaults = LANGUAGE, kl: float = 0.01, supervised: int = 0) -> Recipe:
    """Returns self-play; with `supervised`, that many demonstrations are trained on after each batch, to keep other
    skills.
    """
    objective = PolicyGradient(trust=Clip(0.2, 0.2))
    stages: tuple[Stage, ...] = (Stage("policy", ("actor",), (objective,), optimizer=world.optimizer),)
    if supervised:
        likelihood = (LogLikelihood(),)
        shown = Demonstrations(supervised)
        stages += (Stage("supervised", ("actor",), likelihood, optimizer=world.optimizer, source=shown),)
    credit = (KlInReward(kl), OutcomeCredit(PlayerMean(), PlayerDeviation()))
    episodes = world.episodes
    assert isinstance(episodes, Episodes)
    rollout = SelfPlay(episodes.num_starts, episodes.group_size)
    base = replace(recipes.grpo(world), name="self-redteam", rollout=rollout, copies={"reference": Copy(of="actor")})
    return replace(base, credit=credit, stages=stages)


SMALL = recipe().set("actor.width", 64).set("rollout.num_starts", 16)
STATIC = replace(SMALL, rollout=FixedOpponents(num_starts=16, player=1))


def games(above: float = 0.0) -> Experience:
    """Returns sequences of two roles that share games: outcomes larger and less spread, and further `above` 0."""
    data = probes.sequences(num=24)
    role = torch.arange(len(data)) % 2
    second = data.reward + above * data.reward.clamp(min=0.0)
    reward = torch.where(role.unsqueeze(1) == 0, 0.3 * data.reward + 1.0, second)
    return replace(data, reward=reward, player=role, episode=torch.arange(len(data)) // 2)


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    data = seen.experience
    moved = torch.where(data.mask, data.logp - seen.logp("reference").detach(), 0.0)
    by_role = replace(data, reward=data.reward - 0.01 * moved, group=data.player)
    advantage = by_hand.standardised(by_role, epsilon=1e-4).unsqueeze(1)
    return -by_hand.mean_of_decisions(by_hand.clipped(by_hand.ratio(seen), advantage, 0.2, 0.2), data)


METHOD = Method(
    paper="arXiv:2506.07468",
    recipe=recipe,
    default_task="red-teaming",
    family="games",
    base=recipes.grpo,
    variants={"with-sft": partial(recipe, supervised=16)},
    departures=(
        "the game is a grammar of obfuscations with an exact judge; no free rewriting, no pretrained model",
        "groups of several games of a seed instead of one; supervised batches are off but in the variant with-sft",
        "roles are normalised over rows with n - 1, KL of the whole row included; theirs over tokens, KL from each on",
    ),
    claims=(
        Exact("off-policy its gradient is the formula's, each role normalised alone",
              lambda: probes.formula_gap(recipe(), games(), loss_by_hand), at_most=1e-9),
        Exact("also with outcomes further above 0 than below it",
              lambda: probes.formula_gap(recipe(), games(above=2.0), loss_by_hand), at_most=1e-9),
        Exact("a task that is not a game is refused", lambda: not probes.is_refused(recipe(), RedTeaming())
              and probes.is_refused(recipe(), sorting()), equals=1.0),
        Measured("a defender of self-play is right more often on unseen combinations than one of static attacks",
                 "red-teaming", SMALL, STATIC, seeds=5, minutes=5.0, steps=60, warmup=100),
    ),
)  # fmt: skip
