"""ma-rlhf: ppo with credit on macro actions of several tokens instead of single ones.

    A_k = R_k + V(s_k+1) - V(s_k) + gae_lambda * A_k+1 over macro actions k;  loss = ppo's, a token has its macro's A_k

Chai et al. 2025. Macro actions shorten the path from the outcome back to a decision: credit decays once per macro
action. One token per macro action is ppo, one macro action per sequence REINFORCE with a baseline.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Average, Exact, Measured, Method
from assay.core.recipe import Recipe
from assay.core.record import Experience
from assay.methods.ma_rlhf.credit import SegmentGae, Spans
from assay.parts.credit.temporal import Gae, Whiten
from assay.recipes.defaults import EVERY, LANGUAGE, Defaults

EPISODES = probes.token_episodes(lambda tokens: float(sum(tokens) >= 2) + 0.3 * tokens[0], num_tokens=2, horizon=4)
LOGITS_SA = torch.linspace(-1.0, 1.0, EPISODES.num_states * 2, dtype=torch.float64).view(-1, 2).sin()


def recipe(world: Defaults = LANGUAGE, length: int = 5) -> Recipe:
    credit = (Spans(length), SegmentGae(world.gae.discount, world.gae.gae_lambda), Whiten())
    return replace(recipes.ppo(world), name="ma-rlhf", credit=credit)


def all_episodes() -> Experience:
    """Returns every episode once, with the exact value of each of its states."""
    record = EPISODES.record(torch.arange(EPISODES.num_episodes).unsqueeze(0), LOGITS_SA)
    chance_B, state_BT = record.logp.sum(1).exp(), record.context["state"]
    through = torch.stack([chance_B * (state_BT == state).any(1) for state in range(EPISODES.num_states)])
    value_S = (through * record.reward.sum(1)).sum(1) / through.sum(1)
    return record.add({"value": value_S[state_BT]})


def distance_from_token_gae() -> torch.Tensor:
    ours, theirs = (credit(Spans(1)(all_episodes())) for credit in (SegmentGae(0.9, 0.8), Gae(0.9, 0.8)))
    gaps = [(ours.column(name) - theirs.column(name)).abs().max() for name in ("advantage", "return")]
    return torch.stack(gaps).max()


def distance_from_outcome_minus_baseline() -> torch.Tensor:
    record = all_episodes()
    advantage = SegmentGae(1.0, 0.5)(Spans(4)(record)).column("advantage")
    return (advantage - (record.reward.sum(1, keepdim=True) - record.column("value")[:, :1])).abs().max()


def bias_with_exact_values() -> torch.Tensor:
    """Returns the expected gradient of macro actions of two and three tokens minus the exact one."""
    logits, record = LOGITS_SA.clone().requires_grad_(), all_episodes()
    logp = EPISODES.decision_logp(logits)[0]
    chance = record.logp.sum(1, keepdim=True).exp()
    credits = [SegmentGae(1.0, 0.7)(Spans(length)(record)).column("advantage") for length in (2, 3)]
    slopes = [torch.autograd.grad((chance * A * logp).sum(), logits, retain_graph=True)[0] for A in credits]
    return max((slope - probes.exact_table_gradient(EPISODES, LOGITS_SA)).abs().max() for slope in slopes)


METHOD = Method(
    paper="arXiv:2410.02743",
    recipe=recipe,
    worlds=EVERY,
    default_task="sorting",
    family="credit assignment",
    base=recipes.ppo,
    departures=(
        "a macro action's value is that of its first state; the authors' mean over its states biases the gradient",
        "rewards inside a macro action are summed, as in the paper; the authors' code takes their mean",
        "each token has its own ratio, as in the authors' code; the paper writes the macro action's joint ratio",
        "no KL in the reward, whitened advantages, no value clipping: as in ppo here",
        "no parser: macro actions are spans, falling perplexity (FallingPerplexity) or a given column `segment`",
    ),
    claims=(
        Exact("one token a macro action is token GAE", distance_from_token_gae, equals=0.0),
        Exact("one macro action a sequence: outcome minus V(start)", distance_from_outcome_minus_baseline, equals=0.0),
        Exact("with exact values the expected gradient is exact", bias_with_exact_values, equals=0.0),
        Measured("learns faster than ppo: mean score over the run", "sorting-8", recipe(), recipes.ppo(LANGUAGE),
                 metric=Average("evaluation"), seeds=5, minutes=5.0, steps=60, warmup=120),
    ),
)  # fmt: skip
