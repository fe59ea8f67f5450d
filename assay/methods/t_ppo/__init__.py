"""t-ppo: ppo on windows of unfinished answers; the policy trains on windows, the critic on finished answers.

    policy: A_t = delta_t + lambda A_(t+1) on the window, V(s_L) := V(s_(L-1)) where it stops before the end
    critic: mean over all decisions of the answers that ended now of (V(s_t) - R)^2 / 2

Fan et al. 2025. A step never waits for the longest answer: it takes at most `window` decisions in every slot, and
unfinished answers continue at the next step. With a window as long as an answer it is ppo with a Monte-Carlo critic.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Exact, Measured, Method
from assay.core.recipe import Recipe
from assay.core.record import Experience
from assay.methods.t_ppo.credit import ExtendedGae, WithoutTail
from assay.methods.t_ppo.rollout import Windows
from assay.methods.t_ppo.targets import FINISHED_VALUE
from assay.parts.credit.temporal import Gae, Whiten
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import DualClip
from assay.recipes.defaults import LANGUAGE, Defaults

EPISODES = probes.token_episodes(lambda tokens: sum(tokens) / 3, num_tokens=2, horizon=4)


def recipe(world: Defaults = LANGUAGE, slots: int = 256, window: int = 4) -> Recipe:
    """Returns PPO with windows, extended advantages and a critic of finished answers."""
    base = recipes.ppo(world)
    policy = replace(base.stages[0], objective=(PolicyGradient(trust=DualClip(0.2, 0.28, 10.0)),), regularizers=())
    value = replace(base.stages[1], critic=(FINISHED_VALUE,))
    credit = (ExtendedGae(world.gae.discount, world.gae.gae_lambda), WithoutTail(1), Whiten())
    rollout = Windows(slots, window)
    return replace(base, name="t-ppo", rollout=rollout, curriculum=None, credit=credit, stages=(policy, value))


def valued(is_over: bool) -> Experience:
    """Returns all episodes of four tokens, ended or cut after the fourth, with some values."""
    record = EPISODES.record(torch.arange(16).unsqueeze(0), torch.zeros(EPISODES.num_states, 2))
    value = torch.linspace(-1.0, 1.0, record.mask.numel(), dtype=torch.float64).view_as(record.reward).sin()
    return replace(record, terminal=record.terminal & is_over, reward=record.reward * is_over).add({"value": value})


def distance_from_gae_when_finished() -> torch.Tensor:
    ours, theirs = (credit(1.0, 0.9)(valued(True)).column("advantage") for credit in (ExtendedGae, Gae))
    return (ours - theirs).abs().max()


def distance_from_gae_one_token_earlier() -> torch.Tensor:
    """Compares with plain GAE of the first three, which reads the fourth column's value; the fourth has advantage 0."""
    cut = valued(False)
    mask = cut.mask.clone()
    mask[:, -1] = False
    theirs = Gae(1.0, 0.9)(replace(cut, mask=mask)).column("advantage")
    return (ExtendedGae(1.0, 0.9)(cut).column("advantage") - theirs).abs().max()


METHOD = Method(
    paper="arXiv:2506.15050",
    recipe=recipe,
    worlds=(LANGUAGE,),
    default_task="countdown",
    family="long context",
    base=recipes.ppo,
    aliases=("truncated-ppo",),
    departures=(
        "one answer per prompt instead of 16, one position dropped at a window's end, not 8: windows are short here",
        "that position is dropped even if the answer ended there; the public port keeps it then, which is biased",
        "fixed lambda, no likelihood term on correct answers (both are in the public port), no value clipping",
        "new prompts come in order, whatever the curriculum: their number depends on how many answers have finished",
    ),
    claims=(
        Exact("finished answers have gae's credit", distance_from_gae_when_finished, equals=0.0),
        Exact("a cut window has the credit of gae one token earlier", distance_from_gae_one_token_earlier, equals=0.0),
        Measured("scores higher than ppo after as many decisions one after the other, 4 a step, not 8", "countdown-2",
                 replace(recipe(), steps=110), replace(recipes.ppo(LANGUAGE), steps=60), seeds=5, minutes=5.0,
                 warmup=60),
    ),
)  # fmt: skip
