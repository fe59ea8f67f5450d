"""reinforce: raises the log-probability of outcomes above the batch mean.

    loss = -mean over sequences of (R(y) - mean R) * log pi(y)

Williams 1992. The baseline contains the sample itself, which scales the expected gradient by (n - 1) / n and nothing
else. One on-policy step for each batch: no ratio, no clip.
"""

from assay.method import Method, recipes

METHOD = Method(
    paper="Williams 1992",
    recipe=recipes.reinforce,
    family="policy gradient",
    departures=("Adam instead of plain gradient ascent",),
    pilots=(
        "seeds 100 and 101, mean pass rate: on levels 0.42, 0.44, without a baseline 0.42, 0.42; where most answers "
        "are right, so that without one most of the gradient is noise, and in the claim, 0.886, 0.886 and 0.877, 0.877",
    ),
)
