"""envpool: ppo on environments in processes, stepped on as soon as M of N have answered.

    synchronous   T steps take sum_t max_i x_it seconds,   x_it the time of step t of environment i
    M of N        a call of the policy serves the first M that have answered; loss and rows are ppo's

Weng et al. 2022. A slow environment holds up no other. Rows are filed by environment and time, every environment takes
the same number of steps, and the stream of each equals its serial replay: the numbers are those of the synchronous run.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Edit, Exact, Measured, Method, probes, same_gradient
from assay.claims.probes import by_hand
from assay.claims.systems.answers import Delayed
from assay.core.recipe import Recipe
from assay.methods.envpool import claims
from assay.playing.ready import Filed, stepped_apart
from assay.recipes.defaults import CONTROL, Defaults


def recipe(world: Defaults = CONTROL) -> Recipe:
    """Returns ppo: how its environments are stepped is an option of the run."""
    return replace(recipes.ppo(world), name="envpool")


METHOD = Method(
    paper="arXiv:2206.10558",
    recipe=recipe,
    default_task="cartpole",
    family="systems",
    base=recipes.ppo,
    options={"env_workers": 4, "env_ready": 2},
    departures=(
        "processes and pipes instead of C++ threads: ratios are claimed, frames a second are not; EnvPool's own "
        "environments are tasks envpool:ID",
        "every environment takes equally many steps before an update: no row is preferred for being fast, and the last "
        "ones of a fragment are waited for",
        "the policy computes all N rows at each call, so that results do not depend on which M were ready",
        "built-in tasks are stepped as one array and wait for nothing: options of environments are for Gymnasium's",
    ),
    claims=(
        same_gradient("its gradients are ppo's", recipe, claims.losses_by_hand, probes.fragments),
        same_gradient("with continuous actions too", claims.torques, by_hand.ppo_of_torques, claims.transitions,
                      probes.BOX_SPEC),
        Exact("a step is three epochs of four minibatches",
              lambda: probes.source_gap(recipe(), probes.fragments(), batches=12, epochs=3), equals=0.0),
        Exact("1, 3, 4 and 8 of 8: bit by bit the synchronous record", claims.other_bits, equals=0.0),
        Exact("each environment, stepped alone with its own actions, answers what was recorded",
              claims.replay_gap, equals=0.0),
        Exact("every environment takes every step once, and none is in flight afterwards",
              claims.steps_missing, equals=0.0),
        Exact("constant times: 2 of 8 take as long as 8 of 8", lambda: claims.seconds([1.0], 2), equals=16.0),
        Exact("one of two twice as slow, 16 steps: 32 together and 32 apart", claims.slow_one, equals=32.0),
        Exact("slow in turns: 1 + 3 and 3 + 1 take 6 together and 4 apart", lambda: claims.in_turns(2), equals=6.0),
        Exact("and 4 apart", lambda: claims.in_turns(1), equals=4.0),
        Measured("exponential times, 4 of 8: 1.6 times the frames a second of 8 of 8 (virtual clock)", "",
                 claims.speedup_of_half, 1.0, margin=0.6, seeds=10, minutes=0.3),
        Measured("the same with processes that sleep 50 ms: 1.2 times (wall clock)", "", claims.wall_speedup, 1.0,
                 margin=0.2, seeds=5, minutes=2.0),
    ),
    mutants=(
        Edit("actions of other instances", stepped_apart, "decided[0][rows]", "decided[0][: len(rows)]"),
        Edit("random numbers by the order of calls", stepped_apart, "np.minimum(done_N, len(times) - 1)",
             "np.full_like(done_N, done_N.max().clip(max=len(times) - 1))"),
        Edit("rows are filed in the order of arrival", stepped_apart, "filed.put(done_N[rows], rows, told",
             "filed.put(done_N[rows], np.sort(rows)[::-1].copy(), told"),
        Edit("ends are forgotten", stepped_apart, "over[rows] = terminal | truncated", "over[rows] = terminal & False"),
        Edit("fast ones take more steps", stepped_apart, "done_N[rows] += 1", "done_N[rows[1:]] += 1"),
        Edit("an answer is not shown", stepped_apart, "context[name][rows] = value",
             "context[name][rows[1:]] = value[1:]"),
        Edit("waits for all", Delayed.receive, "min(self.ready, len(self.flying))", "len(self.flying)"),
        Edit("all of a step are filed at one time", Filed.put, "[times_n, rows_n]", "[times_n.min(), rows_n]"),
        Edit("one epoch", recipes.ppo, "source=world.reuse", "source=world.once"),
    ),
)  # fmt: skip
