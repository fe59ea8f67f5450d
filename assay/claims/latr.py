"""Trees of scripted policies by hand, what is cut, and mixed groups at equal tokens.

Axes: B rows, T tokens.
"""

import random
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from assay.claims import About, AtEqual, Claims, Computed, Edit, Exact, Item, Measured, bandit, by_hand, probes
from assay.claims import same_gradient
from assay.claims.testbeds.language.elicitation import elicitation
from assay.method import DISCARDED, Draw, Scene, recipes, text
from assay.methods.latr import Branch, Diverging, Forks, decided, edits, grown, recipe
from assay.parts import Episodes
from assay.tasks.language.countdown import countdown

FORKS = Forks(lookahead=(2, 3), alike=0.6, longest=9)
SHAPES = ((0.45, 0.35, 0.15, 0.05), (0.60, 0.35, 0.03, 0.02), (0.30, 0.24, 0.23, 0.23), (0.40, 0.38, 0.21, 0.01))
TASK = probes.listed(Item("q", "7", "7"), Item("r", "7", "7"), Item("s", "7", "7"), max_tokens=36)


@lru_cache(maxsize=4096)
def drawn(key: tuple[int, ...]) -> dict[int, float]:
    """Returns the probability of four tokens, the likeliest first."""
    draw = random.Random(str(key))
    shape, tokens = draw.choice(SHAPES), TASK.tokenizer.encode("abc")
    draw.shuffle(tokens)
    tokens.insert(draw.choice((0, 1, 2, 3, 3, 3)), TASK.tokenizer.vocabulary.eos)
    return dict(zip(tokens, shape, strict=True))


@dataclass
class Scripted:
    """A policy of a, b, c and the end token, whose next token depends on the prompt, on its last two and on the place.
    It is its own decoder of `rows`.
    """

    seed: int
    rows: list[list[int]] = field(default_factory=list)

    def chances(self, row: list[int]) -> dict[int, float]:
        """Returns the probability of each token, the likeliest first."""
        return drawn((self.seed, *row[:2], *row[-2:], len(row) % 3))

    def decoder(self, prompts: Any, repeats: Any, num_new: int) -> "Scripted":
        rows = [list(prompt) for prompt, num in zip(prompts, repeats, strict=True) for _ in range(num)]
        return Scripted(self.seed, rows)

    def logits(self) -> torch.Tensor:
        found = torch.full((len(self.rows), TASK.spec.action.size), -99.0)  # type: ignore[union-attr]
        for place, row in enumerate(self.rows):
            for token, chance in self.chances(row).items():
                found[place, token] = np.log(chance)
        return found

    def push(self, tokens: torch.Tensor) -> None:
        self.rows = [[*row, token] for row, token in zip(self.rows, tokens.tolist(), strict=True)]

    def keep(self, rows: torch.Tensor) -> None:
        self.rows = [self.rows[row] for row in rows.tolist()]


def distance_by_hand(one: list[int], other: list[int]) -> int:
    """Returns how many edits turn one into the other, by recursion."""
    if not one or not other:
        return len(one) + len(other)
    if one[-1] == other[-1]:
        return distance_by_hand(one[:-1], other[:-1])
    pairs = ((one[:-1], other), (one, other[:-1]), (one[:-1], other[:-1]))
    return 1 + min(distance_by_hand(*pair) for pair in pairs)


def tree_by_hand(actor: Scripted, prompt: list[int], most: int, stops: tuple[str, ...]) -> tuple[list[list[int]], int]:
    """Returns the leaves of a prompt, and how many tokens were cut."""
    said: dict[int, list[int]] = {0: []}
    parent, born, cut = {0: -1}, {0: 0}, 0

    def is_over(tokens: list[int]) -> bool:
        told = TASK.tokenizer.decode(tokens)
        return tokens[-1:] == [TASK.tokenizer.vocabulary.eos] or any(one in told for one in stops)

    for time in range(1, 10):
        for name in [one for one in said if not is_over(said[one])]:
            (first, high), (second, low), *_ = actor.chances([*prompt, *said[name]]).items()
            if low > 0.25 and high - low < 0.15 and len(said) < most:
                new = len(born)
                said[new], parent[new], born[new] = [*said[name], second], name, time - 1
            said[name] = [*said[name], first]
        for name in list(said):
            age, above = time - born[name], parent[name]
            if name not in said or above < 0 or age not in (2, 3) or is_over(said[name]) or is_over(said[above]):
                continue
            if distance_by_hand(said[name][-age:], said[above][-age:]) / age < 0.6:
                lost = {name}
                while more := {one for one in said if parent[one] in lost} - lost:
                    lost |= more
                cut += sum(len(said.pop(one)) - born[one] for one in lost)
        if len(said) == most and all(time - born[one] >= 3 for one in said if one):
            break
    return list(said.values()), cut


