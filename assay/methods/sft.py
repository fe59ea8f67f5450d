"""sft: maximum likelihood of demonstrations.

    loss = -1/(sum_i |y_i|) sum_i sum_t log pi(y_t | prompt, y_<t)

Prompts are context, never targets. It is the warm-up of every language method.
"""

from assay.method import LANGUAGE, PREFERENCES, TABLE, Method, recipes

METHOD = Method(
    paper="maximum likelihood",
    recipe=recipes.sft,
    presets=(LANGUAGE, PREFERENCES, TABLE),
    family="imitation",
    start_for="demonstrations: what comes before the others",
)
