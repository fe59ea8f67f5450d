"""ppo: generalised advantages from a critic, clipped ratio, several epochs.

    loss = -mean_t min(rho_t A_t, clip(rho_t, 1 - c, 1 + c) A_t) - e * entropy
    critic: mean_t (V(s_t) - A_t - V_old(s_t))^2 / 2

Schulman et al. 2017. The same credit and objective parts serve control and language; a truncated episode bootstraps,
a terminated one does not.
"""

from assay.method import Method, recipes

METHOD = Method(
    paper="arXiv:1707.06347",
    recipe=recipes.ppo,
    default_task="cartpole",
    family="policy gradient",
    start_for="control with any kind of action; tokens with a critic",
    departures=(
        "advantages are whitened over the whole batch, not over each minibatch",
        "actor and critic have their own networks, optimizers and gradient clipping",
        "no value clipping",
        "with a pretrained model no entropy bonus, as in TRL and verl; else 0.003 for tokens and small control tasks",
        "two updates a batch of answers; on control tasks 12 and more (see the presets)",
    ),
)
