"""srl-system: ppo with environments in processes of their own, served in a ring as each one answers.

    inline        a step of N environments takes sum_i e_i + f seconds,   f the policy's call
    ring of R     T steps take (T - 1) max(R f, e + f) + R f + e: R environments in flight, one at the policy

Mei et al. 2024. Where a worker runs is not the algorithm's business: in one process, in processes with pipes, or in a
ring in which the policy serves one group while the others step, loss and rows are the same to the bit. One capability
with envpool, the stepping of Gymnasium's environments in processes: here the policy is called for each that answers.
"""

from dataclasses import replace

from assay.method import CONTROL, Method, Preset, Recipe, recipes


def recipe(preset: Preset = CONTROL) -> Recipe:
    """Returns ppo: where its workers run is an option of the run."""
    return replace(recipes.ppo(preset), name="srl-system")


METHOD = Method(
    paper="arXiv:2306.16688",
    recipe=recipe,
    default_task="CartPole-v1",
    family="systems",
    base=recipes.ppo,
    options={"env_workers": 4, "env_ready": 1},
    departures=(
        "of the paper's workers only environments are processes of their own: policy and training share one, without "
        "policy workers, sockets between machines or a parameter store; whole episodes and answers can be sampled "
        "beside training (--gatherers), simulations that persist between steps cannot",
        "built-in tasks are stepped as one array and wait for nothing: on these it is ppo, and the run says so",
        "the ring is first come, first served: a slow environment at its head does not stall it",
        "nothing is dropped on overflow: a stream is as long as the schedule allows, and every row is trained once",
        "chunks do not overlap: the last column of a fragment holds the next observation and is masked",
    ),
)
