"""sac: maximum-entropy actor-critic with a temperature tuned to a target entropy.

    y = r + discount * (1 - terminal) * (min_i Q'_i(s', a') - temperature * log pi(a'|s')),  a' ~ pi
    actor: temperature * log pi(a|s) - min_i Q_i(s, a);   temperature: -log temperature * (log pi + target entropy)

Haarnoja et al. 2018b. Actions are squashed Gaussians; their log-density includes the correction for the squashing.
"""

from assay.method import CONTINUOUS, Method, recipes

METHOD = Method(
    paper="arXiv:1812.05905",
    recipe=recipes.sac,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="value-based",
    start_for="continuous actions",
    departures=(
        "Adam 1e-3 instead of 3e-4",
        "8 steps alternate with 8 updates",
        "no purely random first steps: the initial policy explores",
    ),
)
