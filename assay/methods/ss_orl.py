"""ss-orl: offline learning from episodes most of which lost their actions, completed by a model of inverse dynamics.

    (s_{t-1}, s_t, s_{t+1}) -> N(mean, deviation) of artanh a_t, by likelihood on labelled episodes;   a_t = tanh(mean)
    then td3-bc on all episodes, recorded and completed actions alike

Zheng et al. 2023. What was done between two states can be read off them even in episodes better than those with labels,
so that value and policy learn from the good ones. Nothing of the learner changes.

Axes: N rows, B sequences, T decisions.
"""

from dataclasses import replace
from functools import partial

from assay.method import CONTINUOUS, Method, Preset, Recipe, logged, td3_bc
from assay.parts import Completed, InverseDynamics, Log


def recipe(
    preset: Preset = CONTINUOUS, log: Log | None = None, share: float = 0.1, among: float = 0.5,
    model: InverseDynamics | None = InverseDynamics(),
) -> Recipe:
    """Returns td3-bc on a dataset of which a share of the episodes, drawn among the worst, keeps its actions."""
    source = Completed(model, logged(preset, log), share, among)
    return replace(td3_bc(preset, log), name="ss-orl", source=source)


METHOD = Method(
    paper="arXiv:2210.06518",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="offline",
    base=td3_bc,
    variants={"labelled": partial(recipe, model=None), "oracle": partial(recipe, share=1.0)},
    departures=(
        "the actions are hidden here, of a dataset that has them; a file whose rows lack theirs is completed by "
        "`assay data alter FILE completed`",
        "the last state of an episode is the recorded next one; the authors' code shifts the window there by one",
        "the likelihood is that of artanh of the action; the density of tanh is a constant for the fit",
        "two layers of 128, 2,000 batches of 256, Adam 1e-3, no dropout, no validation (1,024, 100 x 1,024, 1e-4)",
        "the learner is td3-bc; in the paper also cql and decision transformers; data are not D4RL",
    ),
)
