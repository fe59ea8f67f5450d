"""Claims of rloo: its loss by hand, exact and measured claims, mutants."""


from assay.claims import About, Claims, Edit, Expect, Final, Gain, Measured, by_hand, same_gradient
from assay.method import PLACES, recipes

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
        Measured(
            "it learns: its held-out score rises",
            "sorting-5",
            recipes.rloo(),
            0.0,
            metric=Gain(),
            seeds=5,
            minutes=4.0,
            steps=100,
            warmup=60,
            about=About.HEADLINE,
        ),
    ),
    mutants=(
        Edit("the group mean", recipes.rloo, "LeaveOneOut()", "GroupMean()"),
        Edit("a mean over tokens", recipes.rloo, "SequenceSum()", "TokenMean()"),
    ),
)
