"""prefixrl: on-policy learning from starts inside a stored solution, whose prefix is context and never a target.

    J = mean_x V(x) + mean_(x, h) V(x, y_x[:h]),   loss = grpo's on the decisions after the prefix

Setlur et al. 2026. Hard problems give no reward, hence no gradient; after a part of a correct solution they do. A
group is one (problem, prefix), and a prefix ends before it states the answer. Starts without a prefix stay in the
mix, and only they are in the held-out score. For control the prefix is the state that a demonstration's first actions
lead to.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Exact, Final, Gain, Measured, Method, by_hand, probes
from assay.core.recipe import Copy, Recipe
from assay.methods.prefixrl.claims import gap_of_fractions, prefixes_with_the_answer, wrong_rows, wrong_solutions
from assay.methods.prefixrl.rollout import FromPrefixes
from assay.methods.prefixrl.solutions import RejectionSampled
from assay.recipes.defaults import LANGUAGE, PLACES, Defaults


def recipe(world: Defaults = LANGUAGE, plain: float = 0.25) -> Recipe:
    """Returns GRPO from prefixes; `plain` is the share of starts without one."""
    base = recipes.grpo(world)
    assert base.rollout is not None
    return replace(base, name="prefixrl", rollout=FromPrefixes(base.rollout.num_starts, plain=plain))


def own_solutions(world: Defaults = LANGUAGE, tries: int = 16) -> Recipe:
    """Returns the recipe with prefixes of the base policy's own right answers, by rejection of `tries` samples."""
    ours = recipe(world)
    rollout = replace(ours.rollout, solutions=RejectionSampled(tries))  # type: ignore[type-var]
    return replace(ours, rollout=rollout, copies={**ours.copies, "reference": Copy("actor")})


METHOD = Method(
    paper="arXiv:2601.18795",
    recipe=recipe,
    family="guidance",
    base=recipes.grpo,
    variants={"own-solutions": own_solutions},
    departures=(
        "solutions are the task's demonstrations (as from another model); prefixrl:own-solutions samples the base "
        "policy for them, 16 times for each problem at hand, not once with a large budget",
        "each problem is used once, with one prefix or none, instead of several copies of a fixed set of problems",
        "prefixes of 40 to 80 % and a quarter of plain starts are from memory of the paper; grpo stands for its loss",
    ),
    claims=(
        Exact("off-policy its gradient is grpo's, on the decisions after the prefix",
              lambda: probes.formula_gap(recipe(), probes.sequences(), by_hand.grpo_loss), at_most=1e-9),
        Exact("a group continues one prefix of the demonstration, which is no decision", lambda: wrong_rows(recipe()),
              equals=0.0),
        Exact("prefixes are uniform from 40 to 80 %, and a quarter of the starts has none",
              lambda: gap_of_fractions(recipe()), at_most=0.0),
        Exact("own solutions: prefixes are of the base policy's first right sample, none without one",
              lambda: wrong_solutions(own_solutions(tries=4)), equals=0.0),
        Exact("no prefix of a worked solution states the answer", lambda: prefixes_with_the_answer(recipe()),
              equals=0.0),
        Measured(
            "where the start is right once in 10,000, without a prefix it is right more often than grpo",
            "lock:digits=4", recipe(PLACES), recipes.grpo(PLACES), Final("pass_rate"), seeds=5, minutes=10.0, steps=100,
            looks=2,
        ),
        Measured(
            "and opens more locks within 64 tries",
            "lock:digits=4", recipe(PLACES), recipes.grpo(PLACES), Final("pass@64"), margin=0.1, seeds=5, minutes=10.0,
            steps=100, looks=2,
        ),
        Measured(
            "trained from prefixes alone, the score without a prefix rises",
            "sorting-5", recipe(plain=0.0), 0.0, metric=Gain(), seeds=5, minutes=4.0, steps=100, warmup=60,
        ),
    ),
)  # fmt: skip
