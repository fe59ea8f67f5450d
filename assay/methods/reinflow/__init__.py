"""reinflow: learned noise along a flow policy's path gives it a likelihood, so that ppo applies unchanged.

    x_0 ~ N(0, I);   x_(k+1) = x_k + v(s, k/K, x_k) / K + sigma(s, k/K) * noise;   action = x_K
    log pi(path | s) = log N(x_0; 0, I) + sum_k log N(x_(k+1); x_k + v / K, sigma^2),   loss = ppo's, ratio of paths

Zhang et al. 2025. Exact for any number of steps, one included; sigma is bounded on both sides, and without it the
flow is deterministic. The flow is first cloned from offline data by flow matching; velocity and noise are trained
together.
"""

from assay import recipes
from assay.claims import Edit, Exact, Gain, Measured, Method, probes
from assay.methods.reinflow.base import flow_matching, reinflow
from assay.methods.reinflow.claims import losses_by_hand, matching_by_hand, recorded, walk_gap
from assay.methods.reinflow.models import Flow, FlowPolicy
from assay.models.bodies.paths import walked
from assay.models.model import Policy
from assay.recipes.defaults import CONTINUOUS
from assay.tasks.control.pendulum import pendulum


def matching_gap() -> float:
    first = reinflow().before[0].recipe
    return probes.formula_gap(first, probes.transitions(num=64), matching_by_hand, probes.BOX_SPEC)


METHOD = Method(
    paper="arXiv:2505.22094",
    recipe=reinflow,
    worlds=(CONTINUOUS,),
    default_task="pendulum",
    family="offline to online",
    base=recipes.ppo,
    variants={"flow-matching": flow_matching},
    mutants=(
        Edit("the first point has no density", FlowPolicy.score, "path_logp(path,", "path_logp(0 * path,"),
        Edit("noise of equal size at all steps", FlowPolicy.log_std, "self.times)", "self.times[:1])"),
        Edit("noise depends on no state", FlowPolicy.log_std, "seen.unsqueeze(-2)", "0 * seen.unsqueeze(-2)"),
        Edit("the velocity of the end alone", FlowPolicy.misfit, "time_features(time)", "time_features(0 * time + 1)"),
        Edit("the noise is fixed", Flow.on, "self.noise)", "(0.08, 0.08))"),
        Edit("deterministic after the first point", walked, "std[:, k] * noise", "0.0 * noise"),
    ),
    departures=(
        "the ratio is the path's, as the paper writes it; the code takes the geometric mean of its factors, clip 0.01",
        "steps, noise and the stored end are not clipped, only the executed action: the recorded density is exact",
        "deterministic means from x_0 = 0; the authors still draw x_0. One action per decision, no chunks",
        "no shortcut models, no schedule of the noise bounds, no warm-up of the critic, no distance to the cloned flow",
        "one dataset of a scripted expert with noise, not D4RL or Robomimic",
    ),
    claims=(
        Exact("its gradients are ppo's with the ratio of whole paths", lambda: probes.formula_gap(
              reinflow(), recorded(reinflow()), losses_by_hand, probes.BOX_SPEC), at_most=1e-6),
        Exact("sampled paths are Euler steps with noise, and recorded as scored",
              lambda: walk_gap(reinflow()), at_most=1e-9),
        Exact("the flow is first matched to the data", matching_gap, at_most=1e-5),
        Exact("on rows of the dataset",
              lambda: probes.foreign_rows(reinflow().before[0].recipe, pendulum()), equals=0.0),
        Measured("raises the return of the flow it starts from", "pendulum", reinflow(), 0.0,
                 metric=Gain(), seeds=5, minutes=3.0, steps=40),
        Measured("learned noise ends above fixed small noise", "pendulum", reinflow(),
                 reinflow(actor=Policy(head=Flow(noise=(0.08, 0.08)))), seeds=5, minutes=6.0, steps=40),
    ),
)  # fmt: skip
