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
from assay.claims import probes
from assay.claims.claim import Exact, Measured, Method
from assay.core.recipe import Copy, Recipe, Stage
from assay.methods.self_redteam.credit import PlayerDeviation, PlayerMean
from assay.methods.self_redteam.rollout import FixedOpponents
from assay.parts.credit.outcome import OutcomeCredit
from assay.parts.credit.shaping import KlInReward
from assay.parts.objectives.imitation import LogLikelihood
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import Clip
from assay.parts.sources.demonstrations import Demonstrations
from assay.recipes.defaults import EVERY, LANGUAGE, Defaults

GAMES = probes.all_games(((2.0, -1.0), (1.0, 0.5)), rounds=2).copies(torch.arange(16).unsqueeze(1))
SECOND_B1 = torch.arange(32).unsqueeze(1) % 2 == 1
ROLES = OutcomeCredit(PlayerMean(), PlayerDeviation(0.0))


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
    copies = {"reference": Copy(of="actor")}
    return replace(recipes.grpo(world), name="self-redteam", credit=credit, copies=copies, stages=stages)


SMALL = recipe().set("actor.width", 64).set("rollout.num_starts", 16)
STATIC = replace(SMALL, rollout=FixedOpponents(num_starts=16, player=1))


def distance_between_scales() -> torch.Tensor:
    """Returns the largest change of the credit if the second role's rewards are multiplied by 7 and shifted by 3."""
    other = replace(GAMES, reward=torch.where(SECOND_B1, 7 * GAMES.reward + 3, GAMES.reward))
    return (ROLES(GAMES).column("advantage") - ROLES(other).column("advantage")).abs().max()


def distance_from_one_role() -> torch.Tensor:
    """Compares one role without players with outcomes normalised over the whole batch, as in REINFORCE++."""
    outcome_B = GAMES.reward.sum(1)
    found = ROLES(replace(GAMES, player=None, episode=None)).column("advantage")
    return (found - ((outcome_B - outcome_B.mean()) / outcome_B.std()).unsqueeze(1)).abs().max()


METHOD = Method(
    paper="arXiv:2506.07468",
    recipe=recipe,
    worlds=EVERY,
    default_task="red-teaming",
    family="games",
    base=recipes.grpo,
    variants={"with-sft": partial(recipe, supervised=16)},
    departures=(
    ),
    claims=(
        Exact("roles are credited apart: the scale of one changes nothing", distance_between_scales, equals=0.0),
        Exact("one role alone is normalised over the batch", distance_from_one_role, equals=0.0),
        Measured("a defender of self-play is right more often on unseen combinations than one of static attacks",
                 "red-teaming", SMALL, STATIC, seeds=5, minutes=5.0, steps=60, warmup=100),
    ),
)  # fmt: skip
