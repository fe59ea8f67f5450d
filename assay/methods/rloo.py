"""rloo: each sample's baseline is the mean reward of the others in its group.

    loss = -mean over sequences of (R_i - mean_(j != i) R_j) * log pi(y_i)

Ahmadian et al. 2024. The baseline does not depend on the sample, so the gradient is unbiased; it equals the
group-mean form times n / (n - 1).
"""

from assay.method import Method, recipes

METHOD = Method(
    paper="arXiv:2402.14740",
    recipe=recipes.rloo,
    family="policy gradient",
    start_for="the plainest baseline without a critic",
    base=recipes.reinforce,
    departures=(
        "no KL penalty unless asked for; --kl X adds k3 to the loss, summed over the answer, where the paper has k1 in "
        "the reward (KlInReward)",
    ),
    pilots=("seeds 100 and 101, mean pass rate on levels: 0.427, 0.433, the best of each group alone 0.407, 0.413",),
)
