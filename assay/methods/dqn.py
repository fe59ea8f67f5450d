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
    start_for="discrete actions, also from images",
    aliases=("double-dqn",),
    departures=(
        "in the classic preset errors are squared, not clipped; on images and in the preset general they are clipped",
        "8 environments; 32 steps alternate with 128 updates (64 on images and in the preset general)",
        "Adam 1e-4 on images instead of RMSprop 2.5e-4; a buffer of 100,000 (a million); a copy every 1,000 updates "
        "(10,000), a million decisions (50 million)",
        "frames are stacked by an option (--frame-stack 4), rewards are not clipped",
    ),
)
