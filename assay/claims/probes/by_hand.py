"""Pieces of formulas, computed row by row: the other side of a claim. Axes: B sequences, T decisions.

Nothing here calls a part or an operation that it is compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from assay.claims.probes.formulas import BOX_SPEC, Seen
from assay.core.record import Experience


# ---------------------------------------------------------------------------------------------------- outcomes
def outcome(data: Experience) -> Tensor:
    """Returns the total reward of each row's decisions, [B]."""
    return torch.stack([reward[mask].sum() for reward, mask in zip(data.reward, data.mask, strict=True)])


def in_groups(value_B: Tensor, data: Experience, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns `change` of the values of each group, [B]; rows without a decision are in no group and get 0."""
    result = torch.zeros_like(value_B)
    for rows in rows_of_groups(data):
        result[rows] = change(value_B[rows])
    return result


def rows_of_groups(data: Experience) -> list[list[int]]:
    """Returns the rows of each group; rows without a decision are in no group."""
    assert data.group is not None
    found: dict[int, list[int]] = {}
    for row, label in enumerate(data.group.tolist()):
        if data.mask[row].any():
            found.setdefault(label, []).append(row)
    return [found[label] for label in sorted(found)]


def centred(data: Experience) -> Tensor:
    """Returns R - mean R of the group, [B]."""
    return in_groups(outcome(data), data, lambda reward: reward - reward.mean())


def standardised(data: Experience, epsilon: float = 1e-4) -> Tensor:
    """Returns (R - mean R) / (std R + epsilon) of the group, with n - 1, [B]: GRPO's advantage."""
    return in_groups(outcome(data), data, lambda reward: (reward - reward.mean()) / (reward.std() + epsilon))


def against_others(data: Experience, outcome_B: Tensor | None = None) -> Tensor:
    """Returns R - mean R of the other rows of the group, [B]: RLOO's advantage; R is the outcome if none is given."""

    def change(reward: Tensor) -> Tensor:
        others = [torch.cat((reward[:row], reward[row + 1 :])).mean() for row in range(len(reward))]
        return reward - torch.stack(others)

    return in_groups(outcome(data) if outcome_B is None else outcome_B, data, change)


# ---------------------------------------------------------------------------------------------------- time
def gae(data: Experience, value: Tensor, discount: float, gae_lambda: float) -> Tensor:
    """Returns generalised advantages, decision by decision from the last one, [B, T].

    After a terminal decision nothing follows; a truncated one, and the last one of a row, bootstrap from the next
    column; others from the next decision, across columns that are not decisions.
    """
    result, (num_rows, num_columns) = torch.zeros_like(value), data.mask.shape
    for row in range(num_rows):
        later: int | None = None
        for column in reversed(data.mask[row].nonzero().flatten().tolist()):
            ends, cut = bool(data.terminal[row, column]), bool(data.truncated[row, column])
            goes_on = later is not None and not ends and not cut
            place = later if goes_on else column + 1
            assert place is not None
            after = 0.0 if ends or place == num_columns else value[row, place]
            delta = data.reward[row, column] + discount * after - value[row, column]
            result[row, column] = delta + (discount * gae_lambda * result[row, place] if goes_on else 0.0)
            later = column
    return result.detach()


def whitened(value: Tensor, data: Experience) -> Tensor:
    """Returns (x - mean) / std over all decisions, with n - 1, 0 elsewhere."""
    chosen, result = value[data.mask], torch.zeros_like(value)
    result[data.mask] = (chosen - chosen.mean()) / (chosen.std() + 1e-8)
    return result


# ---------------------------------------------------------------------------------------------------- losses
def ratio(seen: Seen) -> Tensor:
    """Returns pi(a_t) / pi_old(a_t) of each decision with gradient, 1 elsewhere, [B, T]."""
    return torch.where(seen.experience.mask, seen.logp() - seen.experience.logp, 0.0).exp()


def clipped(ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """Returns PPO's gain: the ratio times the advantage, constant where it has already gained enough."""
    gained = ((advantage > 0) & (ratio > 1 + high)) | ((advantage < 0) & (ratio < 1 - low))
    return torch.where(gained, ratio.detach(), ratio) * advantage


Gain = Callable[[Tensor, Tensor], Tensor]
"""What a policy gains at each decision, [B, T], given its ratio and its advantage."""


def ppo(
    data: Experience,
    logp: Tensor,
    entropy: Tensor,
    value: Tensor,
    discount: float,
    gae_lambda: float,
    gain_of: Gain = partial(clipped, low=0.2, high=0.2),
) -> dict[str, Tensor]:
    """Returns PPO's losses of policy and value: entropy bonus 0.003, half squared errors of the returns; the gain of
    ratio and advantage is clipped at 0.2 unless given.
    """
    advantage = gae(data, value, discount, gae_lambda)
    ratio = torch.where(data.mask, logp - data.logp, 0.0).exp()
    gain = gain_of(ratio, whitened(advantage, data))
    error = value - (advantage + value).detach()
    return {
        "policy": -mean_of_decisions(gain + 0.003 * entropy, data),
        "value": mean_of_decisions(error.square() / 2, data),
    }


def entropy(seen: Seen, model: str = "actor") -> Tensor:
    """Returns the entropy of the table policy in each column, [B, T]."""
    logp = seen.models[model].body.table[seen.experience.context["state"]].log_softmax(-1)
    found: Tensor = -(logp.exp() * logp).sum(-1)
    return found


def mean_of_decisions(value: Tensor, data: Experience) -> Tensor:
    """Returns the mean over all decisions: long sequences count more."""
    return value[data.mask].mean()


def mean_of_sequences(value: Tensor, data: Experience) -> Tensor:
    """Returns the mean over sequences of the mean over each one's decisions."""
    return torch.stack([one[mask].mean() for one, mask in zip(value, data.mask, strict=True) if mask.any()]).mean()


def sum_in_sequences(value: Tensor, data: Experience) -> Tensor:
    """Returns the mean over sequences of the sum over each one's decisions."""
    return torch.stack([one[mask].sum() for one, mask in zip(value, data.mask, strict=True) if mask.any()]).mean()


def grpo_loss(seen: Seen, advantage_B: Tensor | None = None, low: float = 0.2, high: float = 0.2) -> Tensor:
    """Returns GRPO's loss: clipped ratios with each row's advantage, the group-standardised outcome if none is given,
    as a mean over sequences of means.
    """
    data = seen.experience
    advantage = (standardised(data) if advantage_B is None else advantage_B).unsqueeze(1)
    return -mean_of_sequences(clipped(ratio(seen), advantage, low, high), data)


def dr_grpo_loss(seen: Seen, low: float = 0.2, high: float = 0.2) -> Tensor:
    """Returns Dr. GRPO's loss: clipped ratios with the centred outcome, the mean over sequences of sums over 6, the
    limit of `TABLE_SPEC`.
    """
    gain = clipped(ratio(seen), centred(seen.experience).unsqueeze(1), low, high)
    return -sum_in_sequences(gain, seen.experience) / 6


def rloo_loss(seen: Seen) -> Tensor:
    """Returns RLOO's loss: log-likelihoods of sequences with the outcome against that of the group's others."""
    return -sum_in_sequences(against_others(seen.experience).unsqueeze(1) * seen.logp(), seen.experience)


def token_loss(
    seen: Seen, advantage: Tensor, low: float = 0.2, high: float = 0.2, kept: Tensor | None = None
) -> Tensor:
    """Returns the loss of clipped ratios as a mean over decisions, those of the rows `kept` [B] if given; the advantage
    is one of rows, [B], or of decisions, [B, T].
    """
    data = seen.experience
    advantage = advantage.unsqueeze(1) if advantage.dim() == 1 else advantage
    rows = data.mask if kept is None else data.mask & kept.unsqueeze(1)
    return -clipped(ratio(seen), advantage, low, high)[rows].mean()


def moved(seen: Seen) -> Tensor:
    """Returns log pi(y) - log pi_old(y) of whole sequences with gradient, [B]."""
    return torch.where(seen.experience.mask, seen.logp() - seen.experience.logp, 0.0).sum(1)


def k3(seen: Seen) -> Tensor:
    """Returns the estimate e^d - d - 1, d = log ref - log pi, of each decision with gradient, [B, T]."""
    behind = torch.where(seen.experience.mask, seen.logp("reference").detach() - seen.logp(), 0.0)
    return behind.exp() - behind - 1.0


def logistic(logit: Tensor, label: float) -> Tensor:
    """Returns -label log p - (1 - label) log(1 - p), p = sigmoid(logit)."""
    return -(label * logit.sigmoid().log() + (1.0 - label) * (1.0 - logit.sigmoid()).log())


def with_kl(seen: Seen, weight: float) -> Seen:
    """Returns the same with weight * (log pi_old - log ref) taken from the reward of each decision."""
    data = seen.experience
    kl = torch.where(data.mask, data.logp - seen.logp("reference").detach(), 0.0)
    return replace(seen, experience=replace(data, reward=data.reward - weight * kl))


def ppo_of_torques(seen: Seen, gain_of: Gain = partial(clipped, low=0.2, high=0.2)) -> dict[str, Tensor]:
    """Returns PPO's losses of Gaussian networks on actions of BOX_SPEC in half-ranges, with the settings for continuous
    actions: discount, lambda 0.95.
    """
    data, actor = seen.experience, seen.models["actor"]
    density = torch.distributions.Normal(actor.body(data.context), actor.log_std.exp())
    low, high = (data.action.new_tensor(side) for side in (BOX_SPEC.action.low, BOX_SPEC.action.high))  # type: ignore[union-attr]
    scaled = (data.action - (low + high) / 2) / ((high - low) / 2)
    logp, entropy = density.log_prob(scaled).sum(-1), density.entropy().sum(-1)
    value = seen.models["value"].body(data.context).squeeze(-1)
    return ppo(data, logp, entropy, value, 0.95, 0.95, gain_of)


def ppo_of_tokens(seen: Seen) -> dict[str, Tensor]:
    """Returns PPO's losses by stage with the settings for language: discount 1, lambda 0.95, entropy bonus 0.003."""
    return ppo_losses(seen, 1.0, 0.95, 0.003 * entropy(seen))


def ppo_of_control(seen: Seen) -> dict[str, Tensor]:
    """Returns PPO's losses by stage for discrete actions: discount 0.98, lambda 0.9, entropy bonus 0.003."""
    return ppo_losses(seen, 0.98, 0.9, 0.003 * entropy(seen))


def ppo_losses(seen: Seen, discount: float, gae_lambda: float, more: Tensor) -> dict[str, Tensor]:
    """Returns PPO's losses by stage; `more` [B, T] is added to the clipped gain of each decision."""
    data, value = seen.experience, seen.value()
    advantage = gae(data, value, discount, gae_lambda)
    gain = clipped(ratio(seen), whitened(advantage, data), 0.2, 0.2)
    error = value - (advantage + value).detach()
    return {
        "policy": -mean_of_decisions(gain + more, data),
        "value": mean_of_decisions(error.square() / 2, data),
    }
