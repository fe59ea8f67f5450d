"""Which prompts stay, and after which lines of which answer further groups begin, by hand. Axes: B rows."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

import numpy as np
import torch

from assay.claims import About, AtEqual, Claims, Computed, Edit, Exact, Item, Loop, Measured, by_hand, probes, refuses
from assay.claims.probes.rollouts import small_policy
from assay.claims.testbeds.language.places import lock
from assay.method import DISCARDED, PLACES, Draw, Experience, Recipe, Scene, groups, random, recipes
from assay.methods.dpo_q_function import PlannedDecoder
from assay.methods.rest_rl import EqualParts, FromOwnBest, recipe
from assay.parts import Episodes, FreshSequences, placed
from assay.tasks.games.repeated import LEVELS

SAID = {
    0: ("a\n.5", "b\n.5", "c\n.5", "d\n.5"),
    1: ("a\n.5", "b\n.6", "c\n.5", "d\n.5"),  # its deviation is 0.043
    2: ("0", "a\nb\n\nc\n1", "d\n1", "0"),
    3: ("0", "a\nb\n.8", "0", "0"),
    4: ("a\n1", "b\n1", "c\n1", "d\n1"),
    5: ("0", "1", ".9", "0"),
    6: ("!1", "0", "0", "b\nc\n1"),
    7: ("!0", "!1", "!1", "!0"),
}
"""Answers to each prompt; the last line is what one is paid, and ! marks what could not be verified."""
BEST = {2: ("a\n", "b\n\n", "c\n", "1"), 5: ("1",), 6: ("b\n", "c\n", "1")}
"""The lines of the best answers, without the end token; the first of equally good ones."""
AGAIN = ("x\n0", "y\n1", "0", "z\n\n1") * 8
TASK = probes.listed(*(Item(f"q{prompt}", "1", "1") for prompt in SAID))
DRAW = Draw(5, (2,))


def said(text: str) -> Sequence[str]:
    """Returns the answers to a prompt, or to one with a beginning."""
    return SAID[int(text[1:])] if len(text) == 2 else AGAIN


class Scripted:
    """A policy whose k-th answer to a text, in one call, is the k-th of its list, with the end token."""

    not_a_part = "a policy"

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> PlannedDecoder:
        """Returns what plays these answers."""
        code, end, rows = TASK.tokenizer, TASK.tokenizer.vocabulary.eos, []
        for prompt, number in zip(prompts, repeats, strict=True):
            rows += [code.encode(one) for one in said(code.decode(list(prompt)))[:number]]
        tokens = torch.tensor([[*row, *[end] * num_new][:num_new] for row in rows])
        return PlannedDecoder(tokens, TASK.tokenizer.vocabulary.size)


def scene_of(starts: Sequence[int]) -> Scene:
    """Returns a scene of these prompts with the policy that answers by the script; the last line is the reward."""
    scene = Scene(TASK, draw=DRAW, actor=Scripted(), starts=np.array(starts))

    def reward(rows: Experience) -> Experience:
        told = [str(row["completion"]).split("\n")[-1] for row in TASK.texts(rows, 0)]
        paid = placed(rows, torch.tensor([float(one.removeprefix("!")) for one in told]))
        fault = torch.tensor([one.startswith("!") for one in told]).unsqueeze(1)
        return paid.with_columns(mask=rows.mask & ~fault)

    return scene.given(reward=reward)


def lines_by_hand(start: int) -> list[int]:
    """Returns after which lines of its best answer a prompt's groups begin."""
    num = len(BEST.get(start, ()))
    weights = [0.95**line for line in range(num)]
    ends = list(accumulate(one / sum(weights) for one in weights))
    numbers = [float(random.uniform(DRAW.at(19), start, place)) for place in range((num + 1) // 2)]
    return [sum(end < one for end in ends[:-1]) for one in numbers]


def wrong_rows(ours: Recipe) -> float:
    """Returns how many rows are not those by hand: prompt and beginning, decisions, group, sample, number of given
    decisions, reward; plus how far what counts as spent beside them is from the answers that are dropped.
    """
    assert isinstance(ours.rollout, FromOwnBest)
    scene = scene_of((2, 0, 1, 7, 3, 6, 5, 4))
    rows = probes.gathered_in(replace(ours, rollout=replace(ours.rollout, gather=Episodes(8, 4))), scene)
    assert rows.group is not None
    expected, decode = [], TASK.tokenizer.decode
    for start in (2, 3, 6, 5):
        expected += [(f"q{start}", one, start, sample, 0) for sample, one in enumerate(SAID[start])]
        for visit, line in enumerate(lines_by_hand(start), 1):
            begun = "".join(BEST[start][: line + 1])
            places = [number for number, other in enumerate(lines_by_hand(start)) if other == line]
            first = 4 * places.index(visit - 1)
            expected += [
                (f"q{start}{begun}", AGAIN[first + member], start + visit * 2**32, member + visit * 2**20, len(begun))
                for member in range(4)
            ]
    wrong = float(abs(len(rows) - len(expected)))
    for row, (text, answer, group, sample, given) in zip(range(len(rows)), expected, strict=False):
        mask, valid = rows.mask[row], rows.context["valid"][row]
        text, answer, length = (text + answer, "", 0) if answer[0] == "!" else (text, answer, len(answer) + 1)
        wrong += decode(rows.context["tokens"][row][valid & ~mask].tolist()) != text
        wrong += decode(rows.action[row][mask].tolist()) != answer or int(mask.sum()) != length
        wrong += (int(rows.group[row]), int(rows.column("sample")[row])) != (group, sample)
        wrong += int(rows.column("prefix")[row]) != given
        paid = float((text[2:] + answer).split("\n")[-1].removeprefix("!"))
        wrong += not abs(float(rows.reward[row].sum()) - paid) <= 1e-6
    spent = sum(len(one) + 1 for start in (0, 1, 4) for one in SAID[start])
    return wrong + abs(sum(value for value, _ in scene.metrics[DISCARDED]) - spent)


def gap_of_chances(ours: Recipe) -> float:
    """Returns how far the chances of four lines are from those of the paper, and the drawn shares of 4,000 prompts from
    the chances (five deviations are allowed); plus how many numbers of draws are wrong.
    """
    part, known = ours.rollout, np.array([0.26955, 0.25607, 0.24327, 0.23111])
    assert isinstance(part, FromOwnBest)
    drawn = [part.drawn(4, start, DRAW) for start in range(4000)]
    share = np.bincount(np.concatenate(drawn), minlength=4) / 8000
    sizes = [len(part.drawn(num, 0, DRAW)) for num in (1, 2, 3, 4, 9)]
    twice = np.mean([one == other for one, other in drawn])
    gaps = [abs(part.chances(4) - known).max() * 1e5 - 1, abs(share - known).max() - 0.025, abs(twice - 0.2508) - 0.034]
    return probes.worst(0.0, *gaps, float(sizes != [1, 1, 2, 2, 5]))


def wrong_tokens(ours: Recipe) -> float:
    """Returns how many groups of digits do not begin after as many as the drawn lines have, of one token each."""
    assert isinstance(ours.rollout, FromOwnBest)
    part, task = replace(ours.rollout, gather=Episodes(8, 2)), lock(digits=4)
    scene = Scene(task, draw=DRAW, actor=small_policy(task), starts=np.arange(8))
    scene = scene.given(reward=lambda rows: placed(rows, rows.column("sample") % 2.0))
    rows, expected = probes.gathered_in(replace(ours, rollout=part), scene), []
    first = rows.column("prefix") == 0
    for row in (first & (rows.column("sample") == 1)).nonzero().flatten().tolist():
        num = int(rows.mask[row].sum())
        drawn = part.drawn(num, int(rows.column("start")[row]), DRAW)
        expected += [given for line in drawn if (given := min(1 + line, num - 1))]
    return float(rows.column("prefix")[~first][::2].tolist() != expected or max(expected) < 3)


def wrong_columns(ours: Recipe) -> float:
    """Returns how many columns are not those of grpo, bit for bit, where all prompts lack spread, and where neither
    spread nor a beginning is asked for.
    """
    assert isinstance(ours.rollout, FromOwnBest)
    part, plain = replace(ours.rollout, gather=Episodes(8, 4)), replace(recipes.grpo(), rollout=Episodes(8, 4))
    every, wrong = replace(ours, rollout=replace(part, spread=0.0, share=0.0)), 0
    for one, starts in ((replace(ours, rollout=part), (0, 1, 4)), (every, (2, 0, 1, 3, 5, 4))):
        found, same = (probes.gathered_in(side, scene_of(starts)) for side in (one, plain))
        names = ("action", "logp", "mask", "group", "terminal")
        wrong += [torch.equal(getattr(found, name), getattr(same, name)) for name in names].count(False)
    return float(wrong)


def wrong_parts(ours: Recipe) -> float:
    """Returns how many of its batches are not as large as those of grpo with half of the groups, hold part of a group,
    or come twice; with as many groups as grpo has they are grpo's, bit for bit.
    """
    assert isinstance(ours.source, EqualParts)
    data, plain, wrong = probes.sequences(num=64), FreshSequences(1, 2), 0.0
    scene = Scene(TASK, draw=Draw(3, ()), fresh=data)
    assert data.group is not None
    for num_groups, parts in ((16, 2), (8, 4), (1000, 1)):
        found = list(replace(ours.source, num_groups=num_groups)(scene, {}))
        wrong += len(found) != parts or sum(map(len, found)) != len(data)
        wrong += sum(len(one) != 64 // parts for one in found)
        seen = torch.cat([one.group.unique() for one in found if one.group is not None])
        wrong += seen.sort().values.tolist() != data.group.unique().tolist()
    same = zip(replace(ours.source, num_groups=16)(scene, {}), plain(scene, {}), strict=True)
    return wrong + sum(not torch.equal(one.action, other.action) for one, other in same)


def mixed_share(ours: Recipe, seed: int, begun: bool, steps: int = 10) -> float:
    """Returns the share of groups with right and wrong members, of those after beginnings, else of all those of
    prompts, the dropped ones included, where the start is right once in 100.
    """
    loop, mixed, sampled = Loop(ours, lock(digits=2), seed=seed, num_steps=steps), 0.0, 0.0
    for _ in range(steps):
        fresh = loop.step().fresh
        assert fresh is not None
        rows = fresh.rows(((fresh.column("prefix") > 0) == begun).nonzero().squeeze(1))
        if len(rows):
            mixed += float(groups.differs(groups.outcome(rows), groups.row_groups(rows)).sum()) / 8
        sampled += len(rows) / 8 if begun else 32
    return mixed / sampled


def shares(begun: bool) -> Computed:
    """Returns the side of `mixed_share`."""
    ours = recipe(PLACES)
    return Computed(partial(mixed_share, ours, begun=begun), small=partial(mixed_share, ours, begun=begun, steps=4))


CLAIMS = Claims(
    claims=(
        Exact("its gradient is grpo's, group by group",
              lambda: probes.formula_gap(recipe(), probes.ANY_OUTCOME, by_hand.grpo_loss), at_most=1e-9),
        Exact("prompts without spread are dropped and count as spent; where an answer is right, groups of their own go "
              "on from the first such one, after drawn lines", lambda: wrong_rows(recipe()), equals=0.0),
        Exact("where tokens cannot write a line break each is a line", lambda: wrong_tokens(recipe()), equals=0.0),
        Exact("two of four lines are drawn with replacement, with the paper's chances",
              lambda: gap_of_chances(recipe()), at_most=0.0),
        Exact("without spread anywhere, and asked for neither, it gathers what grpo does, to the bit",
              lambda: wrong_columns(recipe()), equals=0.0, illustrates=True),
        Exact("twice as many groups are twice as many updates of whole groups; with grpo's number they are grpo's, to "
              "the bit", lambda: wrong_parts(recipe()), equals=0.0),
        refuses("a task whose answers cannot be begun is refused", recipe, lambda: LEVELS["prisoners-dilemma"]()),
        Measured("where the start is right once in 1,000 it is right more often than grpo at equally many generated "
                 "tokens", "lock:digits=3", recipe(PLACES), recipes.grpo(PLACES),
                 AtEqual("pass_rate", reached="decisions_total"), seeds=5, minutes=3.0, steps=80, looks=2,
                 about=About.HEADLINE),
        Measured("where the start is right once in 100, in ten steps more of the groups after beginnings than of those "
                 "of prompts have right and wrong members", "", shares(True), shares(False), seeds=5, minutes=2.0,
                 about=About.MECHANISM),
    ),
    mutants=(
        Edit("an estimate of the deviation", FromOwnBest.has_spread, "variance.sqrt()",
             "groups.deviation(outcome, by_group)"),
        Edit("all prompts stay", FromOwnBest.has_spread, ">= self.spread", ">= 0.0"),
        Edit("dropping is free", FromOwnBest.__call__, "float(rows.mask[~kept].sum())", "0.0"),
        Edit("any best answer", FromOwnBest.beginnings, "outcome[row] < self.best", "False"),
        Edit("the worst answer", FromOwnBest.beginnings, "argmax()", "argmin()"),
        Edit("the line is left out", FromOwnBest.beginnings, "length.cumsum(0)", "(length.cumsum(0) - length)"),
        Edit("the whole answer", FromOwnBest.beginnings, "int(length.sum()) - 1", "int(length.sum())"),
        Edit("groups of one beginning are one", FromOwnBest.beginnings, "1 + number, len", "1 + line, len"),
        Edit("all lines alike", FromOwnBest.chances, "self.decay **", "1.0 **"),
        Edit("rounded down", FromOwnBest.drawn, "math.ceil", "math.floor"),
        Edit("every prompt draws alike", FromOwnBest.drawn, "start, np", "0, np"),
        Edit("beginnings share the group of their prompt", FromOwnBest.after, "new.group + visit * FAR", "new.group"),
        Edit("the same random numbers", FromOwnBest.after, "member + visit * FIRST_AGAIN", "member"),
        Edit("larger updates", EqualParts.__call__, "found / self.num_groups", "1"),
    ),
)
