"""cispo: clips importance weights and stops their gradient, so that no token loses its own.

    loss = -1/(sum_i |y_i|) sum_i sum_t stop_gradient(min(rho_t, 1 + high)) A_i log pi(y_t)

MiniMax 2025. Where a clipped ratio would drop a token from the update, cispo only bounds its weight.
"""

from assay.method import Method, recipes

METHOD = Method(
    paper="arXiv:2506.13585",
    recipe=recipes.cispo,
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "upper bound 5 (high = 4): the paper tunes it and gives no number",
        "two updates a batch, as grpo here",
    ),
)
