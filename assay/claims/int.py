"""What is cut, corrected, checked, kept and learned, by hand; distance from the start. Axes: B rows, T decisions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch

from assay.claims import About, Claims, Computed, Edit, Exact, Expect, Loop, Measured, PromptTask, by_hand, probes
from assay.claims import refuses, same_gradient
from assay.claims.testbeds.language.enumerable import DIGITS, EnumerableTask
from assay.claims.testbeds.language.redo import redo
from assay.method import BIGRAMS, DISCARDED, Draw, Experience, Need, Recipe, Scene, Verifier, concatenate
from assay.methods.int import HANDED, Collected, Corrections, Intervened, firsts, recipe
from assay.parts import FIRST_AGAIN
from assay.rollouts.text import written

FILE = probes.file_of(*[("a is 2\nb is 3\n#### 5", "5")] * 6)
TRIES, HOPELESS = 3, 4
"""Continuations of a correction, and the prompt after which all of them are wrong."""

SAID = {
    0: ("so\n#### 7", "a is 2\nb is 3\n#### 5"),
    1: ("a is 2\nb is 9\n#### 9", "b is 3\n#### 9"),
    2: ("b is 3\n#### 9", "a is 2\nb is 9\n"),
    3: ("a is 2\nb is 3\n#### 9", "a is 2\nb is 9\n"),
    HOPELESS: ("a is 2\nb is 9\n", "so\n#### 7"),
    5: ("a is 2\n", "a is 2\nb is 8\n"),
}
"""Answers to each prompt: the first is solved, the third's answer is one step away, the last one's first has no wrong
step."""
CORRECTED = {1: ("a is 2\n", "b is 3\n"), 2: ("", "a is 2\n"), 5: ("a is 2\n", "b is 3\n")}
"""What stays: the own beginning and the step."""


@dataclass(frozen=True)
class Sure(PromptTask):
    """The file, where the last of the continuations of an answer is right, unless it is hopeless."""

    def resume(self, actor: Any, begun: Experience, samples: np.ndarray, draw: Draw, *, split: int,
               limit: int | None = None) -> Experience:  # fmt: skip
        starts, texts = begun.column("start").tolist(), self.completions(begun)
        last = (samples // FIRST_AGAIN == TRIES) & (np.array(starts) != HOPELESS)
        more = [self.finish(start, text, split) or "" for start, text in zip(starts, texts, strict=True)]
        ends = [one if is_right else "no" for one, is_right in zip(more, last.tolist(), strict=True)]
        played = self.followed(begun, ends, is_over=True)
        return played.add({"answer": played.mask}).with_columns(mask=played.column("foreign"))


TASK = Sure(**{name: getattr(FILE, name) for name in FILE.__dataclass_fields__})


def corrected(ours: Recipe) -> tuple[Experience, Scene]:
    """Returns what the first phase's rollout makes of the answers, each with probability 1/2 a token."""
    starts, said = zip(*((start, one) for start, own in SAID.items() for one in own), strict=True)
    part, scene = ours.before[0].recipe.rollout, Scene(TASK, starts=np.arange(6))
    assert isinstance(part, Intervened)
    scene = scene.given(reward=lambda rows: Verifier()(rows, scene))
    rows = probes.completed(TASK, said, starts, prob=[0.5] * len(said))
    part = replace(part, gather=probes.Told(rows), tries=TRIES)  # type: ignore[arg-type]
    return part(scene, part.init(scene)), scene


