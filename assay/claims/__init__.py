"""Claims of methods, and the probes that compute exact claims: what the folder of a method imports."""

from assay.claims.claim import Average, DecisionsTo, Dip, Edit, Exact, Expect, Final, Gain, Measured, Method
from assay.claims.gradient import same_gradient
from assay.claims.policies import AnswerProbability, Area, DistinctAt, Largest, PassAt
from assay.claims.probes import by_hand

__all__ = [
    "AnswerProbability",
    "Area",
    "Average",
    "DecisionsTo",
    "Dip",
    "DistinctAt",
    "Edit",
    "Exact",
    "Expect",
    "Final",
    "Gain",
    "Largest",
    "Measured",
    "Method",
    "PassAt",
    "by_hand",
    "same_gradient",
]
