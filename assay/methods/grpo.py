"""grpo: outcomes centred and scaled inside a group, clipped ratio, mean within each sequence.

    A_i = (R_i - mean R) / (std R + epsilon),  loss = -mean_i 1/|y_i| sum_t min(rho_t A_i, clip(rho_t, 1 - low, 1 + high) A_i)

Shao et al. 2024. No critic. The division by the deviation weighs prompts by how even their outcomes are, the mean
within a sequence weighs short wrong answers more than long ones: both are biases, and both are shown below.
"""

import torch

from assay import bases, probes
from assay.claims import Exact, Method
from assay.worlds import CONTROL, LANGUAGE, TABLE

LOGITS_PA = torch.tensor([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])
REWARD_PA = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
"""Two prompts, three answers each, the first one right: likely for the first prompt, unlikely for the second."""


def advantage_of_equal_rewards() -> torch.Tensor:
    experience = probes.bandit_experience([0, 1, 1], [1.0, 1.0, 1.0], LOGITS_PA[0])
    return probes.credited(bases.grpo(), experience).column("advantage").abs().max()


def turn_by_the_deviation() -> float:
    """Cosine between the expected and the exact gradient over prompts of unequal difficulty."""
    return probes.compare(bases.grpo(), probes.bandit_episodes(REWARD_PA), LOGITS_PA, members=3).cosine


METHOD = Method(
    paper="arXiv:2402.03300",
    recipe=bases.grpo,
    worlds=(LANGUAGE, CONTROL, TABLE),
    home="countdown",
    departs=(
        "no KL to a reference by default; add KlToReference",
        "two minibatches a step instead of one epoch of many",
        "deviation with n - 1, epsilon 1e-4, as in the common public code",
    ),
    claims=(
        Exact("equal rewards give no advantage", advantage_of_equal_rewards, equals=0.0),
        Exact("dividing by the deviation turns the gradient when prompts differ in difficulty", turn_by_the_deviation, at_most=0.9999),
    ),
)