def wrong_corrections(ours: Recipe) -> float:
    """Returns how many rows are neither the given ones nor own beginnings with right steps, nothing after them; plus
    how far the decisions that count as spent are from those of all continuations.
    """
    rows, scene = corrected(ours)
    wrong, encode = float(len(rows) != 12 + len(CORRECTED)), TASK.tokenizer.encode
    for row, (start, (own, step)) in enumerate(CORRECTED.items(), 12):
        seen = [TASK.tokenizer.vocabulary.bos, *encode(str(start))]
        tokens, mask = rows.action[row], rows.mask[row]
        wrong += tokens[: len(seen)].tolist() != seen or tokens[mask].tolist() != encode(own + step)
        wrong += mask.nonzero().flatten().tolist() != list(range(len(seen), len(seen) + len(own + step)))
        wrong += rows.column("foreign")[row][mask].tolist() != [False] * len(own) + [True] * len(step)
        wrong += not torch.allclose(rows.logp[row][mask].exp(), torch.tensor([0.5] * len(own) + [1.0] * len(step)))
        wrong += bool(rows.terminal[row].any()) or int(rows.column("start")[row]) != start
    wrong += rows.column("corrected").tolist() != [False] * 12 + [True] * len(CORRECTED)
    no, rest = len("no") + 1, (len("#### 5") + 1, len("b is 3\n#### 5") + 1, len("#### 5") + 1)
    spent = sum((TRIES - 1) * no + end for end in rest) + TRIES * no
    return wrong + abs(sum(value for value, _ in scene.metrics[DISCARDED]) - spent)


def wrong_solutions() -> float:
    """Returns how many rows of the rival are not whole solutions of the same prompts, by another."""
    rows, _ = corrected(recipe(whole=True))
    whole = [*TASK.tokenizer.encode("a is 2\nb is 3\n#### 5"), TASK.tokenizer.vocabulary.eos]
    told = [rows.action[row][rows.mask[row]].tolist() for row in range(12, len(rows))]
    return float(told != [whole] * 3) + float(rows.column("start")[12:].tolist() != list(CORRECTED))


def wrong_passes(ours: Recipe, steps: Sequence[str]) -> float:
    """Returns how far what the second phase trains on is from what the first collected in 17 steps, each row once a
    pass, in batches of 32 and 19, in another order each time.
    """
    (rows, scene), first, second = corrected(ours), ours.before[0].recipe.source, ours.before[1].recipe.source
    state = first.init(scene)
    assert not [*first(scene.given(fresh=rows.rows(slice(0, 12))), state)]
    for _ in range(17):
        assert not [*first(scene.given(fresh=rows), state)]
    later, orders, wrong = second.init(scene.given(handed={HANDED: state})), [], 0
    for one in range(2):
        batches = [*second(scene.given(draw=Draw(0, (one,))), later)]
        wrong += [len(batch) for batch in batches] != [32, 19]
        whole = concatenate(batches)
        texts = [TASK.tokenizer.decode(whole.action[row][whole.mask[row]].tolist()) for row in range(len(whole))]
        wrong += sorted(texts) != sorted([*steps] * 17)
        orders.append(texts)
    empty = second.init(scene.given(handed={HANDED: {"columns": {}}}))
    return float(wrong + (orders[0] == orders[1]) + len([*second(scene, empty)]))


# ------------------------------------------------------------------------------------------------ what it is worth
def phases(ours: Recipe, task: EnumerableTask, seed: int, tried: int = 8, start: Any = None) -> tuple[Loop, int]:
    """Returns the second phase after its four passes, and the decisions that the first one spent in `tried` steps; both
    begin with the weights of `start`, if there is one.
    """
    first, second = (phase.recipe for phase in ours.before)
    before, after = (Loop(one, task, seed=seed, num_steps=tried) for one in (first, second))
    for loop in (before, after) if start is not None else ():
        loop.actor.load_state_dict(start.state_dict())
    for _ in range(tried):
        before.step()
    after.begin({HANDED: before.states["sources"][0]})
    for _ in range(4):
        after.step()
    return after, before.progress.decisions


def from_start(whole: bool, seed: int, tried: int = 8, steps: int = 40) -> float:
    """Returns KL(policy || start) in nats an answer of four digits, mean over prompts, exact: of the phases after steps
    of grpo, which have given the policy ways of its own.
    """
    task, total = redo(3, 0.0), 0.0
    begun = Loop(replace(recipe(BIGRAMS), before=()), task, seed=seed + 1000, num_steps=steps)
    for _ in range(steps):
        begun.step()
    policy = phases(recipe(BIGRAMS, whole=whole), task, seed, tried, begun.actor)[0].actor
    encode = task.tokenizer.encode
    every = [encode("".join(one)) for one in product(DIGITS, repeat=4)]
    for prompt in range(8):
        before = [task.tokenizer.vocabulary.bos, *encode(task.items.item(prompt, 0).prompt)]
        rows = written([before] * len(every), every, torch.full((len(every),), prompt), 0)
        with torch.no_grad():
            new, old = (one.score(rows, frozenset({Need.LOGP})).logp.sum(1).double() for one in (policy, begun.actor))
        total += float((new.exp() * (new - old)).sum())
    return total / 8