def wrong_trees(stops: tuple[str, ...] = (), seeds: tuple[int, ...] = (0, 2, 11, 26, 27, 60)) -> float:
    """Returns how many rows of trees of some policies are not those by hand, finished by the task; plus the distance of
    recorded log-probabilities and of the tokens that were cut, infinity if none was.
    """
    task, rollout, all_cut, wrong = replace(TASK, stops=stops), Diverging(Episodes(), 5, 1.0, FORKS), 0, 0.0
    vocabulary = TASK.tokenizer.vocabulary
    for actor in map(Scripted, seeds):
        scene = Scene(task, actor=actor, starts=np.arange(3))
        rows = rollout(scene, rollout.init(scene))
        prompts = [row[:2].tolist() for row in rows.action[::5]]
        trees = [tree_by_hand(actor, prompt, 5, stops) for prompt in prompts]
        leaves = [leaf for own, _ in trees for leaf in (own + own[:1] * 5)[:5]]
        starts, samples = np.repeat(np.arange(3), 5), np.tile(np.arange(5), 3)
        begun = text.written([prompts[start] for start in starts], leaves, torch.from_numpy(starts), vocabulary.pad)
        whole = task.resume(actor, replace(begun, source=None), samples, scene.draw, split=0)
        wrong += float(rows.column("sample").tolist() != samples.tolist() or not all(leaves))
        for row, start in enumerate(starts):
            said = rows.action[row][rows.mask[row]].tolist()
            wrong += float(said != whole.action[row][whole.column("answer")[row]].tolist())
            logp = [np.log(actor.chances([*prompts[start], *said[:place]])[one]) for place, one in enumerate(said)]
            wrong = probes.worst(wrong, probes.distance(rows.logp[row][rows.mask[row]], logp))
            ended = said[-1] == vocabulary.eos or any(one in TASK.tokenizer.decode(said) for one in stops)
            wrong += float(rows.terminal[row].nonzero().tolist() != rows.mask[row].nonzero()[-1:].tolist())
            wrong += float(bool(rows.truncated[row].any()) == ended)
        cut = sum(one for _, one in trees)
        all_cut += cut
        wrong += abs(sum(value for value, _ in scene.metrics[DISCARDED]) - cut)
        wrong += abs(scene.metrics["leaves"][0][0] - sum(len(own) for own, _ in trees))
    return wrong if all_cut else np.inf


def wrong_shares() -> float:
    """Returns how many numbers of gathered rows are not grpo's: of all where the share is 0, of members 4 to 7 where it
    is a half, in which case members 0 to 3 begin with the likeliest tokens where no fork may open.
    """
    wrong = 0
    shared = Forks(absolute=1.0, longest=3)
    (theirs,), actor, _ = probes.gathered(recipes.grpo(), TASK)
    for share, same in ((0.0, range(8)), (0.5, range(4, 8))):
        (ours,), _, _ = probes.gathered(recipe(share=share, forks=shared), TASK)
        for row in (8 * start + member for start in range(3) for member in range(8)):
            one, other = ours.mask[row], theirs.mask[row]
            is_same = torch.equal(ours.action[row][one], theirs.action[row][other])
            is_same &= torch.equal(ours.logp[row][one], theirs.logp[row][other])
            wrong += not is_same if row % 8 in same else 0
            if row % 8 not in same:
                decoder, said = actor.decoder([ours.action[row, :2].tolist()], [1], 3), ours.action[row][one][:3]
                for token in said:
                    wrong += int(decoder.logits().argmax()) != int(token)
                    decoder.push(token.unsqueeze(0))
    return float(wrong)


def opened() -> float:
    """Returns how many of three rows of chances open a fork against the rule; 0.45 and 0.35 alone should."""
    rows = ((0.45, 0.35), (0.60, 0.35), (0.30, 0.24))
    return float(sum(Forks().opens(*row) != is_open for row, is_open in zip(rows, (True, False, False), strict=True)))


def cut() -> float:
    """Returns how many of two forks from 21111 after five tokens are not kept, 11112 (0.4 edits a token), and cut,
    11111.
    """
    parent, forks = Branch(0, [2, 1, 1, 1, 1]), Forks(lookahead=(5,))
    found = [forks.is_cut(Branch(0, said, parent=parent), 5) for said in ([1, 1, 1, 1, 2], [1, 1, 1, 1, 1])]
    return float(sum(one != is_cut for one, is_cut in zip(found, (False, True), strict=True)))


