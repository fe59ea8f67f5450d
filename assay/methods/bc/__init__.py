"""bc: behaviour cloning, maximum likelihood of an expert's actions.

    loss = -1/(sum_i T_i) sum_i sum_t log pi(a_t | s_t)

Pomerleau 1988. The same objective part as sft; a deterministic actor makes it least squares.
"""

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.probes import by_hand
from assay.claims.claim import Exact, Measured, Method
from assay.recipes.defaults import CONTINUOUS, CONTROL, TABLE


def likelihood(seen: probes.Seen) -> torch.Tensor:
    return -seen.logp().sum() / seen.experience.mask.sum()


def least_squares(seen: probes.Seen) -> torch.Tensor:
    """Returns the loss of a Gaussian with mean f(s) and one deviation, without its constant."""
    step, actor = by_hand.step_of(seen), seen.models["actor"]
    error = (step.action - by_hand.output(actor, step.now)) / actor.log_std.exp()
    return step.mean((error.square() / 2 + actor.log_std).sum(-1))


def not_cloned() -> float:
    """Returns how many decisions of the expert's episodes a step leaves out, repeats or changes."""
    task: Any = GridWorld()
    source: Any = recipes.bc(TABLE).source
    scene = ALONE.given(task=task)
    batches = list(source(scene, source.init(scene)))
    shown = task.demonstrate(np.arange(8), 0)
    wanted = [(int(s), int(a)) for s, a in zip(shown.context["state"][shown.mask], shown.action[shown.mask], strict=True)]
    found = [(int(s), int(a)) for one in batches for s, a in zip(one.context["state"][one.mask], one.action[one.mask], strict=True)]
    return abs(len(batches) - 16) + float(sorted(wanted) != sorted(found))


METHOD = Method(
    paper="Pomerleau 1988",
    recipe=recipes.bc,
    worlds=(CONTROL, CONTINUOUS, TABLE),
    default_task="cartpole",
    family="imitation",
    base=recipes.sft,
    aliases=(
        "behaviour-cloning",
        "behavior-cloning",
    ),
    departures=("expert episodes come from the task's scripted expert unless a dataset is the task",),
    claims=(
        Exact(
            "its gradient is that of the likelihood",
            lambda: probes.formula_gap(recipes.bc(TABLE), probes.sequences(), likelihood),
            at_most=1e-9,
        ),
        Exact(
            "with a Gaussian it is that of least squares",
            lambda: probes.formula_gap(recipes.bc(CONTINUOUS), probes.transitions(), least_squares, probes.BOX_SPEC),
            at_most=1e-9,
        ),
        Exact("a step clones every decision of 8 expert episodes once, in 16 batches", not_cloned, equals=0.0),
        Measured("imitates a perfect expert", "cartpole", recipes.bc(), 475.0, seeds=5, minutes=1),
    ),
)
