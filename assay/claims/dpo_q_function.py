"""The loss of pairs, the credit and the beam by hand.

Axes: B sequences, T decisions, N beams, S states, A actions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from assay.claims import About, Claims, Computed, Exact, Measured, by_hand, probes
from assay.method import TABLE, Experience, Recipe, Vocabulary
from assay.methods.dpo_q_function import recipe


def with_a_tie() -> Experience:
    """Returns off-policy sequences; one group has equal outcomes and is in no pair."""
    data = probes.sequences()
    assert data.group is not None
    return replace(data, reward=torch.where((data.group == 1).unsqueeze(1), 0.0, data.reward))


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data, outcome, lost = seen.experience, by_hand.outcome(seen.experience), []
    ratio = ((seen.logp() - seen.logp("reference").detach()) * data.mask).sum(1)
    assert data.group is not None
    for label in data.group.unique():
        rows = ((data.group == label) & data.mask.any(1)).nonzero().flatten()
        if outcome[rows].max() == outcome[rows].min():
            continue
        best, worst = rows[outcome[rows].argmax()], rows[outcome[rows].argmin()]
        lost.append(-logsigmoid(0.1 * (ratio[best] - ratio[worst])))
    return torch.stack(lost).mean()


def gap_of_credit(recipe: Recipe) -> Tensor:
    """Returns the largest distance of the recipe's credit from 0.1 (log pi - log pi_ref), 0 where masked."""
    data = probes.sequences()
    reference = torch.randn(data.mask.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = recipe.credit[-1](data.add({"logp_ref": reference})).column("advantage")
    return (found - torch.where(data.mask, 0.1 * (data.logp - reference), 0.0)).abs().max()


class TableOfWords:
    """A token actor whose next-token logits are a table over the words written so far; token 0 ends a word."""

    vocabulary = Vocabulary(4, pad=3, bos=3, eos=0)

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def logp(self, word: Sequence[int]) -> Tensor:
        """Returns the log-probabilities of the next token, [V]."""
        number = sum((token + 1) * 5**place for place, token in enumerate(word))
        draw = torch.Generator().manual_seed(1000 * self.seed + number)
        return torch.cat((torch.randn(3, generator=draw), torch.tensor([-1e9]))).log_softmax(-1)

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> Words:
        """Returns a decoder of rows."""
        return Words(self, [list(one) for one, many in zip(prompts, repeats, strict=True) for _ in range(many)])


class Words:
    """Rows of tokens that are written together."""

    def __init__(self, actor: TableOfWords, words: list[list[int]]) -> None:
        self.actor, self.words = actor, words

    def logits(self) -> Tensor:
        """Returns [N, V]."""
        return torch.stack([self.actor.logp(word) for word in self.words])

    def push(self, tokens: Tensor) -> None:
        """Appends one token to each row."""
        self.words = [[*word, token] for word, token in zip(self.words, tokens.tolist(), strict=True)]

    def keep(self, rows: Tensor) -> None:
        """Keeps these rows."""
        self.words = [list(self.words[row]) for row in rows.tolist()]


def by_enumeration(actor: TableOfWords, prompt: list[int], width: int, length: int) -> list[int]:
    """Returns the best of `width` words, extended by every token at a time; a finished word stays as it is."""
    beam: list[tuple[float, list[int]]] = [(0.0, [])]
    for _ in range(length):
        longer = []
        for score, word in beam:
            if word and word[-1] == 0:
                longer.append((score, word))
                continue
            logp = actor.logp([*prompt, *word]).tolist()
            longer += [(score + logp[token], [*word, token]) for token in range(3)]
        beam = sorted(longer, key=lambda one: -one[0])[:width]
    return beam[0][1]


def wrong_beams(recipe: Recipe, width: int) -> float:
    """Returns how many of 80 answers of the deployed policy differ from a beam by enumeration; plus 1 if they never
    differ from greed.
    """
    wrong, others = 0.0, 0
    for seed in range(20):
        actor, prompts = TableOfWords(seed), [[1], [2, 2], [1, 2]]
        decoder, length = recipe.policy({"actor": actor}).decoder(prompts, [1, 2, 1], 5), 5
        written: list[list[int]] = [[] for _ in range(4)]
        for _ in range(length):
            token = decoder.logits().argmax(-1)
            for word, one in zip(written, token.tolist(), strict=True):
                word += [] if word and word[-1] == 0 else [one]
            decoder.push(token)
        right = [by_enumeration(actor, prompts[row], width, length) for row in (0, 1, 1, 2)]
        wrong += sum(mine != best for mine, best in zip(written, right, strict=True))
        others += by_enumeration(actor, prompts[0], 1, length) != right[0]
    return wrong + float(others == 0)


BETA = 0.5


EPISODES = probes.token_episodes(lambda tokens: tokens[0] * 2.0 - tokens[1] * tokens[2], num_tokens=2, horizon=3)


REFERENCE_SA, NOW_SA = (torch.linspace(first, -first, 14).double().view(7, 2) for first in (-0.5, 1.0))


TARGET = probes.posterior(EPISODES, REFERENCE_SA, BETA)


def implicit(table_SA: Tensor, reference_SA: Tensor, episodes: probes.AllEpisodes = EPISODES) -> Tensor:
    every = episodes.record(torch.arange(episodes.num_episodes).expand(episodes.num_prompts, -1), table_SA)
    columns = {"logp_ref": episodes.decision_logp(reference_SA).flatten(0, 1)}
    return recipe(beta=BETA).credit[-1](every.add(columns)).column("advantage").view(episodes.mask.shape)


def words_prior_and_learnt(seed: int, steps: int) -> tuple[probes.AllEpisodes, Tensor, Tensor]:
    words, draw = probes.spelling(seed, num_tokens=3, horizon=4, num_prompts=8), torch.Generator().manual_seed(~seed)
    prior = torch.randn(words.num_states, words.num_actions, generator=draw).double()
    table = probes.trained_table(
        recipe(TABLE, BETA), words, prior, steps=steps, members=2, groups=8, behaviour_SA=prior
    )
    return words, prior, table


def found(seed: int, by_reference: bool, steps: int = 300) -> float:
    """Returns how often a word's lowest token credit is at its one difference from the best word."""
    words, prior, table = words_prior_and_learnt(seed, steps)
    differs = words.action != words.action[0, words.outcome.argmax(1)].unsqueeze(1)
    number = words.decision_logp(prior) if by_reference else implicit(table, prior, words)
    return float((number.argmin(-1) == differs.long().argmax(-1))[differs.sum(-1) == 1].double().mean())


def beamed(seed: int, width: int, steps: int = 300) -> float:
    words, _, table = words_prior_and_learnt(seed, steps)
    return float(words.outcome.gather(1, probes.beam_search(words, table, width).unsqueeze(1)).mean())


def sized(function: Callable[..., float], setting: float) -> Computed:
    """Returns the side of `found` or `beamed` with this setting."""
    return Computed(lambda seed: function(seed, setting), small=lambda seed: function(seed, setting, steps=30))


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradient is dpo's", lambda: probes.formula_gap(recipe(), with_a_tie(), loss_by_hand),
              at_most=1e-9),
        Exact("a token's credit is beta times its log-ratio", lambda: gap_of_credit(recipe()), at_most=1e-12),
        Exact("its answer is that of a beam of 5 by enumeration, or of 2",
              lambda: wrong_beams(recipe(), 5) + wrong_beams(recipe(width=2), 2), equals=0.0),
        Measured("it finds the spoilt letter more often than the reference's log-probability", "",
                 sized(found, False), sized(found, True), seeds=5, minutes=1.0,
                 about=About.MECHANISM),
        Measured("a beam of 5 finds better words than greedy decoding", "", sized(beamed, 5),
                 sized(beamed, 1), seeds=20, minutes=10.0, looks=3, about=About.HEADLINE),
    ),
)
