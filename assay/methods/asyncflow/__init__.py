"""asyncflow: grpo whose rows are sampled beside training, with weights at most one version old.

    version k - lag <= version that samples step k <= version k,   lag = 1
    loss = grpo's, with rho_t = pi_now(y_t) / pi_sampled(y_t)

Han et al. 2025. Scheduling only: rows of step k + 1 are sampled while step k is trained. A count of rows in flight does
not bound their age, and the first rows to end are the short ones; batches that are the plan's, in its order, have
neither fault.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Edit, Exact, Expect, Final, Measured, Method, same_gradient
from assay.core.recipe import Recipe
from assay.ledger import Ledger
from assay.methods.asyncflow import claims
from assay.parts.objectives.trust import Clip
from assay.recipes.defaults import LANGUAGE, STALE, Defaults


def recipe(world: Defaults = LANGUAGE) -> Recipe:
    """Returns grpo: the ratio to the policy that sampled is what makes older rows usable."""
    return replace(recipes.grpo(world), name="asyncflow")


METHOD = Method(
    paper="arXiv:2507.01663",
    recipe=recipe,
    family="systems",
    base=recipes.grpo,
    options={"gatherers": 2, "lag": 1},
    departures=(
        "the table of rows and columns is a ledger of pieces of work: rewards and credit come when a step is complete",
        "rows are never consumed by a worker that died: lost work is handed out again",
        "staleness is bounded by age, not by a count of rows",
        "gain in time by a virtual clock (mean 1 a row, 64 samplers); wall seconds of processes are in docs/scale.md",
    ),
    claims=(
        same_gradient("older rows enter by the ratio to the policy that sampled them", recipe, claims.loss_by_hand,
                      claims.sequences),
        Exact("at lag 0 sampling and training alternate: 10 steps of 3 and 2 seconds take 50",
              lambda: claims.seconds(3.0, 2.0, lag=0), equals=50.0),
        Exact("at lag 1 they overlap: 3 + 9 x 3 + 2", lambda: claims.seconds(3.0, 2.0, lag=1), equals=32.0),
        Exact("and where training is slower: 2 + 10 x 3", lambda: claims.seconds(2.0, 3.0, lag=1), equals=32.0),
        Exact("no row is older than the lag, whatever the lengths", claims.age_over_lag, equals=0.0),
        Exact("and at lag 1 some rows are that old: the bound is reached", claims.oldest_at_one, equals=1.0),
        Exact("trained rows are the plan's, each once, in its order, after losses too", claims.not_planned, equals=0.0),
        Exact("lost work is handed out again; too old rows are refused, doubled ones known", claims.wrong_answers,
              equals=0.0),
        Measured("with long tails (sigma 0.8) lag 1 trains 1.2 times as many rows a second as lag 0", "",
                 claims.speedup_of_lag_one, 1.0, margin=0.2, seeds=10, minutes=0.1),
        Measured("rows one version old cost no score", "stale", recipes.grpo(STALE).set("rollout.delay", 1),
                 recipes.grpo(STALE), Final(), Expect.WITHIN, margin=0.05, seeds=5, minutes=1.0, steps=60),
    ),
    mutants=(
        Edit("work is handed out one version early", Ledger._next, "step - self.schedule.lag >",
             "step - self.schedule.lag - 1 >"),
        Edit("work waits one version too long", Ledger._next, "> self.version", ">= self.version"),
        Edit("the age of what arrives is not asked", Ledger.deliver, "not work.least <= version <= self.version",
             "False"),
        Edit("batches in the order of completion", Ledger.batch, "len(self.here.get(self.step, ()))",
             "max(map(len, self.here.values()), default=0)"),
        Edit("what a lost worker had is not handed out again", Ledger._lose, "heapq.heappush(self.again, piece)",
             "None"),
        Edit("a late delivery is taken twice", Ledger.deliver, " or number in self.here.get(step, ())", ""),
        Edit("a step is trained without its last piece", Ledger.batch, "< self.schedule.pieces",
             "< self.schedule.pieces - 1"),
        Edit("the ratio is not clipped", Clip.__call__, "torch.minimum(plain, clipped)", "plain"),
    ),
)  # fmt: skip
