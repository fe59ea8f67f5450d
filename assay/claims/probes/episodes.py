"""Tiny tasks whose episodes are all enumerated. Axes: P prompts, Y episodes, T decisions, S states, A actions.

The policy is a softmax table over (state, action). A bandit has one state and Y = A; a sequence policy has one state
for each prefix, so its table is the most general autoregressive policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience


@dataclass(frozen=True, eq=False)
class AllEpisodes:
    """Every episode of every prompt: state, action and mask [P, Y, T], reward [P, Y, T] float64.

    Prompts are equally likely. `num_states` and `num_actions` are the shape of the policy's table.
    """

    state: Tensor
    action: Tensor
    mask: Tensor
    reward: Tensor
    num_states: int
    num_actions: int

    @property
    def num_prompts(self) -> int:
        """Returns P."""
        return self.mask.shape[0]

    @property
    def num_episodes(self) -> int:
        """Returns Y."""
        return self.mask.shape[1]

    @property
    def outcome(self) -> Tensor:
        """Returns the total reward of each episode, [P, Y]."""
        return (self.reward * self.mask).sum(-1)

    @property
    def length(self) -> Tensor:
        """Returns the number of decisions of each episode, [P, Y]."""
        return self.mask.sum(-1)

    def decision_logp(self, logits_SA: Tensor) -> Tensor:
        """Returns the log-probability of each decision under a table, [P, Y, T], zero where masked."""
        return logits_SA.log_softmax(-1)[self.state, self.action] * self.mask

    def logp(self, logits_SA: Tensor) -> Tensor:
        """Returns the log-probability of each episode given its prompt, [P, Y]."""
        return self.decision_logp(logits_SA).sum(-1)

    def record(self, episode_PN: Tensor, logits_SA: Tensor) -> Experience:
        """Returns N episodes of each prompt as experience of the policy table `logits_SA`; a group is a prompt."""
        num_prompts, members = episode_PN.shape
        prompt = torch.arange(num_prompts).repeat_interleave(members)
        picked = (prompt, episode_PN.reshape(-1))
        mask = self.mask[picked]
        column = torch.arange(mask.shape[1])
        return Experience(
            context={"state": self.state[picked]},
            action=self.action[picked],
            mask=mask,
            logp=self.decision_logp(logits_SA.detach())[picked],
            reward=self.reward[picked] * mask,
            terminal=mask & (column == (mask.sum(1, keepdim=True) - 1)),
            truncated=torch.zeros_like(mask),
            group=prompt,
        )


def bandit_episodes(reward: Tensor) -> AllEpisodes:
    """Returns a bandit with rewards [A], or P bandits with rewards [P, A] and one row of the table each."""
    reward_PA = torch.atleast_2d(reward).double()
    num_prompts, num_arms = reward_PA.shape
    state = torch.arange(num_prompts).view(-1, 1, 1).expand(num_prompts, num_arms, 1)
    action = torch.arange(num_arms).view(1, -1, 1).expand(num_prompts, num_arms, 1)
    mask = torch.ones(num_prompts, num_arms, 1, dtype=torch.bool)
    return AllEpisodes(state, action, mask, reward_PA.unsqueeze(-1), num_prompts, num_arms)


def token_episodes(
    reward: Callable[[tuple[int, ...]], float], num_tokens: int, horizon: int, end: int | None = None
) -> AllEpisodes:
    """Returns all sequences of `horizon` tokens, or of fewer where the token `end` stops them.

    `reward` scores the whole sequence and is given on its last token. State 0 is the empty prefix; the others are
    numbered by length, then in lexicographic order.
    """
    if num_tokens < 2 or horizon < 1:
        asked = f"num_tokens={num_tokens}, horizon={horizon}"
        raise AssayError(f"token_episodes: {asked} leave no choice. Use at least 2 and 1")
    states: dict[tuple[int, ...], int] = {(): 0}
    open_now: list[tuple[int, ...]] = [()]
    done: list[tuple[int, ...]] = []
    for time in range(1, horizon + 1):
        longer = [(*prefix, token) for prefix in open_now for token in range(num_tokens)]
        closed = [tokens for tokens in longer if tokens[-1] == end or time == horizon]
        open_now = [tokens for tokens in longer if not (tokens[-1] == end or time == horizon)]
        states.update({prefix: len(states) + index for index, prefix in enumerate(open_now)})
        done += closed
    shape = (1, len(done), horizon)
    state, action = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    mask, rewards = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.float64)
    for index, tokens in enumerate(done):
        size = len(tokens)
        state[0, index, :size] = torch.tensor([states[tokens[:time]] for time in range(size)])
        action[0, index, :size] = torch.tensor(tokens)
        mask[0, index, :size] = True
        rewards[0, index, size - 1] = float(reward(tokens))
    return AllEpisodes(state, action, mask, rewards, len(states), num_tokens)


def spelling(seed: int, num_tokens: int, horizon: int, num_prompts: int = 1) -> AllEpisodes:
    """Returns words with random rewards that differ by prompt: one for each letter and position, and half as much for
    the whole word.
    """
    draw = torch.Generator().manual_seed(seed)
    words = token_episodes(lambda word: 0.0, num_tokens, horizon)
    letters = torch.randn(num_prompts, horizon, num_tokens, generator=draw).double()
    whole = torch.randn(num_prompts, words.num_episodes, generator=draw).double()
    state, action, mask = (column.repeat(num_prompts, 1, 1) for column in (words.state, words.action, words.mask))
    first = torch.arange(num_prompts).view(-1, 1, 1) * words.num_states
    reward = torch.zeros(mask.shape, dtype=torch.float64)
    reward[..., -1] = letters.gather(2, action.transpose(1, 2)).sum(1) + whole / 2
    return AllEpisodes(state + first, action, mask, reward, num_prompts * words.num_states, num_tokens)


def bandit_experience(
    arms: Sequence[int] | Tensor, rewards: Sequence[float] | Tensor, logits: Tensor, members: int | None = None
) -> Experience:
    """Returns pulls of a one-state bandit as experience: arm and reward of each row, by the policy softmax(`logits`).

    Rows form groups of `members`, in order; one group of all if it is None. float64.
    """
    arm_B, reward_B = torch.as_tensor(arms).long(), torch.as_tensor(rewards).double()
    size = len(arm_B) if members is None else members
    if arm_B.shape != reward_B.shape or arm_B.dim() != 1 or not size or len(arm_B) % size:
        shapes = f"arms {tuple(arm_B.shape)}, rewards {tuple(reward_B.shape)}, members={members}"
        raise AssayError(f"bandit_experience: {shapes}. Give one reward for each arm, in whole groups of `members`")
    one = torch.ones(len(arm_B), 1, dtype=torch.bool)
    return Experience(
        context={"state": torch.zeros(len(arm_B), 1, dtype=torch.long)},
        action=arm_B.unsqueeze(1),
        mask=one,
        logp=logits.detach().double().log_softmax(-1)[arm_B].unsqueeze(1),
        reward=reward_B.unsqueeze(1),
        terminal=one,
        truncated=~one,
        group=torch.arange(len(arm_B)) // size,
    )


def outcomes(*rewards: float, members: int | None = None) -> Experience:
    """Returns answers of one decision with these outcomes, in groups of `members`, or in one group."""
    return bandit_experience([0] * len(rewards), rewards, torch.zeros(2), members)


def one_sequence(*rewards: float) -> Experience:
    """Returns one row whose decisions, each taken with probability 1, have these rewards; the last is terminal."""
    reward = torch.tensor([rewards], dtype=torch.float64)
    there, last = torch.ones_like(reward, dtype=torch.bool), torch.arange(len(rewards)) == len(rewards) - 1
    return Experience(
        context={"state": torch.zeros_like(reward, dtype=torch.long)},
        action=torch.zeros_like(reward, dtype=torch.long),
        mask=there,
        logp=torch.zeros_like(reward),
        reward=reward,
        terminal=last.unsqueeze(0),
        truncated=~there,
        group=torch.zeros(1, dtype=torch.long),
    )


def groups_with_right(*right: int, size: int = 8) -> Experience:
    """Returns groups of `size` answers of one decision; in each the first so many have outcome 1, the others 0."""
    return outcomes(*(float(member < num) for num in right for member in range(size)), members=size)
