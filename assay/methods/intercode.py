"""intercode: code is the action, what it prints the observation, and only what it leaves at "submit" is paid.

    SQL:     R = IoU of last rows and right rows x Kendall's tau of the common ones
    bash:    R = 0.01 + 0.33 (1 - erf(wrong changes)) + 0.33 equal new files + 0.33 cosine(last output, right output)
    Python:  R = share of tests that pass

2023. A task and not a learner: state stays between turns, errors are text that the next utterance can answer, and one
turn is the usual one-shot coding. The recipe is grpo, and on a plain file of prompts nothing else; `code:FILE.jsonl`
executes rows of one's own (`tasks.language.code_sessions`), the default task is SQL with hidden names of columns.
"""

from dataclasses import replace

from assay.method import LANGUAGE, Method, Preset, Recipe, recipes


def recipe(preset: Preset = LANGUAGE) -> Recipe:
    """Returns grpo under another name: what is new is the task."""
    return replace(recipes.grpo(preset), name="intercode")


METHOD = Method(
    paper="arXiv:2306.14898",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="queries",
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "the paper trains nothing: it prompts models (single turn, try again, ReAct, Plan & Solve); its data sets and "
        "images are not here, rows are the user's own",
        "a database is made for each query and can only be read; in the released code what an episode writes stays",
        "changes of files are found in their contents, not by git; right files and output are those of the commands in "
        "the field `solution`, run in a box of their own",
        "cells of Python are executed again before each new one: one with a clock or chance may differ",
        "kept as in the released code: scores of rows in reverse order are negative, order counts though a question "
        "asks for none, only the last result counts, contents of changed files are not compared, doing nothing is 0.67 "
        "where nothing should change, and any utterance that begins with submit ends the episode",
        "6 turns where the paper has 10; what is read of an output is cut at 400 bytes",
        "not measured: language models, and learning on bash or Python",
    ),
    results=(
        "measured on a policy that errs at a known rate and never repeats the name that was refused last, since what "
        "feedback is worth to a language model depends on the model",
    ),
)
