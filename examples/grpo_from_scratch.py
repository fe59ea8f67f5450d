"""GRPO from scratch: a small transformer learns to add, in one file of torch and numpy.

    A_i  = (R_i - mean R) / (std R + 1e-4)         R_i: 1 if answer i of the 8 to one prompt is right, else 0
    loss = -mean_i 1/|y_i| sum_t min(rho_it A_i, clip(rho_it, 0.8, 1.2) A_i)     rho_it = pi(y_it) / pi_old(y_it)

Shao et al. 2024 (arXiv:2402.03300), without their KL term. Read it from top to bottom: settings, random numbers, task,
model, sampling, losses, loop. It uses nothing of Assay and computes what

    assay.train("grpo", task="addition-1", steps=STEPS, warmup=50)

computes, operation by operation: the same tokens and the same weights (tests/test_from_scratch.py).
Axes: B sequences, T tokens.

python examples/grpo_from_scratch.py [STEPS]
"""

import hashlib
import itertools
import math
import struct
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

# ---------------------------------------------------------------------------------------------------- settings
SEED = 0
STEPS = 150
PROMPTS, GROUP = 32, 8  # new prompts in a step, answers to each
MINIBATCHES = 2  # every answer is used once, but in the second update the policy is no longer the one that wrote it
LEARNING_RATE, CLIP_NORM = 3e-4, 1.0
CLIP = 0.2
WARMUP, WARMUP_BATCH, WARMUP_RATE = 50, 64, 1e-3  # supervised steps first: a random model never earns a reward

WIDTH, LAYERS, HEADS = 128, 2, 4
ALPHABET = "0123456789+-*/=(),: \nabcdefghijklmnopqrstuvwxyz.;?!<>[]{}_#'\""
PAD, BOS, EOS = 0, 1, 2  # characters follow
VOCABULARY = 3 + len(ALPHABET)
PROMPT_TOKENS, MAX_TOKENS = 5, 3  # <bos>7+8= and 15<eos>

