"""bc: behaviour cloning, maximum likelihood of an expert's actions.

    loss = -1/(sum_i T_i) sum_i sum_t log pi(a_t | s_t)

Pomerleau 1988. The same objective part as sft; a deterministic actor makes it least squares.
"""

from assay.method import CONTINUOUS, CONTROL, TABLE, Method, recipes

METHOD = Method(
    paper="Pomerleau 1988",
    recipe=recipes.bc,
    presets=(CONTROL, CONTINUOUS, TABLE),
    default_task="cartpole",
    family="imitation",
    start_for="recorded episodes of an expert",
    base=recipes.sft,
    aliases=(
        "behaviour-cloning",
        "behavior-cloning",
    ),
    departures=("expert episodes come from the task's scripted expert unless a dataset is the task",),
)
