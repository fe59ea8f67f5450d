"""grpo: outcomes standardised within a group, clipped ratio, mean within each sequence.

    A_i = (R_i - mean R) / (std R + epsilon)
    loss = -mean_i 1/|y_i| sum_t min(rho_t A_i, clip(rho_t, 1 - low, 1 + high) A_i)

Shao et al. 2024. No critic. Two biases, which dr-grpo removes: dividing by the deviation weights prompts by how even
their outcomes are (shown below), and the mean within a sequence weights short wrong answers more than long ones.
"""

from assay.method import Method, recipes

METHOD = Method(
    paper="arXiv:2402.03300",
    recipe=recipes.grpo,
    family="policy gradient",
    start_for="a language model and a verifier of its answers",
    base=recipes.reinforce,
    departures=(
        "no KL to a reference by default; add KlToReference",
        "two updates a batch, the paper has one: `--set source.minibatches=1`",
        "deviation with n - 1, epsilon 1e-4, as in the common public code",
    ),
    pilots=("seeds 100 and 101, mean pass rate on levels: 0.428, 0.431, ppo 0.420, 0.428",),
)
