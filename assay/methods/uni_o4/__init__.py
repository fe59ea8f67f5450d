"""uni-o4: one clipped on-policy objective, first on states of an offline dataset, then in the task.

    clone N policies: loss_i = -log pi_i - diversity * (log pi_i - max over j != i of log pi_j);   fit Q, V, a model
    offline PPO: s of the data, a ~ old_i(.|s), A = min Q(s, a) - V(s) standardised, loss = -min(ratio A, clip(ratio) A)
    old_i <- pi_i only where the mean of Q along the learned model rose;   then PPO from the member with the best score

Lei et al. 2024. No conservative term: ratios stay near a policy that is replaced only by one with a better score.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Average, Edit, Exact, Measured, Method, probes, same_gradient
from assay.claims.probes import BOX_SPEC
from assay.methods.uni_o4 import claims
from assay.methods.uni_o4.base import cloned, improved, uni_o4
from assay.methods.uni_o4.losses import ModelScore
from assay.methods.uni_o4.models import GaussianCommittee, WithinBounds
from assay.methods.uni_o4.offline import Rising
from assay.recipes.defaults import CONTINUOUS
from assay.tasks.control.peg import peg
from assay.tasks.control.pendulum import pendulum

RECIPE = uni_o4()
CLONED = replace(RECIPE, before=(replace(RECIPE.before[0], hands={"actor": "actor", "value": "value"}),))
"""Without the offline steps."""


def handed_wrongly() -> int:
    """Returns which models a phase does not hand to the next: all four to the offline steps, policies and V online."""
    first, second = uni_o4().before
    all_four = {name: name for name in ("actor", "value", "q", "dynamics")}
    return (first.hands != all_four) + (second.hands != {"actor": "actor"})


METHOD = Method(
    paper="arXiv:2311.03351",
    recipe=uni_o4,
    worlds=(CONTINUOUS,),
    default_task="pendulum",
    family="offline to online",
    base=recipes.ppo,
    mutants=(
        Edit("the worst member goes online", GaussianCommittee.parameters_of, "argmax", "argmin"),
        Edit("the critics see actions beyond the bounds", WithinBounds.forward,
             "torch.minimum(torch.maximum(action, self.low), self.high)", "action"),
        Edit("scores of the first step alone", ModelScore.scores, "range(self.horizon)", "range(1)"),
        Edit("one model of three", ModelScore.scores, ".mean(0)[:-1]", "[0][:-1]"),
        Edit("the gate is open", Rising.__call__, "goes = score > best", "goes = score == score"),
        Edit("the policy itself acts offline", improved, 'behaviour="old"', 'behaviour="actor"'),
        Edit("a narrower clip", improved, "Clip(0.25, 0.25)", "Clip(0.2, 0.2)"),
        Edit("the mean in place of an expectile", cloned, "Expectile(0.7)", "Expectile(0.5)"),
    ),
    departures=(
        "the score averages the model's members, which are deterministic, over 10 steps (one sampled, up to 1,000)",
        "the member that goes online is chosen by its score alone, not by trials in the task; V is transferred as is",
        "annealing the clip range is left out (the authors' code stops it after 200 steps); time limits bootstrap",
        "deviations do not depend on the state; 4,000 updates of critics, 100 of the policy",
        "advantages are whitened over all members together, not for each",
    ),
    claims=(
        same_gradient("cloning, critics and dynamics: the gradients are those of the formulas",
                      lambda: uni_o4().before[0].recipe, claims.cloning_by_hand, claims.beyond_bounds, BOX_SPEC, 1e-6),
        Exact("on rows of the dataset",
              lambda: probes.foreign_rows(uni_o4().before[0].recipe, pendulum()), equals=0.0),
        Exact("data with terminal decisions are refused",
              lambda: probes.is_refused(uni_o4().before[0].recipe, peg()), equals=1.0),
        same_gradient("offline PPO and the score along the model: the gradients are those of the formulas",
                      lambda: uni_o4().before[1].recipe, claims.improving_by_hand, claims.offline_rows, BOX_SPEC, 1e-6),
        Exact("the old policies act in recorded states, each once",
              lambda: claims.gathered_errors(uni_o4().before[1].recipe), at_most=1e-4),
        Exact("its gate passes records: 1 + 1/2 + ... + 1/5 of five scores of one policy",
              lambda: claims.accepted(uni_o4().before[1].recipe), equals=137 / 60),
        same_gradient("online PPO of the best member: the gradients are those of the formulas, rewards as they are",
                      uni_o4, claims.online_by_hand, claims.online_rows, BOX_SPEC),
        same_gradient("also where most advantages are positive", uni_o4, claims.online_by_hand,
                      lambda: claims.online_rows(lower=-1.0), BOX_SPEC),
        Exact("each phase starts from the weights of the one before", handed_wrongly, equals=0.0),
        Measured("PPO begins better after the offline steps than after cloning alone", "pendulum", RECIPE,
                 CLONED, Average("evaluation"), seeds=5, minutes=6.0, steps=5),
    ),
)  # fmt: skip
