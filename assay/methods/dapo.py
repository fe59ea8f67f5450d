"""dapo: grpo with a higher upper clip, a token mean, resampling of groups without signal, and a soft length limit.

    loss = -1/(sum_i |y_i|) sum_i sum_t min(rho_t A_i, clip(rho_t, 1 - 0.2, 1 + 0.28) A_i)
    R <- R - clip((|y| - (L - C)) / C, 0, 1),   L the task's limit of tokens, C a fifth of it

Yu et al. 2025. Clip-higher lets unlikely tokens grow; the token mean lets long answers count in full; dynamic
sampling keeps every group informative; the soft limit tells an answer that it is about to be cut.
"""

from assay.method import Method, recipes

METHOD = Method(
    paper="arXiv:2503.14476",
    recipe=recipes.dapo,
    family="policy gradient",
    start_for="long answers, and prompts that are too easy or too hard",
    base=recipes.grpo,
    departures=(
        "two updates a batch, the paper has 16: `--set source.minibatches=16`",
        "at most three rounds of dynamic sampling a step",
        "answers no longer than a demonstration are not penalised: the limits of small tasks leave no room for a ramp",
        "the penalty is for tokens only; long episodes of control tasks are not penalised",
    ),
    results=(
        "undecided after 20 seeds: 0.893 and grpo 0.878, more on 13 of them; an effect above 0.039 is excluded on "
        "this testbed",
    ),
)
