"""reinflow: learned noise along a flow policy's path gives it a likelihood, so that ppo applies unchanged.

    x_0 ~ N(0, I);   x_(k+1) = x_k + v(s, k/K, x_k) / K + sigma(s, k/K) * noise;   action = x_K
    log pi(path | s) = log N(x_0; 0, I) + sum_k log N(x_(k+1); x_k + v / K, sigma^2),   loss = ppo's, ratio of paths

Zhang et al. 2025. Exact for any number of steps, one included; sigma is bounded on both sides, and without it the
flow is deterministic. The flow is first cloned from offline data by flow matching; velocity and noise are trained
together.

Axes: B, T, N rows, K steps, A actions.
"""

from dataclasses import replace

from assay.method import CONTINUOUS, Adam, Method, Phase, Preset, Recipe, Stage, ppo, recipes
from assay.models import Flow, Policy
from assay.parts import Denoising, Log, LogLikelihood, Logged

MEDIOCRE = Logged((Log(episodes=50, noise=0.7),), batch=256, updates=10)
"""Episodes of the task's expert, most of whose actions are replaced by random ones."""


def flow_matching(preset: Preset = CONTINUOUS, actor: Policy = Policy(head=Flow())) -> Recipe:
    """A rectified flow (arXiv:2209.03003) that generates a dataset's actions: cloning, without a likelihood."""
    stage = Stage("flow", trains=("actor",), objective=(Denoising(),), optimizer=Adam(1e-3, clip_norm=0.0))
    return Recipe(name="flow", actor=actor, source=MEDIOCRE, stages=(stage,), steps=100)


def recipe(preset: Preset = CONTINUOUS, actor: Policy = Policy(head=Flow())) -> Recipe:
    """ReinFlow (arXiv:2505.22094): a cloned flow with learned noise along its path, then unchanged ppo."""
    base = ppo(preset)
    optimizer = replace(preset.optimizer, learning_rate=3e-4)
    policy = replace(base.stages[0], optimizer=optimizer)
    before = Phase("flow-matching", flow_matching(preset, actor), steps=100)
    return replace(base, name="reinflow", actor=actor, stages=(policy, base.stages[1]), before=(before,), steps=50)


def gaussian(preset: Preset = CONTINUOUS) -> Recipe:
    """The rival: a Gaussian policy cloned from the same data by as many batches, then the same ppo."""
    flow = recipe(preset)
    (first,) = flow.before
    stage = Stage("clone", trains=("actor",), objective=(LogLikelihood(),), optimizer=first.recipe.stages[0].optimizer)
    cloned = replace(first.recipe, name="bc", actor=preset.actor, stages=(stage,))
    return replace(flow, name="reinflow:gaussian", actor=preset.actor, before=(replace(first, recipe=cloned),))


METHOD = Method(
    paper="arXiv:2505.22094",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="offline to online",
    base=recipes.ppo,
    variants={"flow-matching": flow_matching, "gaussian": gaussian},
    departures=(
        "the ratio is the path's, as the paper writes it; the code takes the geometric mean of its factors, clip 0.01",
        "steps, noise and the stored end are not clipped, only the executed action: the recorded density is exact",
        "deterministic means from x_0 = 0; the authors still draw x_0. One action per decision, no chunks",
        "no shortcut models, no schedule of the noise bounds, no warm-up of the critic, no distance to the cloned flow",
        "one dataset of a scripted expert with noise, not D4RL or Robomimic; its actions have one mode, so that a "
        "Gaussian policy cloned from it (the variant `gaussian`) is a rival that may win",
        "not measured: large fixed noise and one step, for their cost",
    ),
)