def pass_rate(is_ours: bool, seed: int, tried: int = 8, steps: int = 100) -> float:
    """Returns the exact pass rate after the phases and steps of grpo; of the rival, after as many more steps as make up
    for all tokens that ours spent.
    """
    task = redo(4, 0.0)
    taught, spent = phases(recipe(BIGRAMS), task, seed, tried)
    loop = Loop(replace(recipe(BIGRAMS), before=()), task, seed=seed, num_steps=steps)
    if is_ours:
        loop.actor.load_state_dict(taught.actor.state_dict())
    while loop.progress.decisions < steps * 32 * 8 * task.max_tokens + (0 if is_ours else spent):
        loop.step()
    return float(task.exact(loop.actor)["pass_rate"])


def side(function: Callable[..., float], given: bool, **small: int) -> Computed:
    """Returns a side that is computed, and its small version."""
    return Computed(partial(function, given), small=partial(function, given, **small))


CLAIMS = Claims(
    claims=(
        same_gradient("after its phases its gradient is grpo's", recipe, by_hand.grpo_loss),
        Exact("the second phase learns all decisions of its rows by cross-entropy", lambda: probes.formula_gap(
              recipe().before[1].recipe, probes.sequences(),
              lambda seen: -by_hand.mean_of_decisions(seen.logp(), seen.experience)), at_most=1e-9, of="phases"),
        Exact("in each group without a right answer one is cut before its first wrong step and a right step follows, "
              "if it does not tell the answer and leads on", lambda: wrong_corrections(recipe()), equals=0.0),
        Exact("the rival learns whole solutions of the same prompts", wrong_solutions, equals=0.0, of="solutions"),
        Exact("all that is collected is learned once a pass: own beginnings and steps",
              lambda: wrong_passes(recipe(), ["a is 2\nb is 3\n", "a is 2\n", "a is 2\nb is 3\n"]), equals=0.0),
        Exact("without the prefix the steps alone", lambda: wrong_passes(recipe(prefix=False),
              ["b is 3\n", "a is 2\n", "b is 3\n"]), equals=0.0, of="steps-alone"),
        refuses("a file without worked solutions is refused", lambda: recipe().before[0].recipe,
                lambda: probes.BARE_FILE),
        Measured("after 40 steps of grpo its phases move the policy less than those of whole solutions of the same "
                 "prompts", "", side(from_start, False, tried=2, steps=3), side(from_start, True, tried=2, steps=3),
                 expect=Expect.BELOW, seeds=5, minutes=3.0, looks=2),
        Measured("where one answer in 800 is right it ends above grpo by 0.05 at equal tokens, those of its phases "
                 "included", "", side(pass_rate, True, tried=2, steps=4), side(pass_rate, False, tried=2, steps=4),
                 margin=0.05, seeds=5, minutes=6.0, looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("solved groups too", Intervened.corrections, "failed_groups(rows, RIGHT) &", ""),
        Edit("answers may be told", Intervened.corrections, "if not states(", "if True or states("),
        Edit("wherever it leads", Intervened.corrections, "found.rows(self.leads_on(found, scene))", "found"),
        Edit("every try is right", Intervened.leads_on, ".any(1)", ".all(1)"),
        Edit("continuations are free", Intervened.leads_on, "float(played.mask.sum())", "0.0"),
        Edit("it ends there", Intervened.corrections, "is_over=False", "is_over=True"),
        Edit("the last of a group", firsts, "taken.setdefault(label, row)", "taken[label] = row"),
        Edit("the last step's alone", Collected.__call__, "concatenate([from_columns", "rows or ([from_columns"),
        Edit("one order", Corrections.__call__, "random.permutation(scene.draw,", "random.permutation(Draw(0),"),
    ),
)
