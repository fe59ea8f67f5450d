"""Claims of dr-grpo: its loss by hand, exact and measured claims, mutants."""

from assay.claims import About, Claims, Edit, Exact, Expect, Measured, by_hand, probes
from assay.method import recipes

CLAIMS = Claims(
    claims=(
        Exact(
            "off-policy its gradient is the formula's",
            lambda: probes.formula_gap(
                recipes.dr_grpo(),
                (lambda: probes.sequences(num=128), probes.graded, probes.signed),
                by_hand.dr_grpo_loss,
            ),
            at_most=1e-9,
        ),
        Measured(
            "it scores like grpo after 100 steps",
            "sorting-5",
            recipes.dr_grpo(),
            recipes.grpo(),
            expect=Expect.WITHIN,
            margin=0.1,
            seeds=5,
            minutes=4.0,
            steps=100,
            warmup=60,
            about=About.MECHANISM,
        ),
    ),
    mutants=(
        Edit("the leave-one-out mean", recipes.dr_grpo, "GroupMean()", "LeaveOneOut()"),
        Edit("a higher upper clip", recipes.dr_grpo, "Clip(0.2, 0.2)", "Clip(0.2, 0.28)"),
        Edit("no clip", recipes.dr_grpo, "Clip(0.2, 0.2)", "NoTrust()"),
        Edit("a mean over tokens", recipes.dr_grpo, "FixedLength(length)", "TokenMean()"),
    ),
)
