"""delethink: reasoning in chunks that see the prompt and a short tail of the previous one; one reward.

    chunk l: pi(y_l | prompt, last m tokens before it);   loss = -mean_i 1/|y_i| sum_l sum_t min(rho A_i, clip(rho) A_i)

Aghajohari et al. 2025 (The Markovian Thinker). The state has constant size, so cost is linear in the length; training
with resets makes the policy write down what it needs before a cut. The credit is grpo's over whole episodes, the mean
is over all tokens of all chunks of an episode, and each chunk is scored in the context it was sampled in.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Average, Exact, Measured, Method
from assay.core.recipe import Recipe, Stage
from assay.core.record import Experience
from assay.methods.delethink.rollout import Chunks
from assay.parts.aggregations import SequenceMean
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import DualClip
from assay.recipes.defaults import LANGUAGE, Defaults

EPISODES = probes.token_episodes(lambda tokens: float(sum(tokens) == 2), num_tokens=2, horizon=4)
LOGITS_SA = torch.linspace(-1.0, 1.0, EPISODES.num_states * 2, dtype=torch.float64).view(-1, 2)


def recipe(world: Defaults = LANGUAGE, chunk: int = 4, carry: int = 2) -> Recipe:
    """Returns GRPO on chunked episodes."""
    base = recipes.grpo(world)
    assert base.rollout is not None
    objective = PolicyGradient(trust=DualClip(0.2, 0.26, 3.0), aggregate=SequenceMean())
    stage = Stage("policy", ("actor",), (objective,), optimizer=world.optimizer)
    rollout = Chunks(base.rollout.num_starts, chunk=chunk, carry=carry)
    return replace(base, name="delethink", rollout=rollout, stages=(stage,))


def in_chunks(record: Experience, size: int) -> Experience:
    """Splits every episode into rows of at most `size` decisions."""
    place = (record.mask.long().cumsum(1) - 1) // size
    row = torch.arange(len(record)).repeat_interleave(int(place.max()) + 1)
    chunk = torch.arange(len(row)) % (int(place.max()) + 1)
    mask = record.mask[row] & (place[row] == chunk.unsqueeze(1))
    parts = record.rows(row)
    return replace(parts, mask=mask, reward=parts.reward * mask, logp=parts.logp * mask, episode=row)


def change_by_cutting(size: int) -> torch.Tensor:
    """Returns the largest change of a decision's weight in the loss when episodes are split into chunks."""
    record = EPISODES.record(torch.tensor([[3, 5, 6, 9, 15]]), LOGITS_SA)
    parts = in_chunks(record, size)
    assert parts.episode is not None
    whole = probes.decision_weights(recipe(), record, record.logp)
    cut = probes.decision_weights(recipe(), parts, parts.logp)
    return (torch.zeros_like(whole).index_add_(0, parts.episode, cut) - whole).abs().max()


def attention_share(query: int, chunk: int, carry: int, chunks: int) -> float:
    """Returns the causal attention pairs of chunked reasoning relative to undivided reasoning of the same length."""
    undivided = query + chunk + (chunks - 1) * (chunk - carry)
    return chunks * (query + chunk) * (query + chunk + 1) / (undivided * (undivided + 1))


METHOD = Method(
    paper="arXiv:2510.06557",
    recipe=recipe,
    worlds=(LANGUAGE,),
    default_task="countdown",
    family="long context",
    base=recipes.grpo,
    departures=("the verifier reads all chunks of an episode, not only the last window; answers are short here",
             "the carry is the tail alone: the public code also keeps the first 100 tokens of the trace",
             "an episode ends at the task's limit of tokens"),
    claims=(
        Exact("cutting episodes into chunks changes no decision's weight", lambda: change_by_cutting(2), equals=0.0),
        Exact("96k tokens in chunks of 8k take a sixth of the attention", lambda: attention_share(200, 8192, 4096, 23),
              at_most=0.17),
        Measured("chunked answers are right as often as grpo's with the whole context", "sorting-5", recipe(),
                 recipes.grpo(), metric=Average("reward", 0.2), margin=-0.05, seeds=5, minutes=4.0, steps=100,
                 warmup=60),
    ),
)  # fmt: skip
