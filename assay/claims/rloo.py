"""Claims of rloo: its loss by hand, exact and measured claims, mutants."""

from assay.claims import Claims, Edit, best_of_group, by_hand, ignores_constants, learns_faster, same_gradient
from assay.method import BIGRAMS, PLACES, recipes

CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is the formula's", recipes.rloo, by_hand.rloo_loss),
        *ignores_constants(recipes.rloo(PLACES), recipes.reinforce(PLACES)),
        learns_faster("with as many sampled answers it learns faster than from the best answer of each group alone: "
                      "mean pass rate", recipes.rloo(BIGRAMS), best_of_group(BIGRAMS)),
    ),
    mutants=(
        Edit("the group mean", recipes.rloo, "LeaveOneOut()", "GroupMean()"),
        Edit("a mean over tokens", recipes.rloo, "SequenceSum()", "TokenMean()"),
    ),
)
