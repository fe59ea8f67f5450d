"""Claims of ppo: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

from functools import partial


from assay.claims import About, Average, Claims, Edit, Exact, Measured, by_hand, probes, same_gradient
from assay.method import CONTINUOUS, LANGUAGE, recipes


CLAIMS = Claims(
    claims=(
        same_gradient("off-policy its gradients are the formula's", recipes.ppo, by_hand.ppo_of_control,
                      probes.fragments),
        same_gradient(
            "with tokens its gradients are those of discount 1 and lambda 0.95",
            partial(recipes.ppo, LANGUAGE),
            by_hand.ppo_of_tokens,
            probes.fragments, of="language"),
        same_gradient(
            "with continuous actions its gradients are those of a Gaussian",
            partial(recipes.ppo, CONTINUOUS),
            by_hand.ppo_of_torques,
            partial(probes.transitions, num=64),
            probes.BOX_SPEC, of="continuous-control"),
        Exact(
            "a step is three epochs of four minibatches",
            lambda: probes.source_gap(recipes.ppo(), probes.fragments(), batches=12, epochs=3),
            equals=0.0,
        ),
        Measured(
            "from equally many decisions it learns a random MDP sooner than a2c: its area is larger by 0.05",
            "random-mdp",
            recipes.ppo().set("steps", 15),
            recipes.a2c().set("steps", 120),
            metric=Average("evaluation"),
            margin=0.05,
            seeds=5,
            looks=3,
            about=About.HEADLINE,
        ),
    ),
    mutants=(
        Edit("one epoch", recipes.ppo, "source=preset.minibatch_source", "source=preset.on_policy_source"),
        Edit("a higher upper clip", recipes.ppo, "Clip(0.2, 0.2)", "Clip(0.2, 0.28)"),
        Edit("no clip", recipes.ppo, "Clip(0.2, 0.2)", "NoTrust()"),
        Edit("no entropy bonus", recipes.ppo, "EntropyBonus(preset.entropy)", "EntropyBonus(0.0)"),
        Edit("advantages are not whitened", recipes.ppo, "(preset.gae, Whiten())", "(preset.gae,)"),
        Edit("the critic learns advantages", recipes.ppo, "Td(Column(), ", 'Td(Column(name="advantage"), '),
    ),
)
