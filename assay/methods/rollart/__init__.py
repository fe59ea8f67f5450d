"""rollart: grpo whose trajectories run by themselves: no turn waits for the others, no batch for the slowest.

    barrier at each turn   sum_t max_i x_it seconds,   x_it the time of turn t of trajectory i
    trajectories apart     max_i sum_t x_it <= that;   equal for one trajectory, one turn, or constant times
    age                    version trained - version at the trajectory's start <= alpha = 1;   loss = grpo's

Gao et al. 2025. The first trajectories to end are the short ones, so a batch of the first B, or one that drops what is
too old, is trained on short episodes. Here a trajectory belongs to a step before it starts, and a step waits for all of
its own; the next step overlaps.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Edit, Exact, Measured, Method, same_gradient
from assay.claims.systems.schedules import Virtual
from assay.core.recipe import Recipe
from assay.ledger import Ledger
from assay.methods.rollart import claims
from assay.parts.objectives.trust import Clip
from assay.recipes.defaults import LANGUAGE, Defaults


def recipe(world: Defaults = LANGUAGE) -> Recipe:
    """Returns grpo: the ratio to the policy that sampled makes older turns usable."""
    return replace(recipes.grpo(world), name="rollart")


METHOD = Method(
    paper="arXiv:2512.22560",
    recipe=recipe,
    default_task="twenty-questions-2",
    family="systems",
    base=recipes.grpo,
    options={"gatherers": 4, "pieces": 2, "lag": 1},
    departures=(
        "nothing is dropped and no more trajectories are started than are trained: work is not handed out before its "
        "weights are new enough, so every start is trained once",
        "one version samples a trajectory: weights are not swapped between its turns",
        "pieces of a step's starts are sampled apart; with as many pieces as starts, single trajectories",
        "all samplers are alike: turns are not routed to different hardware, rewards are not computed elsewhere",
        "times by a virtual clock: 64 trajectories of 10 turns with log-normal times of mean 1",
    ),
    claims=(
        same_gradient("older trajectories enter by the ratio to the policy that sampled them", recipe,
                      claims.loss_by_hand, claims.sequences),
        Exact("turns of 1, 3 and 3, 1 take 6 with a barrier at each", lambda: claims.barrier(claims.CROSSED),
              equals=6.0),
        Exact("and 4 apart", lambda: claims.apart(claims.CROSSED), equals=4.0),
        Exact("trajectories apart are never slower", claims.slower_apart, equals=0.0),
        Exact("one turn, one trajectory, constant times: equally fast", claims.equal_cases, equals=0.0),
        Exact("no trajectory is older than alpha = 0, 1, 2, whatever the times", claims.age_over_alpha, equals=0.0),
        Exact("at alpha 0 all are sampled by the newest weights, and steps take turns", claims.synchronous_gap,
              equals=0.0),
        Exact("every start is trained once: none dropped, none started twice", claims.starts_not_trained, equals=0.0),
        Exact("so the first three batches are as long as planned", claims.bias_of_length, equals=0.0),
        Measured("at sigma 0.8 and alpha 1: 1.5 times the trajectories a second of a barrier at each turn", "",
                 claims.speedup_at_half_tail, 1.0, margin=0.5, seeds=10, minutes=0.2),
        Measured("and the gain grows with the tail: at sigma 1.2 above that at 0.2 by 0.5", "",
                 claims.speedup_at_long_tail, claims.speedup_at_short_tail, margin=0.5, seeds=10, minutes=0.4),
    ),
    mutants=(
        Edit("work is handed out one version early", Ledger._next, "step - self.schedule.lag >",
             "step - self.schedule.lag - 1 >"),
        Edit("work waits one version too long", Ledger._next, "> self.version", ">= self.version"),
        Edit("the first B that end are a batch", Ledger.batch, "len(self.here.get(self.step, ()))",
             "sum(map(len, self.here.values()))"),
        Edit("a batch without its slowest", Ledger.batch, "< self.schedule.pieces", "< self.schedule.pieces - 1"),
        Edit("one sampler at a time", Virtual.hand_out, "sorted(self.free)", "sorted(self.free)[:1]"),
        Edit("the ratio is not clipped", Clip.__call__, "torch.minimum(plain, clipped)", "plain"),
    ),
)  # fmt: skip
