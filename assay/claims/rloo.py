"""Claims of rloo: its loss by hand, exact and measured claims, mutants."""


from assay.claims import About, Claims, Edit, Expect, Final, Measured, best_of_group, by_hand, learns_faster
from assay.claims import same_gradient
from assay.method import BIGRAMS, PLACES, recipes

CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is the formula's", recipes.rloo, by_hand.rloo_loss),
        Measured(
            "where prompts pay unequal constants it scores higher than reinforce; refuted by a lead below 0.1",
            "hackable:hack=0,offset=5",
            recipes.rloo(PLACES),
            recipes.reinforce(PLACES),
            Final("true_score"),
            margin=0.1,
            seeds=5,
            minutes=1.0,
            steps=60,
            about=About.MECHANISM,
        ),
        Measured(
            "where prompts pay no constants its score is within 0.05 of reinforce's",
            "hackable:hack=0,offset=0",
            recipes.rloo(PLACES),
            recipes.reinforce(PLACES),
            Final("true_score"),
            Expect.WITHIN,
            margin=0.05,
            seeds=5,
            minutes=1.0,
            steps=60,
            about=About.COMPONENT,
        ),
        learns_faster("with as many sampled answers it learns faster than from the best answer of each group alone: "
                      "mean pass rate", recipes.rloo(BIGRAMS), best_of_group(BIGRAMS)),
    ),
    mutants=(
        Edit("the group mean", recipes.rloo, "LeaveOneOut()", "GroupMean()"),
        Edit("a mean over tokens", recipes.rloo, "SequenceSum()", "TokenMean()"),
    ),
)