def wrong_ages() -> float:
    """Returns how many ages and lengths are wrong of answers of up to 21, 100, 4000 and 3 tokens."""
    found = [(own.lookahead, own.longest) for own in (Forks().within(most) for most in (21, 100, 4000, 3))]
    expected = [((2, 3, 5), 5), ((10, 15, 25), 25), ((20, 30, 50), 512), ((1, 1, 1), 0)]
    return float(sum(one != other for one, other in zip(found, expected, strict=True)))


def accepted() -> float:
    """Returns how many tasks without text, or of conversations, are not refused."""
    tasks = (bandit(), elicitation())
    return float(sum(not probes.is_refused(recipe(), task) for task in tasks))


# ------------------------------------------------------------------------------------------------ mixed groups
WIDE = partial(recipe, forks=Forks(absolute=0.1, relative=0.3))
"""Thresholds for a small policy, whose chances of the first two tokens are less far apart."""


def mixed(share: float, seed: int, steps: int = 200, prompts: int = 384) -> float:
    """Returns how many groups of countdown hold right and wrong answers, per 1000 generated tokens, cut ones included,
    of a policy after `steps` of demonstrations.
    """
    task = countdown()
    actor = probes.trained(recipes.sft(), task, seed, steps).actor
    scene, part = Scene(task, actor=actor, starts=np.arange(prompts), draw=Draw(seed)), WIDE(share=share).rollout
    assert part is not None
    with torch.no_grad():
        rows = task.judge(part(scene, part.init(scene)), 0)
    score = rows.column("score").view(prompts, -1)
    if steps < 200:
        return float(score.mean() + rows.logp.mean())
    spent = float(rows.mask.sum()) + sum(value for value, _ in scene.metrics.get(DISCARDED, ()))
    return 1000 * float((score.amin(1) < score.amax(1)).sum()) / spent


def side(share: float) -> Computed:
    """Returns a side of `mixed`; small, how the answers of a few prompts score and how likely they are."""
    return Computed(partial(mixed, share), small=partial(mixed, share, steps=4, prompts=8))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is grpo's", recipe, by_hand.grpo_loss),
        Exact("trees of scripted policies fork, are cut and are finished as by hand, and record what was likely",
              wrong_trees, at_most=1e-5),
        Exact("a branch ends with a stop string", lambda: wrong_trees(("ab",), (0, 1)), at_most=1e-5),
        Exact("members that are not of the tree are grpo's to the bit; without forks a tree is one likeliest beginning",
              wrong_shares, equals=0.0),
        Exact("ages and the longest beginning shrink with the longest answer", wrong_ages, equals=0.0),
        Exact("0.45 against 0.35 opens a fork, 0.60 against 0.35 and 0.30 against 0.24 do not", opened, equals=0.0,
              illustrates=True),
        Exact("a fork with 0.4 edits a token is kept, one with 0.2 is cut", cut, equals=0.0,
              illustrates=True),
        Exact("tasks without text and conversations are refused", accepted, equals=0.0, of="refusals"),
        Measured("from one policy of countdown, trees with thresholds 0.1 and 0.3 give more groups with right and "
                 "wrong answers than sampling, for each 1000 generated tokens, cut ones included", "", side(1.0),
                 side(0.0), seeds=5, minutes=12.0, looks=3, about=About.MECHANISM),
        Measured("after as many generated tokens, cut ones included, it is right more often than grpo", "countdown",
                 recipe(), recipes.grpo(), AtEqual("evaluation", reached="decisions_total"), seeds=5, minutes=20.0,
                 steps=60, looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("forks where the first token leads", Forks.opens, "first - second <", "first - second >"),
        Edit("any fork is cut", Forks.is_cut, "< self.alike", "< 2.0"),
        Edit("descendants of what is cut stay", grown, "any(one.is_of(other) for other in gone)", "one in gone"),
        Edit("cut tokens are free", grown, "cut += sum(len(one.tokens) - one.born for one in lost)", "pass"),
        Edit("a fork takes the likeliest token", grown, "token[row][1]", "token[row][0]"),
        Edit("the tree is not trained", decided, 'mask, own = played.column("answer")', "mask, own = played.mask"),
        Edit("replaced tokens are free", edits, "last + (token != with_)", "last"),
    ),
)
