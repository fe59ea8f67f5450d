"""Claims of a2c: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

import torch

from assay.claims import About, Claims, Edit, Exact, Measured, by_hand, probes, same_gradient
from assay.method import recipes


def losses_by_hand(seen: probes.Seen) -> dict[str, torch.Tensor]:
    data, value = seen.experience, seen.value()
    advantage = by_hand.gae(data, value, discount=0.98, gae_lambda=0.9)
    gain = by_hand.whitened(advantage, data) * seen.logp()
    error = value - (advantage + value).detach()
    return {
        "policy": -by_hand.mean_of_decisions(gain + 0.003 * by_hand.entropy(seen), data),
        "value": by_hand.mean_of_decisions(error.square() / 2, data),
    }


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are the formula's", recipes.a2c, losses_by_hand, probes.fragments),
        Exact(
            "a step is one update on all decisions",
            lambda: probes.source_gap(recipes.a2c(), probes.fragments(), batches=1, epochs=1),
            equals=0.0,
        ),
        Measured(
            "from 30,720 decisions it learns more than half of what a random MDP's optimum is above chance",
            "random-mdp",
            recipes.a2c().set("steps", 120),
            0.5,
            seeds=5,
            looks=3,
            about=About.HEADLINE,
        ),
    ),
    mutants=(
        Edit("several epochs", recipes.a2c, "source=preset.on_policy_source", "source=preset.minibatch_source"),
        Edit(
            "no entropy bonus",
            recipes.a2c,
            "objective=(PolicyGradient(trust=NoTrust()),)",
            "objective=(PolicyGradient(trust=NoTrust()),), regularizers=()",
        ),
    ),
)
