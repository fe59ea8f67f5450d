"""srl-system: ppo with environments, policy and training as separate workers joined by streams.

    inline        a step of N environments takes sum_i e_i + f seconds,   f the policy's call
    ring of R     T steps take (T - 1) max(R f, e + f) + R f + e: R environments in flight, one at the policy

Mei et al. 2024. Where a worker runs is not the algorithm's business: in one process, in processes with pipes, or in a
ring in which the policy serves one group while the others step, loss and rows are the same to the bit.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Edit, Exact, Measured, Method, probes, same_gradient
from assay.claims.systems.answers import Delayed
from assay.claims.systems.schedules import Virtual
from assay.core.recipe import Recipe
from assay.ledger import Ledger
from assay.methods.srl_system import claims
from assay.playing.ready import stepped_apart
from assay.recipes.defaults import CONTROL, Defaults


def recipe(world: Defaults = CONTROL) -> Recipe:
    """Returns ppo: where its workers run is an option of the run."""
    return replace(recipes.ppo(world), name="srl-system")


METHOD = Method(
    paper="arXiv:2306.16688",
    recipe=recipe,
    default_task="cartpole",
    family="systems",
    base=recipes.ppo,
    options={"env_workers": 4, "env_ready": 1},
    departures=(
        "environments are processes, policy and training share one; whole episodes and answers can be sampled beside "
        "training (--gatherers), simulations that persist between steps cannot",
        "the ring is first come, first served: a slow environment at its head does not stall it",
        "nothing is dropped on overflow: a stream is as long as the schedule allows, and every row is trained once",
        "chunks do not overlap: the last column of a fragment holds the next observation and is masked",
    ),
    claims=(
        same_gradient("its gradients are ppo's", recipe, claims.losses_by_hand, probes.fragments),
        Exact("a step is three epochs of four minibatches",
              lambda: probes.source_gap(recipe(), probes.fragments(), batches=12, epochs=3), equals=0.0),
        Exact("inline, together and in rings of 2, 4 and 8: the same bits", claims.other_bits, equals=0.0),
        Exact("one environment, e = 3, f = 1, 64 steps: 256 seconds", lambda: claims.ring(1), equals=256.0),
        Exact("a ring of 2 takes 257", lambda: claims.ring(2), equals=257.0),
        Exact("of 4, where it saturates, 259: four times the frames a second", lambda: claims.ring(4), equals=259.0),
        Exact("of 8: 515, no more frames a second", lambda: claims.ring(8), equals=515.0),
        Exact("e, f and training in a row: 10 steps take 10 (e + f + g)", lambda: claims.three_workers(0), equals=60.0),
        Exact("with training apart 10 steps take e + f + 9 max(e + f, g) + g", lambda: claims.three_workers(1),
              equals=42.0),
        Exact("every row is trained once, in order; none is dropped, none left over", claims.rows_lost, equals=0.0),
        Measured("sleeping environments (20 ms), four processes over one: 1.4 times the frames a second (wall clock)",
                 "", claims.wall_speedup, 1.0, margin=0.4, seeds=5, minutes=2.0),
    ),
    mutants=(
        Edit("actions of other instances", stepped_apart, "decided[0][rows]", "decided[0][: len(rows)]"),
        Edit("random numbers by the order of calls", stepped_apart, "np.minimum(done_N, len(times) - 1)",
             "np.full_like(done_N, done_N.max().clip(max=len(times) - 1))"),
        Edit("the ring waits for all", Delayed.receive, "min(self.ready, len(self.flying))", "len(self.flying)"),
        Edit("ends are forgotten", stepped_apart, "over[rows] = terminal | truncated", "over[rows] = terminal & False"),
        Edit("steps are dropped", stepped_apart, "rows[done_N[rows] < len(times)]",
             "rows[done_N[rows] < len(times) - 1]"),
        Edit("the newest rows are trained first", Ledger._next, "step, number = self.next",
             "step, number = (self.next[0] + self.schedule.lag, self.next[1])"),
        Edit("training is waited for", Virtual.learn, "self.is_training = True",
             "self.is_training, self.free = True, set()"),
        Edit("one epoch", recipes.ppo, "source=world.reuse", "source=world.once"),
    ),
)  # fmt: skip
