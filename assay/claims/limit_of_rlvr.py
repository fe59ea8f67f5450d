"""Claims of limit-of-rlvr: its loss by hand, exact and measured claims, mutants."""

from assay.claims import About, Claims, Computed, Edit, Exact, Expect, Final, Loop, Measured, by_hand, probes
from assay.claims import same_gradient, sampled
from assay.claims.testbeds.language.sparse import many_ways
from assay.method import BIGRAMS, Recipe, Task
from assay.methods.limit_of_rlvr import Boundary, recipe
from assay.statistics import passk


def boundary(recipe: Recipe, task: Task, seed: int, *, steps: int, prompts: int, samples: int) -> Boundary:
    """Returns the boundary of a run of `steps` steps on held-out prompts; both policies draw with equal seeds."""
    loop = Loop(recipe, task, seed=seed, num_steps=steps)
    before = sampled(loop.policy, task, prompts, samples)[0].sum(1)
    for _ in range(steps):
        loop.step()
    after = sampled(loop.policy, task, prompts, samples)[0].sum(1)
    return Boundary(samples, *(tuple(int(own) for own in counts) for counts in (before, after)))


SHARED = recipe(BIGRAMS).set("actor.rank", 4)
"""A policy whose prompts share four features."""


SEPARATE = recipe(BIGRAMS).set("actor.rank", 0)
"""A policy with a row of logits for each prompt."""


START = {"pass_rate": 0.085, "pass@64": 0.737}
"""Of the uniform start of many-ways: eight prompts with one right answer of 100, eight with sixteen."""


SMALL = Boundary(4, (2, 1, 0), (4, 0, 0))
"""Three prompts, four samples each: the start solves two of them sometimes, the trained policy one always."""


def from_start() -> float:
    """Returns how far the start's numbers are from those by hand."""
    often, rare = (0.84, 0.99)
    found = {"pass_rate": 1 - (often + rare) / 2, "pass@64": 1 - (often**64 + rare**64) / 2}
    return probes.worst(*(abs(found[name] - value) for name, value in START.items()))


def crossing(seed: int) -> float:
    """Returns the crossover after 150 steps, 257 if the start never overtakes in 256 samples."""
    found = boundary(SHARED, many_ways(), seed, steps=150, prompts=16, samples=256)
    return float(found.crossover or 257)


def solved_after_three(seed: int) -> float:
    """Returns pass@2 after three steps, of 32 samples."""
    return boundary(SHARED, many_ways(), seed, steps=3, prompts=16, samples=32).pass_at(2)[1]


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is grpo's", recipe, by_hand.grpo_loss),
        Exact("pass@2 of the start of three prompts is (5/6 + 1/2 + 0) / 3", lambda: SMALL.pass_at(2)[0],
              equals=4 / 9),
        Exact("on three prompts the start overtakes at k = 2", lambda: SMALL.crossover, equals=2.0),
        Exact("a policy does not cross itself", lambda: Boundary(4, (2, 1), (2, 1)).crossover is None, equals=1.0),
        Exact("one of three prompts is solved by the start alone",
              lambda: len(SMALL.only_start()), equals=1.0, illustrates=True),
        Exact("the start of the testbed has the numbers that claims compare with", from_start, at_most=1e-3,
              of="theory"),
        Exact("an untrained policy has the boundary of its start", lambda: boundary(
              SHARED, many_ways(), 0, steps=0, prompts=16, samples=8).moved, equals=0.0, of="theory"),
        Measured("where prompts share parameters pass@64 ends below the start's", "many-ways", SHARED,
                 START["pass@64"], Final("pass@64"), Expect.BELOW, seeds=10, minutes=4.0, steps=150, looks=2,
                 about=About.HEADLINE),
        Measured("where prompts share parameters pass@1 ends above the start's",
                 "many-ways", SHARED, START["pass_rate"], Final("pass_rate"), seeds=10,
                 minutes=4.0, steps=150, looks=2, about=About.HEADLINE),
        Measured("where prompts share parameters the start overtakes before k = 64",
                 "", Computed(crossing, small=solved_after_three), 64.0, expect=Expect.BELOW, seeds=10, minutes=4.0,
                 about=About.HEADLINE),
        Measured("control: with a row for each prompt pass@64 ends above the start's", "many-ways", SEPARATE,
                 START["pass@64"], Final("pass@64"), seeds=10, minutes=4.0, steps=150, looks=2, about=About.COMPONENT),
    ),
    mutants=(
        Edit("start and trained change places", boundary, "before, after", "after, before"),
        Edit("the first k without a lead", passk.overtaken, "behind[-1]", "behind[0]"),
        Edit("with replacement", passk.missing, "- right[:, None] - steps", "- right[:, None]"),
        Edit("the start's lead is the trained policy's", passk.crossover,
             "missing(b, drawn, ks) - missing(a, drawn, ks)", "missing(a, drawn, ks) - missing(b, drawn, ks)"),
        Edit("solved by both", Boundary.only_start, "only_first", "both"),
    ),
)
