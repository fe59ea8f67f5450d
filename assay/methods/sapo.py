"""sapo: a smooth gate on the importance ratio instead of a hard clip.

    loss = -1/G sum_i 1/|y_i| sum_t (4 / tau) sigmoid(tau (rho_t - 1)) A_i,   tau = 1 where A > 0, else 1.05

Qwen team 2025. The gradient's weight, 4 s (1 - s) with s = sigmoid(tau (rho - 1)), is 1 at ratio one and decays on
both sides; tokens with negative advantages decay sooner, as they move probability to many others.
"""

from assay.method import Method, recipes

METHOD = Method(
    paper="arXiv:2511.20347",
    recipe=recipes.sapo,
    family="policy gradient",
    base=recipes.grpo,
    departures=("two updates a batch, as grpo here",),
    pilots=(
        "seeds 100 and 101, mean pass rate on levels with eight passes: 0.71, 0.69, grpo 0.69, 0.70, gspo 0.50, 0.51",
    ),
)
