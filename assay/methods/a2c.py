"""a2c: one on-policy step on generalised advantages, no ratio.

    loss = -mean_t a_t log pi(a_t|s_t) - e * entropy,   a = (A - mean A) / deviation of A over the batch
    critic: mean_t (V(s_t) - A_t - V_old(s_t))^2 / 2

Mnih et al. 2016 without the asynchrony. At ratio one its gradient is ppo's.
"""

from assay.method import Method, recipes

METHOD = Method(
    paper="arXiv:1602.01783",
    recipe=recipes.a2c,
    default_task="cartpole",
    family="policy gradient",
    base=recipes.ppo,
    departures=(
        "synchronous",
        "generalised advantages instead of n-step returns",
        "advantages are whitened over the batch, so that the step does not depend on the scale of rewards; the paper, "
        "and Stable-Baselines3 by default, take them as they are",
        "Adam instead of RMSProp",
    ),
)
