"""Weights of own and foreign tokens by hand, and which answers are cut, continued and kept.

Axes: B sequences, T decisions.
"""

import torch

from assay.claims import About, AtEqual, Claims, Edit, Exact, Final, Measured, by_hand, probes, refuses
from assay.method import BIGRAMS, Experience, Origin, Recipe, Scene, Verifier, recipes
from assay.methods import rl_plus
from assay.methods.scope import recipe
from assay.parts import Guided, Shaped, Spliced, is_foreign, longest_right, right_decisions
from assay.tasks.language.steps import Stepwise, lines_after


# ------------------------------------------------------------------------------------------------ the loss
def with_foreign() -> Experience:
    """Returns off-policy groups in which others decided the end of every third row."""
    data = probes.sequences()
    late = data.mask.long().cumsum(1) > 2
    return data.add({"foreign": late & (torch.arange(len(data)) % 3 == 1).unsqueeze(1) & data.mask})


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    """Returns grpo's loss with -A p / (p + 0.1) on foreign decisions, as a mean over rows of means."""
    data, advantage = seen.experience, by_hand.standardised(seen.experience).unsqueeze(1)
    own, prob = by_hand.clipped(by_hand.ratio(seen), advantage, low=0.2, high=0.2), seen.logp().exp()
    foreign = data.column("foreign") if "foreign" in data.extra else torch.zeros_like(data.mask)
    return -by_hand.mean_of_sequences(torch.where(foreign, advantage * prob / (prob + 0.1), own), data)


def four_tokens() -> torch.Tensor:
    """Returns -4 times the slope of two own tokens with ratios 1.3 and 0.9 and two foreign ones of probability 0.05 and
    0.4, all with advantage 1.
    """
    logp = torch.tensor([[0.5, 0.5, 0.05, 0.4]]).double().log()
    old = logp - torch.tensor([[1.3, 0.9, 1.0, 1.0]]).double().log()
    data = probes.one_sequence(0.0, 0.0, 0.0, 1.0).with_columns(logp=old)
    data = data.add({"advantage": torch.ones_like(old), "foreign": torch.tensor([[False, False, True, True]])})
    return 4 * probes.decision_weights(recipe(), data, logp)[0]


# ------------------------------------------------------------------------------------------------ the splice
GROUPS = ((0, 2), (0, 3), (0, 0), (1, 0), (1, 0), (2, 4), (2, 1), (3, 2), (3, 2))
"""Groups of prompts 0 to 3: (prompt, right digits before a wrong one); 4 is a right answer."""

CUT = {1: 3, 6: 1, 8: 2}
"""The rows that are finished, and their own digits: the longest right beginning of each group with one."""


def spliced(order: list[int]) -> tuple[Experience, Scene]:
    """Returns what the recipe's rollout makes of the groups, their rows in another order."""
    rows, scene = probes.partly_right(*GROUPS), probes.hint_scene((0, 1, 2, 3))
    scene = scene.given(reward=lambda some: Verifier()(some, scene))
    part = recipe().rollout
    assert isinstance(part, Spliced)
    given = Spliced(probes.Told(rows.rows(torch.tensor(order))), part.most, part.least)  # type: ignore[arg-type]
    return given(scene, given.init(scene)), scene


def wrong_splices() -> float:
    """Returns how many rows are not those of CUT finished, their own log-probabilities kept, and the others untouched;
    plus how far the decisions that were thrown away are from those of three answers.
    """
    before = probes.partly_right(*GROUPS)
    found, scene = spliced(list(range(len(GROUPS))))
    wrong = float(len(found) != len(GROUPS)) + abs(scene.metrics["discarded_decisions"][0][0] - 15.0)
    for row, (prompt, kept) in enumerate(GROUPS):
        own, is_cut = CUT.get(row, 5), row in CUT
        code = probes.code_of(prompt)
        text = str(scene.task.texts(found, 0)[row]["completion"])  # type: ignore[attr-defined]
        told = before.rows(slice(row, row + 1))
        said = code if is_cut else str(scene.task.texts(told, 0)[0]["completion"])  # type: ignore[attr-defined]
        mask, logp = found.mask[row], found.logp[row][found.mask[row]]
        expected = [0.5] * own + [1.0] * (4 - own)
        wrong += text != said or not torch.allclose(logp.exp(), torch.tensor(expected).to(logp)[: len(logp)])
        wrong += found.column("foreign")[row][mask].tolist() != [place >= own for place in range(int(mask.sum()))]
        wrong += float(found.column("score")[row]) != float(is_cut or kept == 4)
        assert found.source is not None
        wrong += int(found.source[row]) != int(Origin.TEACHER if is_cut else Origin.POLICY)
        wrong += int(found.column("start")[row]) != prompt
        wrong += float(found.reward[row].sum()) != float(is_cut or kept == 4)
    return wrong


def moved_by_order() -> float:
    """Returns how many contents of rows change if the rows of the groups come in the opposite order."""
    every = list(range(len(GROUPS)))
    told = [sorted(str(row) for row in said(*spliced(order))) for order in (every, every[::-1])]
    return float(sum(one != other for one, other in zip(*told, strict=True)))


