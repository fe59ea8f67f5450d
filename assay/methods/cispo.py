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
    pilots=(
        "seeds 100 and 101, mean pass rate on levels: with eight passes 0.74, 0.69, dapo's clip 0.74, 0.68, grpo 0.69, "
        "0.70; with sixteen minibatches, as in the paper and in the claim, 0.64, 0.65, dapo's clip 0.64, 0.63",
    ),
    results=("with twenty seeds the headline is undecided: mean pass rate 0.006 above dapo's clip (-0.004 to 0.017)",),
)