# ---------------------------------------------------------------------------------------------------- random numbers
# There is no generator with a state. A number is a hash of its coordinates, for a token (seed, prompt, sample, time):
# what else is in the batch does not change it, and a run that is killed and resumed draws the same again.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(word: Any) -> Any:
    """Returns 64 bits that look unrelated to `word`: the finaliser of SplitMix64."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


def hashed(*coordinates: int | np.ndarray) -> Any:
    """Returns 64-bit hashes of (SEED, *coordinates), which broadcast against each other."""
    with np.errstate(over="ignore"):  # sums and products are modulo 2^64
        word = mix(np.uint64(SEED) + GOLDEN)
        for coordinate in coordinates:
            word = mix(word ^ mix(np.asarray(coordinate).astype(np.uint64) + GOLDEN))
    return word


def uniform(*coordinates: int | np.ndarray) -> Tensor:
    """Returns uniform numbers between 0 and 1, both excluded."""
    number = ((hashed(*coordinates) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return torch.from_numpy(number.astype(np.float32)).clamp(2.0**-25, 1.0 - 2.0**-24)


# ---------------------------------------------------------------------------------------------------- task
def problem(ordinal: int) -> tuple[str, str]:
    """Returns prompt and answer `ordinal` of the training set, such as ("7+8=", "15"). A tenth of the sums is not in
    it; both orders of a sum are in it, or neither.
    """
    for attempt in itertools.count():
        words = struct.unpack("<2Q", hashlib.shake_128(f"{ordinal},{attempt}".encode()).digest(16))
        left, right = (word % 10 for word in words)
        content = f"0:{min(left, right)}+{max(left, right)}".encode()
        if int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") >= 0.1 * 2.0**64:
            break
    return f"{left}+{right}=", str(left + right)


def encode(text: str) -> list[int]:
    """Returns one token for each character."""
    return [3 + ALPHABET.index(character) for character in text]


def is_right(answer: str, tokens: list[int]) -> bool:
    """Returns whether the tokens are the answer and nothing else, up to spaces around it and the end token."""
    return "".join(ALPHABET[token - 3] for token in tokens if token != EOS).strip() == answer


# ---------------------------------------------------------------------------------------------------- model
class Block(nn.Module):
    """x + attention(norm x), then x + mlp(norm x)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention = nn.Parameter(torch.ones(WIDTH))
        self.norm_mlp = nn.Parameter(torch.ones(WIDTH))
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, turn: Tensor, cache: list[Tensor]) -> Tensor:
        """Evaluates whole sequences, or one more token after the keys and values in `cache`, which is extended."""
        B, T, _ = x.shape
        normed = functional.layer_norm(x, (WIDTH,), self.norm_attention)
        query_key, value = self.qkv(normed).split((2 * WIDTH, WIDTH), -1)
        query, key = rotate(query_key, turn).split(WIDTH, -1)
        query, key, value = (each.view(B, T, HEADS, -1).transpose(1, 2) for each in (query, key, value))
        if cache:
            key, value = torch.cat((cache[0], key), 2), torch.cat((cache[1], value), 2)
            scores = (query @ key.transpose(-1, -2)) * query.shape[-1] ** -0.5
            attended = scores.softmax(-1) @ value
        else:
            attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        cache[:] = key, value
        x = x + self.out(attended.transpose(1, 2).reshape(B, T, WIDTH))
        normed = functional.layer_norm(x, (WIDTH,), self.norm_mlp)
        return x + self.down(functional.gelu(self.up(normed)))


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Applies rotary positions (arXiv:2104.09864): neighbouring features are points of a plane, rotated by `turn`."""
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turn).flatten(-2)


class Transformer(nn.Module):
    """A decoder-only transformer with 0.4 million parameters: tokens [B, T] to hidden states [B, T, WIDTH]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(int(hashed(6, 0) >> np.uint64(1)))
        self.norm = nn.Parameter(torch.ones(WIDTH))
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        nn.init.normal_(self.embedding.weight, std=0.02)
        for block in self.blocks:
            for layer, scale in ((block.qkv, 1), (block.out, 2 * LAYERS), (block.up, 1), (block.down, 2 * LAYERS)):
                nn.init.normal_(layer.weight, std=scale**-0.5 * layer.in_features**-0.5)
        self.output = nn.Linear(WIDTH, VOCABULARY, bias=False)
        nn.init.normal_(self.output.weight, std=0.02)

    def forward(self, tokens: Tensor, caches: list[list[Tensor]] | None = None) -> Tensor:
        """Returns the states after each token; with caches, of tokens that follow those in the caches."""
        caches = caches or [[] for _ in self.blocks]
        begin, half = caches[0][0].shape[2] if caches[0] else 0, WIDTH // HEADS // 2
        frequency = torch.exp(torch.arange(half) * (-math.log(10000.0) / half))
        angle = torch.arange(begin, begin + tokens.shape[1]).unsqueeze(-1) * frequency
        turn = torch.polar(torch.ones_like(angle), angle).repeat(1, WIDTH // half)
        x = self.embedding(tokens)
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, turn, cache)
        return functional.layer_norm(x, (WIDTH,), self.norm)

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns logits of the next token; <pad> and <bos> are never written."""
        forbidden = torch.zeros(VOCABULARY)
        forbidden[[PAD, BOS]] = -1e9
        return self.output(hidden) + forbidden

    def logp(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Returns log pi(token | tokens before it) where the mask is true, [number of true]."""
        hidden = self(tokens[:, :-1])[mask[:, 1:]]  # the state after token t decides token t + 1
        return self.logits(hidden).log_softmax(-1).gather(-1, tokens[mask].unsqueeze(-1)).squeeze(-1)


# ---------------------------------------------------------------------------------------------------- sampling
class Batch(NamedTuple):
    """Answers, all columns by sequence: tokens after their prompt [B, T], which of them the model wrote [B, T], its
    log-probabilities then [B, T], rewards [B].
    """

    tokens: Tensor
    mask: Tensor
    logp: Tensor
    reward: Tensor


@torch.no_grad()
def sample(model: Transformer, ordinals: range) -> Batch:
    """Returns GROUP answers to each of these prompts, with their rewards."""
    problems, B = [problem(ordinal) for ordinal in ordinals], len(ordinals) * GROUP
    prompts = torch.tensor([[BOS, *encode(prompt)] for prompt, _ in problems])
    tokens = functional.pad(prompts.repeat_interleave(GROUP, 0), (0, MAX_TOKENS), value=PAD)
    mask, logp = torch.zeros_like(tokens, dtype=torch.bool), torch.zeros(tokens.shape)
    start, member = np.repeat(ordinals, GROUP)[:, None], np.tile(np.arange(GROUP), len(ordinals))[:, None]
    number = uniform(0, start, member, np.arange(MAX_TOKENS)[None])

    caches: list[list[Tensor]] = [[] for _ in range(LAYERS)]
    hidden = model(prompts, caches)[:, -1].repeat_interleave(GROUP, 0)  # a prompt is read once for its whole group
    caches = [[each.repeat_interleave(GROUP, 0) for each in cache] for cache in caches]
    rows, alive = torch.arange(B), torch.ones(B, dtype=torch.bool)
    for time in range(MAX_TOKENS):
        logits = model.logits(hidden)
        cumulative = logits.softmax(-1).cumsum(-1)  # the token in whose interval the number falls
        chosen = torch.searchsorted(cumulative, number[rows, time, None] * cumulative[:, -1:], right=True)
        chance = logits.gather(-1, chosen).squeeze(-1) - logits.logsumexp(-1)
        here, place = rows[alive], PROMPT_TOKENS + time
        tokens[here, place], logp[here, place], mask[here, place] = chosen[alive, 0], chance[alive], True
        alive = alive & (chosen[:, 0] != EOS)
        if time + 1 == MAX_TOKENS or not alive.any():
            break
        if alive.float().mean() < 0.8:  # finished rows leave the batch once they are many
            caches = [[each[alive] for each in cache] for cache in caches]
            rows, chosen, alive = rows[alive], chosen[alive], alive[alive]
        hidden = model(chosen, caches)[:, -1]

    answers = [answer for _, answer in problems for _ in range(GROUP)]
    written = [row[there].tolist() for row, there in zip(tokens, mask, strict=True)]
    reward = torch.tensor([float(is_right(*pair)) for pair in zip(answers, written, strict=True)])
    T = int(mask.any(0).nonzero().max()) + 1
    return Batch(tokens[:, :T], mask[:, :T], logp[:, :T], reward)