def said(rows: Experience, scene: Scene) -> list[tuple[object, ...]]:
    """Returns start, text and own decisions of each row."""
    texts = scene.task.texts(rows, 0)  # type: ignore[attr-defined]
    own = (rows.mask & ~rows.column("foreign")).sum(1).tolist()
    starts = rows.column("start").tolist()
    return [(start, one["completion"], num) for start, one, num in zip(starts, texts, own, strict=True)]


def gap_without_errors(ours: Recipe) -> float:
    """Returns how far groups without a wrong answer are from grpo's, bit for bit."""
    rows = probes.gathered_in(ours, probes.hint_scene((0,)))
    plain = probes.gathered_in(recipes.grpo(), probes.hint_scene((0,)))
    return float(sum(not torch.equal(getattr(rows, name), getattr(plain, name)) for name in ("action", "logp", "mask")))


def wrong_lines() -> float:
    """Returns how many cuts and continuations of a worked answer of a file are not those of its lines."""
    task = probes.file_of(("a is 2\nb is 3\n#### 5", "5"))
    cuts = {"a is 2\nb is 4\n#### 6": 7, "a is 2\nb is 3\n#### 5": None, "a is 2 \n b is 3\n#### 6": 16, "b": 0}
    ends = {"a is 2\n": "b is 3\n#### 5", "": "a is 2\nb is 3\n#### 5", "a is 2": None, "b is 3\n": None}
    wrong = sum(task.first_error(0, text, 0) != place for text, place in cuts.items())
    wrong += sum(task.finish(0, text, 0) != more for text, more in ends.items())
    told = Verifier()(probes.completed(task, ["in other words\n#### 5", "a is 2\nb is 4\n#### 6"], [0, 0]), Scene(task))
    return float(wrong) + probes.distance(right_decisions(told, Scene(task)).double(), [-1.0, 7.0])


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradient is the formula's, where others decided the ends of rows",
              lambda: probes.formula_gap(recipe(), with_foreign(), loss_by_hand), at_most=1e-9),
        Exact("without others' decisions its gradient is grpo's",
              lambda: probes.formula_gap(recipe(), probes.ANY_OUTCOME, by_hand.grpo_loss), at_most=1e-9),
        Exact("tokens with ratios 1.3 and 0.9, and foreign ones of probability 0.05 and 0.4, have slopes 0, 0.9, "
              "0.2222 and 0.16", lambda: probes.distance(four_tokens(), [0.0, 0.9, 0.2222, 0.16]), at_most=1e-3,
              illustrates=True),
        Exact("in each group the longest right beginning of a wrong answer is finished in its place, if there is one",
              wrong_splices, equals=0.0),
        Exact("the answer that is finished does not depend on the order of rows", moved_by_order, equals=0.0,
              illustrates=True),
        Exact("a group without a wrong answer is grpo's to the bit", lambda: gap_without_errors(recipe()), equals=0.0),
        Exact("an answer of a file is cut before its first line that is not the solution's, and goes on with those "
              "after",
              wrong_lines, equals=0.0),
        refuses("a file without worked solutions is refused", recipe, lambda: probes.BARE_FILE),
        Measured("where half of the prompts are solved once in 100 samples, its pass@64 ends above grpo's by 0.05",
                 "many-ways", recipe(BIGRAMS), recipes.grpo(BIGRAMS), Final("pass@64"), margin=0.05, seeds=5,
                 minutes=3.0, steps=100, looks=2, about=About.HEADLINE),
        Measured("at equal pass rate it finds more different right answers in 64 samples than whole demonstrations "
                 "(rl-plus)", "many-ways", recipe(BIGRAMS), rl_plus.recipe(BIGRAMS), AtEqual("distinct@64"), seeds=5,
                 minutes=3.0, steps=100, looks=2, about=About.COMPONENT),
    ),
    mutants=(
        Edit("the shortest beginning", longest_right, "-int(right_B[row])", "int(right_B[row])"),
        Edit("in the order of rows", longest_right, "said[row], row", "row"),
        Edit("whatever its length", longest_right, "int(right_B[row]) >= least and", ""),
        Edit("every wrong answer", longest_right, "taken.get(label[row], 0) < most", "True"),
        Edit("right answers too", right_decisions, "~groups.is_right(rows) &", ""),
        Edit("one step later", right_decisions, "else one for one in found", "else one + 1 for one in found"),
        Edit("beside the wrong one", Spliced.__call__, "order[place] = ", "order = order if True else "),
        Edit("what is replaced is free", Spliced.__call__, "float(rows.mask[place].sum())", "0.0"),
        Edit("own tokens without their log-probability", Stepwise.followed, "logp[is_own] = begun.logp[begun.mask]",
             "pass"),
        Edit("the whole row is another's", Stepwise.followed, "record.mask & ~is_own", "record.mask"),
        Edit("as the policy's", Stepwise.followed, "int(Origin.TEACHER)", "int(Origin.POLICY)"),
        Edit("rows alone", is_foreign, "if FOREIGN in batch.extra:", "if False:"),
        Edit("no gradient through the denominator", Shaped.__call__, "prob / (prob + self.gamma)",
             "prob / (prob.detach() + self.gamma)"),
        Edit("a ratio on foreign tokens", Guided.__call__, "torch.where(foreign, -weight * advantage,",
             "torch.where(foreign & False, -weight * advantage,"),
        Edit("any line goes on", lines_after, "first_other_line(solution, begun) is not None", "False"),
    ),
)
