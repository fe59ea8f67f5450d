"""Claims of sft: its loss by hand, exact and measured claims, mutants."""

from assay.claims import About, Claims, Edit, Exact, Gain, Measured, by_hand, probes
from assay.method import recipes
from assay.parts import LogLikelihood


def gap() -> float:
    """Returns the distance of the gradient from that of the mean over all demonstrated decisions."""
    return probes.formula_gap(
        recipes.sft(), probes.sequences(), lambda seen: -by_hand.mean_of_decisions(seen.logp(), seen.experience)
    )


CLAIMS = Claims(
    mutants=(
        Edit("only rows that were rewarded", LogLikelihood.__call__, "-view.scored.logp * self",
             "-view.scored.logp * (batch.reward.sum(1, keepdim=True) > 0) * self"),
        Edit("probability instead of its logarithm", LogLikelihood.__call__, "-view.scored.logp * self",
             "-view.scored.logp.exp() * self"),
        Edit("weighed by the recorded probability", LogLikelihood.__call__, "-view.scored.logp * self",
             "-view.scored.logp * batch.logp.exp() * self"),
    ),
    claims=(
        Exact("its gradient is that of the cross-entropy of all decisions", gap, at_most=1e-9),
        Measured(
            "it learns: its held-out score rises",
            "sorting-5",
            recipes.sft(),
            0.0,
            metric=Gain(),
            seeds=5,
            minutes=1,
            steps=100,
            about=About.HEADLINE,
        ),
    ),
)
