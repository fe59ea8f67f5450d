"""dr-grpo: grpo without its two biases: divides neither by the deviation nor by the sequence's length.

    A_i = R_i - mean R,  loss = -1/n sum_i 1/L sum_t min(rho_t A_i, clip(rho_t) A_i),  L a constant

Liu et al. 2025. On-policy its expected gradient points exactly along the gradient of the expected reward. L is the
task's limit of an answer (`--max-tokens`). Terms that are added with a mean of their own (entropy, siren's) weigh L / n
times as much against it as against grpo at answers of n tokens; `--kl` is divided by L too.
"""

from assay.method import Method, recipes

METHOD = Method(
    paper="arXiv:2503.20783",
    recipe=recipes.dr_grpo,
    family="policy gradient",
    base=recipes.grpo,
    pilots=(
        "seed 100 on thinking-12, 60 steps: wrong answers of 6.2 characters at a score of 0.89, grpo's 5.4 at 0.76; "
        "the claim was left as it was stated",
    ),
)
