"""model-task-alignment: grpo with a reward that ignores the answer, one example, or wrong answers alone.

    random: r = 1 with probability 1/2   incorrect: r = 1 - right   majority: r = 1 for the group's commonest answer
    one-example: every start is the same   negatives: A <- min(A, 0)   true: r = right, the control

Wu et al. 2025, "Mirage or Method?". Shortcuts are said to work where the start's pass@k is high already, and to fail
where it is low; the true reward works in both. A random reward has an expected gradient of 0; the clip, once ratios
have left 1, adds one: it drops the steps that lead further away from the policy that sampled, not those back to it.
"""

from dataclasses import replace
from functools import partial
from math import inf

from assay import recipes
from assay.claims import Edit, Exact, Expect, Method, probes, same_gradient
from assay.core.recipe import Recipe
from assay.methods.model_task_alignment import claims, kinds, parts
from assay.methods.model_task_alignment.claims import NEW, OLD, SAID, STRONG, WEAK, aligned, expected_step, gains, paid
from assay.recipes.defaults import LANGUAGE, Defaults
from assay.tasks.testbeds.language.sparse import levels


def recipe(world: Defaults = LANGUAGE, chance: float = 0.5) -> Recipe:
    return kinds.rewarded(world, kinds.NAME, kinds.random(chance))


METHOD = Method(
    "arXiv:2508.21188", recipe, worlds=(LANGUAGE,), default_task="sorting-3", family="policy gradient",
    base=recipes.grpo,
    variants={"unclipped": kinds.unclipped, "true": kinds.true, "incorrect": kinds.incorrect,
              "majority": kinds.majority, "one-example": kinds.one_example, "negatives": kinds.negatives},
    departures=(
        "settings of the released scripts (chance 1/2, clip to 1.28, mean over decisions, negatives as standardised "
        "advantages), but groups without signal are not sampled again and no reward asks for a format",
        "incorrect pays 1 - right; the released function for mathematics pays right answers",
        "format and entropy rewards are left out; right answers alone: nsr:psr",
        "alignment is varied by supervised steps of one small model; theirs are other models and tasks",
        "piloted on seeds 900 to 902: 10 to 200 supervised steps; at rate 1e-3 no shortcut gained on the strong start "
        "(1 seed), so 3e-4; one example on it: 0.00 after 10 steps (2 seeds), -0.23 after 60 (3)",
    ),
    claims=(
        same_gradient("its gradient: standardised outcomes, ratios clipped to [0.8, 1.28], mean over decisions",
                      lambda: replace(recipe(), rewards=()), claims.token_loss),
        same_gradient("unclipped: without bounds", lambda: replace(kinds.unclipped(), rewards=()),
                      partial(claims.token_loss, low=1.0, high=inf)),
        same_gradient("negatives: advantages above 0 are 0 and count in the mean", kinds.negatives,
                      partial(claims.token_loss, most=0.0)),
        Exact("random: right and wrong answers, cut or not, are paid alike; rows that left training get nothing",
              lambda: claims.blind_gap(recipe()), equals=0.0),
        Exact("as many as the chance says", lambda: paid(recipe(chance=0.3), *["7"] * 1000).mean(), equals=0.3,
              tolerance=0.02),
        Exact("true pays right answers", lambda: probes.distance(paid(kinds.true(), *SAID), claims.TRUTH), equals=0.0),
        Exact("incorrect pays all others", lambda: probes.distance(paid(kinds.incorrect(), *SAID), claims.MISTAKES),
              equals=0.0),
        Exact("majority pays the commonest final answer of each prompt, right or wrong, and all that tie",
              lambda: claims.vote_gap(kinds.majority()), equals=0.0),
        Exact("one example: all starts of all batches are the same",
              lambda: claims.other_starts(kinds.one_example(start=3), 3), equals=0.0),
        Exact("each visit of it has samples of its own and is a group",
              lambda: probes.wrong_visits(kinds.one_example(), levels()), equals=0.0),
        Exact("a random reward moves nothing in expectation, also off the policy that sampled",
              lambda: expected_step(kinds.unclipped(), NEW, OLD, 0.3).abs().max(), at_most=1e-12),
        Exact("nor with the clip at ratio 1", lambda: expected_step(recipe(), OLD, OLD, 0.3).abs().max(),
              at_most=1e-12),
        Exact("off that policy the clip moves it back, by the formula",
              lambda: probes.distance(expected_step(recipe(), NEW, OLD), claims.clip_bias(NEW, OLD)), at_most=1e-9),
        aligned("pass@8 of the strong start is above 0.9", STRONG, 0.9, Expect.ABOVE),
        aligned("that of the weak start is below 0.4", WEAK, 0.4, Expect.BELOW),
        gains("strong: the true reward gains 0.05", kinds.true(), 0.0, STRONG, margin=0.05),
        gains("weak: the true reward gains 0.1", kinds.true(), 0.0, WEAK, margin=0.1),
        gains("strong: negatives gain as much, within 0.05", kinds.negatives(), kinds.true(), STRONG, margin=-0.05),
        gains("weak: negatives gain less than 0.05", kinds.negatives(), 0.05, WEAK, Expect.BELOW),
        gains("strong: majority gains as much, within 0.05", kinds.majority(), kinds.true(), STRONG, margin=-0.05),
        gains("weak: majority gains less than 0.05", kinds.majority(), 0.05, WEAK, Expect.BELOW),
        gains("strong: the random reward gains", recipe(), 0.0, STRONG),
        gains("strong: one example gains", kinds.one_example(), 0.0, STRONG),
        gains("strong: without the clip a random reward loses", kinds.unclipped(), 0.0, STRONG, Expect.BELOW),
    ),
    mutants=(
        Edit("right answers alone are accepted", kinds.random, "(chance, 1.0", "(0.0, 1.0"),
        Edit("the usual upper clip", kinds.rewarded, "0.28", "0.2"),
        Edit("right answers instead", kinds.negatives, "BySign(0.0, 1.0)", "BySign(1.0, 0.0)"),
        Edit("whole texts vote", parts.answers_of, "final_answer(said) or None", "said"),
        Edit("one vote for all prompts", parts.Majority.apply, "in winners[own]", "in winners[0]"),
        Edit("all starts", parts.OneStart.__call__, "np.full(scene.num_starts, self.start, dtype=np.int64)",
             "self.start + np.arange(scene.num_starts)"),
    ),
)  # fmt: skip
