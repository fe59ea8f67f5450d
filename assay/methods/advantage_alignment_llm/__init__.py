"""advantage-alignment-llm: reinforces helping the opponent after positive advantages of its own; groups, no critic.

    A*_t = A_t + beta * gamma * (sum_(k < t) gamma^(t - k) A_k) * A'_t
    A_t  = G_t - mean over the other copies of the game of their G_t,   G_t = r_t + gamma G_(t + 1)

Piche et al. 2025, after Advantage Alignment (arXiv:2406.14662). A' are the opponents' advantages. Naive self-play
ends in mutual defection; answering good with good and bad with bad makes cooperation stable and cannot be exploited.
"""

from dataclasses import replace
from functools import partial

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Exact, Expect, Measured, Method
from assay.core.recipe import Recipe, Stage
from assay.methods.advantage_alignment_llm.credit import AlignAdvantages, LeaveOneOutToGo
from assay.parts.credit.temporal import Whiten
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import NoTrust
from assay.parts.regularizers.divergence import EntropyBonus
from assay.recipes.defaults import EVERY, LANGUAGE, TABLE, Defaults

GAMES = probes.all_games(((-1.0, -3.0), (0.0, -2.0)), rounds=3)
LOGITS_SA = torch.linspace(-1.0, 1.0, 10, dtype=torch.float64).view(5, 2)


def recipe(world: Defaults = LANGUAGE, beta: float = 1.0, discount: float = 0.96) -> Recipe:
    """Returns self-play with aligned group advantages, one on-policy step."""
    loss, bonus = (PolicyGradient(trust=NoTrust()),), (EntropyBonus(0.02),)
    stage = Stage("policy", ("actor",), loss, bonus, optimizer=world.optimizer)
    credit = (LeaveOneOutToGo(discount), AlignAdvantages(beta, discount), Whiten(centre=False))
    return replace(recipes.rloo(world), name="advantage-alignment-llm", credit=credit, stages=(stage,))


SMALL = recipe().set("actor.width", 32).set("rollout.num_starts", 8).set("learning_rate", 1e-3)


def distance_from_formula() -> torch.Tensor:
    base = LeaveOneOutToGo(0.9)(GAMES.copies(torch.cartesian_prod(torch.arange(64), torch.arange(64))))
    own = base.column("advantage").view(-1, 2, 3)
    past = own @ torch.tensor([[0.0, 0.9, 0.81], [0.0, 0.0, 0.9], [0.0, 0.0, 0.0]], dtype=torch.float64)
    found = AlignAdvantages(0.7, 0.9)(base).column("advantage").view(-1, 2, 3)
    return (found - own - 0.7 * 0.9 * past * own.flip(1)).abs().max()


def bias_of_base() -> torch.Tensor:
    found = probes.expected_game_gradient(recipe(beta=0.0, discount=1.0).credit[:2], GAMES, LOGITS_SA)
    return (found - probes.exact_game_gradient(GAMES, LOGITS_SA)).norm()


def push_to_cooperate(beta: float, state: int) -> torch.Tensor:
    """Returns the uniform policy's expected gradient; state 1 follows mutual cooperation, 4 mutual defection."""
    return probes.expected_game_gradient(recipe(beta=beta).credit[:2], GAMES, 0 * LOGITS_SA)[state, 0]


METHOD = Method(
    paper="arXiv:2511.19405",
    recipe=recipe,
    worlds=EVERY,
    default_task="prisoners-dilemma",
    family="games",
    base=recipes.rloo,
    aliases=("advantage-alignment",),
    variants={"naive-self-play": partial(recipe, beta=0.0)},
    departures=(
        "matrix games of one token or action a turn; no messages, no Trust-and-Split, no pretrained model",
        "the published code's options (signs, clipping, 1 / t, branches of alternative actions, gamma^t) are left out",
        "one plain policy-gradient step a batch; credit scaled to deviation 1, entropy bonus 0.02, no KL term",
    ),
    claims=(
        Exact("the credit is the formula", distance_from_formula, equals=0.0, tolerance=1e-12),
        Exact("with beta 0 the gradient is each player's own, exactly", bias_of_base, equals=0.0, tolerance=1e-10),
        Exact("naive: defect after mutual cooperation", lambda: push_to_cooperate(0.0, 1), at_most=-1e-3),
        Exact("aligned: cooperate there", lambda: push_to_cooperate(1.0, 1), at_least=1e-3),
        Exact("aligned: defect after mutual defection", lambda: push_to_cooperate(1.0, 4), at_most=-1e-3),
        Measured("a higher payoff in self-play than naive learning", "prisoners-dilemma", recipe(TABLE),
                 recipe(TABLE, beta=0.0), margin=0.3, seeds=5, minutes=1.0, steps=150),
        Measured("a defector leaves it what mutual defection pays", "prisoners-dilemma-against-defectors",
                 recipe(TABLE), -2.0, expect=Expect.WITHIN, margin=0.2, seeds=5, minutes=0.5, steps=150),
        Measured("a transformer that reads all rounds, too", "prisoners-dilemma-tokens", SMALL, SMALL.set("beta", 0.0),
                 margin=0.3, seeds=5, minutes=3.0, steps=100, warmup=0),
    ),
)  # fmt: skip
