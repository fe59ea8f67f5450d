"""td3: twin critics, smoothed targets, a delayed deterministic actor.

    y = r + discount * (1 - terminal) * min_i Q'_i(s', clip(mu'(s') + clip(noise, -0.5, 0.5)))
    critics: sum_i (Q_i(s, a) - y)^2 / 2,   actor every second update: -Q_1(s, mu(s))

Fujimoto et al. 2018.
"""

from assay.method import CONTINUOUS, Method, recipes

METHOD = Method(
    paper="arXiv:1802.09477",
    recipe=recipes.td3,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="value-based",
    departures=(
        "Adam 1e-3 for both networks, as in the paper (their later code has 3e-4)",
        "8 steps alternate with 8 updates",
        "noise decays from the half-range to a tenth of it over a fifth of the steps; theirs starts with random ones",
    ),
)
