"""dpo: classifies preferences by log-ratios to a reference; no reward model, no critic.

    loss = -mean over pairs of log sigmoid(beta * (h(chosen) - h(rejected))),  h(y) = log pi(y) - log pi_ref(y)

Rafailov et al. 2023. Pairs come from a file, or from sampling any verifiable task: the best against the worst answer
of each group. At the reference every pair has loss log 2 and a gradient of weight beta / 2.
"""

from assay.method import EVERY, PREFERENCES, Method, recipes

METHOD = Method(
    paper="arXiv:2305.18290",
    recipe=recipes.dpo,
    presets=(*EVERY, PREFERENCES),
    family="preference",
    start_for="pairs of a preferred and a rejected answer",
    departures=("pairs are sampled from the current policy at every step unless a file of pairs is the task",),
    pilots=(
        "seeds 100 and 101, mean pass rate on levels: with one pass 0.41, 0.41, likelihood of the chosen 0.41, 0.41; "
        "with eight, as over a file of pairs, and in the claim, 0.66, 0.64 and 0.71, 0.65",
    ),
)