# ---------------------------------------------------------------------------------------------------- losses
def likelihood_loss(model: Transformer, ordinals: range) -> Tensor:
    """Returns -log pi of right answers, averaged over their tokens."""
    texts = ["".join(problem(ordinal)) for ordinal in ordinals]
    rows, T = [[BOS, *encode(text), EOS] for text in texts], 2 + max(map(len, texts))
    tokens = torch.tensor([row + [PAD] * (T - len(row)) for row in rows])
    mask = (tokens != PAD) & (torch.arange(T) >= PROMPT_TOKENS)
    return -model.logp(tokens, mask).sum() / mask.sum()


def group_advantage(reward: Tensor) -> Tensor:
    """Returns (R - mean) / (std + 1e-4) within each prompt's answers, [B]; 0 if all are right or all are wrong."""
    by_prompt = reward.view(-1, GROUP)
    centred = by_prompt - by_prompt.mean(1, keepdim=True)
    deviation = (centred.square().sum(1, keepdim=True) / (GROUP - 1)).sqrt()
    return (centred / (deviation + 1e-4)).flatten()


def grpo_loss(model: Transformer, batch: Batch, advantage: Tensor) -> Tensor:
    """Returns the clipped loss: a mean over the tokens of each answer, then over answers."""
    mask = batch.mask
    ratio = (model.logp(batch.tokens, mask) - batch.logp[mask]).exp()
    credit = advantage.unsqueeze(1).expand(mask.shape)[mask]
    weight = (mask / mask.sum(1, keepdim=True))[mask]
    gain = torch.minimum(ratio * credit, ratio.clamp(1.0 - CLIP, 1.0 + CLIP) * credit)
    return (-gain * weight).sum() / len(mask)


# ---------------------------------------------------------------------------------------------------- loop
def update(loss: Tensor, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Takes one step of Adam by the gradient, scaled down to the norm CLIP_NORM if it is longer."""
    optimizer.zero_grad()
    loss.backward()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    norm = float(torch.cat([gradient.flatten() for gradient in gradients]).norm())
    for gradient in gradients:
        gradient.mul_(min(1.0, CLIP_NORM / norm))
    optimizer.step()


def warm_up(model: Transformer, steps: int = WARMUP) -> None:
    """Trains on right answers, each prompt once."""
    optimizer = torch.optim.Adam(model.parameters(), lr=WARMUP_RATE, fused=True)
    for step in range(steps):
        update(likelihood_loss(model, range(step * WARMUP_BATCH, (step + 1) * WARMUP_BATCH)), model, optimizer)


def train(model: Transformer, steps: int = STEPS) -> Iterator[Batch]:
    """Trains by the model's own answers, each prompt once; yields those of every step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
    for step in range(steps):
        batch = sample(model, range(step * PROMPTS, (step + 1) * PROMPTS))
        advantage = group_advantage(batch.reward)
        place = np.argsort(np.argsort(hashed(step, 3, 0, np.arange(PROMPTS))))  # of each prompt in a random order
        part = torch.from_numpy(place * MINIBATCHES // PROMPTS).repeat_interleave(GROUP)
        for k in range(MINIBATCHES):
            some = Batch(*(column[part == k] for column in batch))
            update(grpo_loss(model, some, advantage[part == k]), model, optimizer)
        yield batch


if __name__ == "__main__":
    torch.set_num_threads(1)  # the layers are too small to be split among threads,
    torch.backends.mkldnn.enabled = False  # and too small for oneDNN
    policy = Transformer()
    warm_up(policy)
    for step, batch in enumerate(train(policy, int(sys.argv[1]) if len(sys.argv) > 1 else STEPS), 1):
        reward = float(batch.reward.mean())
        print(f"step {step:3d}  reward {reward:.3f}  {'#' * round(50 * reward)}")
