"""uni-o4: one clipped on-policy objective, first on states of an offline dataset, then in the task.

    clone N policies: loss_i = -log pi_i - diversity * (log pi_i - max over j != i of log pi_j);   fit Q, V, a model
    offline PPO: s of the data, a ~ old_i(.|s), A = min Q(s, a) - V(s) standardised, loss = -min(ratio A, clip(ratio) A)
    old_i <- pi_i only where the mean of Q along the learned model rose;   then PPO from the member with the best score

Lei et al. 2024. No conservative term: ratios stay near a policy that is replaced only by one with a better score.
"""


from assay.method import CONTINUOUS, Method, recipes
from assay.methods.uni_o4.base import uni_o4

METHOD = Method(
    paper="arXiv:2311.03351",
    recipe=uni_o4,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="offline to online",
    base=recipes.ppo,
    departures=(
        "ends are predicted by a learned model, in the authors' code by a function for each task; a rollout in it "
        "counts as one score however long it is, theirs as often as it has steps",
        "the score averages the model's members, which are deterministic, over 10 steps (one sampled, up to 1,000)",
        "the member that goes online is chosen by its score alone, not by trials in the task; V is transferred as is",
        "annealing the clip range is left out (the authors' code stops it after 200 steps); time limits bootstrap",
        "deviations do not depend on the state; 4,000 updates of critics, 100 of the policy",
        "advantages are whitened over all members together, not for each",
    ),
    results=(
        "undecided after five seeds: PPO begins at -133 and after cloning alone at -150, better on four of them",
    ),
)
