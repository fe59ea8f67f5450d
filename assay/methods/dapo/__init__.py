"""dapo: grpo with a higher upper clip, a token mean, resampling of groups without signal, and a soft length limit.

    loss = -1/(sum_i |y_i|) sum_i sum_t min(rho_t A_i, clip(rho_t, 1 - 0.2, 1 + 0.28) A_i)
    R <- R - clip((|y| - (L - C)) / C, 0, 1),   L the task's limit of tokens, C a fifth of it

Yu et al. 2025. Clip-higher lets unlikely tokens grow; the token mean lets long answers count in full; dynamic
sampling keeps every group informative; the soft limit tells an answer that it is about to be cut.
"""

from assay import recipes
from assay.claims import Average, Edit, Exact, Expect, Measured, Method, same_gradient
from assay.methods.dapo import claims
from assay.parts.credit.shaping import Informative, OverlongPenalty
from assay.recipes.defaults import CONTROL

METHOD = Method(
    paper="arXiv:2503.14476",
    recipe=recipes.dapo,
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "at most three rounds of dynamic sampling a step",
        "answers no longer than a demonstration are not penalised: the limits of small tasks leave no room for a ramp",
        "the penalty is for tokens only; long episodes of control tasks are not penalised",
    ),
    claims=(
        same_gradient("off-policy its gradient is the formula's, without groups of equal rewards", recipes.dapo,
                      claims.loss_by_hand, claims.some_without_signal),
        Exact("answers get the ramp between 16 and 20 tokens", lambda: claims.distance_from_ramp(2), at_most=1e-6),
        Exact("the ramp begins after the longest demonstration", lambda: claims.distance_from_ramp(19), at_most=1e-6),
        Exact("where demonstrations fill the limit, no answer is penalised",
              lambda: claims.distance_from_ramp(20), at_most=1e-6),
        Exact("nor are long episodes of control",
              lambda: recipes.dapo(CONTROL).credit == recipes.grpo(CONTROL).credit, equals=1.0),
        Exact("groups of equal rewards are sampled again, in three rounds", claims.rounds_without_signal, equals=3.0),
        Measured("fewer groups without signal reach the update than in grpo", "sorting-5", recipes.dapo(),
                 recipes.grpo(), Average("zero_advantage_groups"), Expect.BELOW, margin=0.05, seeds=5, minutes=4.0,
                 steps=100, warmup=60),
    ),
    mutants=(
        Edit("long answers gain", OverlongPenalty.apply, "begin - length", "length - begin"),
        Edit("the penalty replaces the reward", OverlongPenalty.apply, "experience.reward + penalty", "penalty"),
        Edit("the ramp begins at the limit's half", recipes.dapo, "OverlongPenalty()", "OverlongPenalty(margin=0.5)"),
        Edit("no ramp", recipes.dapo, "(OverlongPenalty(),) if world.tokens else ()", "()"),
        Edit("long episodes of control are penalised", recipes.dapo, " if world.tokens else ()", ""),
        Edit("grpo's upper clip", recipes.dapo, "0.28", "0.2"),
        Edit("one round of sampling", recipes.dapo, "Informative()", "Informative(max_rounds=1)"),
        Edit("groups that are all right are kept", Informative.apply,
             "groups.differs(groups.outcome(experience), groups.row_groups(experience))",
             "groups.outcome(experience) > 0"),
    ),
)  # fmt: skip
