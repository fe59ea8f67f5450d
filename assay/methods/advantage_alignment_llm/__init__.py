"""advantage-alignment-llm: reinforces helping the opponent after positive advantages of its own; groups, no critic.

    A*_t = A_t + beta * gamma * (sum_(k < t) gamma^(t - k) A_k) * A'_t
    A_t  = G_t - mean over the other copies of the game of their G_t,   G_t = r_t + gamma G_(t + 1)

Piche et al. 2025, after Advantage Alignment (arXiv:2406.14662). A' are the opponents' advantages. Naive self-play
ends in mutual defection; answering good with good and bad with bad makes cooperation stable and cannot be exploited.
"""

from dataclasses import replace
from functools import partial

from assay import recipes
from assay.claims import Edit, Exact, Expect, Measured, Method, probes
from assay.core.recipe import Recipe, Stage
from assay.methods.advantage_alignment_llm import claims
from assay.methods.advantage_alignment_llm.credit import AlignAdvantages, LeaveOneOutToGo
from assay.parts.credit.temporal import Whiten
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import NoTrust
from assay.parts.regularizers.divergence import EntropyBonus
from assay.recipes.defaults import LANGUAGE, TABLE, Defaults
from assay.tasks.games.repeated import LEVELS
from assay.tasks.tabular.bandit import bandit


def recipe(world: Defaults = LANGUAGE, beta: float = 1.0, discount: float = 0.96) -> Recipe:
    """Returns self-play with aligned group advantages, one on-policy step."""
    loss, bonus = (PolicyGradient(trust=NoTrust()),), (EntropyBonus(0.02),)
    stage = Stage("policy", ("actor",), loss, bonus, optimizer=world.optimizer)
    credit = (LeaveOneOutToGo(discount), AlignAdvantages(beta, discount), Whiten(centre=False))
    return replace(recipes.rloo(world), name="advantage-alignment-llm", credit=credit, stages=(stage,))


SMALL = recipe().set("actor.width", 32).set("rollout.num_starts", 8).set("learning_rate", 1e-3)


METHOD = Method(
    paper="arXiv:2511.19405",
    recipe=recipe,
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
        Exact("its gradient is the formula's",
              lambda: probes.formula_gap(recipe(), claims.rounds(), claims.loss_by_hand), at_most=1e-9),
        Exact("also where most advantages are negative",
              lambda: probes.formula_gap(recipe(), claims.rounds(seed=5), claims.loss_by_hand), at_most=1e-9),
        Exact("a task with one player is refused", lambda: probes.is_refused(recipe(TABLE), bandit())
              and not probes.is_refused(recipe(TABLE), LEVELS["prisoners-dilemma"]()), equals=1.0),
        Exact("with beta 0 the gradient is each player's own, exactly", lambda: claims.bias_of_base(recipe),
              equals=0.0, tolerance=1e-10),
        Exact("naive: defect after mutual cooperation", lambda: claims.push_to_cooperate(recipe, 0.0, 1),
              at_most=-1e-3),
        Exact("aligned: cooperate there", lambda: claims.push_to_cooperate(recipe, 1.0, 1), at_least=1e-3),
        Exact("aligned: defect after mutual defection", lambda: claims.push_to_cooperate(recipe, 1.0, 4),
              at_most=-1e-3),
        Measured("a higher payoff in self-play than naive learning", "prisoners-dilemma", recipe(TABLE),
                 recipe(TABLE, beta=0.0), margin=0.3, seeds=5, minutes=1.0, steps=150),
        Measured("a defector leaves it what mutual defection pays", "prisoners-dilemma-against-defectors",
                 recipe(TABLE), -2.0, expect=Expect.WITHIN, margin=0.2, seeds=5, minutes=0.5, steps=150),
        Measured("a transformer that reads all rounds, too", "prisoners-dilemma-tokens", SMALL, SMALL.set("beta", 0.0),
                 margin=0.3, seeds=5, minutes=3.0, steps=100, warmup=0),
    ),
    mutants=(
        Edit("its own advantage in place of the opponent's", AlignAdvantages.apply, "games) - own", "games) * 0 + own"),
        Edit("the present round is past", AlignAdvantages.past, "held.append(carry)",
             "held.append(carry + own_BR[:, turn])"),
        Edit("a game of one player is accepted", AlignAdvantages.init, "task is not None", "False"),
    ),
)  # fmt: skip
