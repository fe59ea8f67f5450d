"""dqn: temporal-difference learning of action values; one network picks the next action, another values it.

    y = r + discount * (1 - terminal) * Q_target(s', argmax_a Q(s', a)),  loss = mean (Q(s, a) - y)^2 / 2

van Hasselt et al. 2016 (double DQN). A truncated step bootstraps, a terminal one does not.
"""

from assay.method import CONTROL, Method, recipes

METHOD = Method(
    paper="arXiv:1509.06461",
    recipe=recipes.dqn,
    presets=(CONTROL,),
    default_task="cartpole",
    family="value-based",
    aliases=("double-dqn",),
    departures=(
        "squared error instead of a clipped one",
        "8 environments; 32 steps alternate with 128 updates",
        "no frame stacking: observations are vectors",
    ),
)
