"""ppo: generalised advantages from a critic, clipped ratio, several epochs.

    loss = -mean_t min(rho_t A_t, clip(rho_t, 1 - c, 1 + c) A_t) - e * entropy
    critic: mean_t (V(s_t) - A_t - V_old(s_t))^2 / 2

Schulman et al. 2017. The same credit and objective parts serve control and language; a truncated episode bootstraps,
a terminated one does not.
"""

from functools import partial

from torch import Tensor

from assay import recipes
from assay.claims import Average, Edit, Exact, Measured, Method, by_hand, probes, same_gradient
from assay.recipes.defaults import CONTINUOUS, LANGUAGE


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    return by_hand.ppo_losses(seen, 0.98, 0.9, 0.003 * by_hand.entropy(seen))


METHOD = Method(
    paper="arXiv:1707.06347",
    recipe=recipes.ppo,
    default_task="cartpole",
    family="policy gradient",
    departures=(
        "advantages are whitened over the whole batch, not over each minibatch",
        "actor and critic have their own networks, optimizers and gradient clipping",
        "no value clipping",
    ),
    claims=(
        same_gradient("off-policy its gradients are the formula's", recipes.ppo, losses_by_hand, probes.fragments),
        same_gradient(
            "with tokens they are those of discount 1 and lambda 0.95",
            partial(recipes.ppo, LANGUAGE),
            by_hand.ppo_of_tokens,
            probes.fragments,
        ),
        same_gradient(
            "with continuous actions they are those of a Gaussian",
            partial(recipes.ppo, CONTINUOUS),
            by_hand.ppo_of_torques,
            partial(probes.transitions, num=64),
            probes.BOX_SPEC,
        ),
        Exact(
            "a step is three epochs of four minibatches",
            lambda: probes.source_gap(recipes.ppo(), probes.fragments(), batches=12, epochs=3),
            equals=0.0,
        ),
        Measured(
            "of equally many decisions it learns a random MDP sooner than a2c: its area is larger by 0.05",
            "random-mdp",
            recipes.ppo().set("steps", 15),
            recipes.a2c().set("steps", 120),
            metric=Average("evaluation"),
            margin=0.05,
            seeds=5,
            looks=3,
        ),
    ),
    mutants=(
        Edit("one epoch", recipes.ppo, "source=world.reuse", "source=world.once"),
        Edit("a higher upper clip", recipes.ppo, "Clip(0.2, 0.2)", "Clip(0.2, 0.28)"),
        Edit("no clip", recipes.ppo, "Clip(0.2, 0.2)", "NoTrust()"),
        Edit("no entropy bonus", recipes.ppo, "EntropyBonus(world.entropy)", "EntropyBonus(0.0)"),
        Edit("advantages are not whitened", recipes.ppo, "(world.gae, Whiten())", "(world.gae,)"),
        Edit("the critic learns advantages", recipes.ppo, "Td(Column(), ", 'Td(Column(name="advantage"), '),
    ),
)
