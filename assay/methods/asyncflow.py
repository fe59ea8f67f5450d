"""asyncflow: grpo whose rows are sampled beside training, with weights at most one version old.

    version k - lag <= version that samples step k <= version k,   lag = 1
    loss = grpo's, with rho_t = pi_now(y_t) / pi_sampled(y_t)

Han et al. 2025. Scheduling only: rows of step k + 1 are sampled while step k is trained. A count of rows in flight does
not bound their age, and the first rows to end are the short ones; batches that are the plan's, in its order, have
neither fault.
"""

from dataclasses import replace

from assay.method import LANGUAGE, Preset, Method, Recipe, recipes


def recipe(preset: Preset = LANGUAGE) -> Recipe:
    """Returns grpo: the ratio to the policy that sampled is what makes older rows usable."""
    return replace(recipes.grpo(preset), name="asyncflow")


METHOD = Method(
    paper="arXiv:2507.01663",
    recipe=recipe,
    family="systems",
    base=recipes.grpo,
    options={"gatherers": 2, "lag": 1},
    departures=(
        "the table of rows and columns is a ledger of pieces of work: rewards and credit come when a step is complete",
        "rows are never consumed by a worker that died: lost work is handed out again",
        "staleness is bounded by age, not by a count of rows",
        "gain in time by a virtual clock (mean 1 a row, 64 samplers); wall seconds of processes are in docs/scale.md",
    ),
)
