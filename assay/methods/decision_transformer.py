"""decision-transformer: behaviour cloning by a transformer that reads the return to come; acting asks for the best.

    loss = -log pi(a_t | R_t-K+1, s_t-K+1, a_t-K+1, ..., R_t, s_t),   R_t = r_t + r_t+1 + ... to the episode's end
    acting: R_0 = target, R_t+1 = R_t - r_t, the last K decisions as context

Chen et al. 2021. A log of mixed quality has good and bad answers to one state. The return that followed tells them
apart, so no value has to be learned; what was luck is asked for like what was skill.
"""

from assay.method import CONTINUOUS, CONTROL, TABLE, Method, recipes

METHOD = Method(
    paper="arXiv:2106.01345",
    recipe=recipes.decision_transformer,
    presets=(CONTROL, CONTINUOUS, TABLE),
    default_task="cartpole",
    family="offline",
    base=recipes.bc,
    departures=(
        "no dropout; two layers of 64 (three of 128), rotary positions besides the learned time of a step, no biases",
        "the target is the best return of the log, not one of several that are compared by their scores",
        "Adam's rate is that of the preset, without warm-up (1e-4 after 10,000 updates of warm-up)",
        "squared errors are halves of sums over action dimensions, in half-ranges (means)",
    ),
)
