"""Which prompts are hard, what they are shown and how their groups are compared, on policies without chance."""

import torch

from assay.claims import About, AtEqual, Claims, Edit, Exact, Measured, by_hand, probes, refuses
from assay.method import READING, Experience, Recipe, Scene, recipes
from assay.methods.pope import WithGuided, recipe
from assay.parts import hinted_groups

STARTS = (3, 0, 4, 1, 2)
SHOWN = {1: 1, 2: 2, 3: 3, 4: 1}
"""Prompt k is right after k digits of its code: what hard ones are shown; nothing short of all helps 4."""

TRIES = (1, 2, 3, 4, 4)
"""How often the first policy is tried on prompt k: bare, then share after share."""


def scene_of(wrong: bool = False) -> Scene:
    """Returns a scene whose first policy is `half_known`; with `wrong` the actor writes every digit wrong."""
    first = probes.half_known()
    return probes.hint_scene(STARTS, probes.half_known(wrong=True) if wrong else first, probes.Only(first))


def wrong_rows(ours: Recipe, wrong: bool) -> float:
    """Returns how many rows are not those of the bare and the guided groups: tokens, decisions, mark and group; plus
    how far the metrics are from those of 16 tries, and the second call's from none. With `wrong`, the actor is not the
    first policy, which alone chooses.
    """
    scene, bad = scene_of(wrong), 0.0
    state = ours.rollout.init(scene)  # type: ignore[union-attr]
    for call in range(2):
        scene = scene.given(metrics={})
        with torch.no_grad():
            rows = ours.rollout(scene, state)  # type: ignore[misc]
        bad += abs(sum(v for v, _ in scene.metrics.get("discarded_decisions", [])) - 16 * 4 * sum(TRIES) * (call == 0))
        bad += scene.metrics.get("hard", []) != ([(4.0, 5.0)] if call == 0 else [])
        order = [(one, 0) for one in STARTS] + sorted(SHOWN.items())
        bad += len(rows) != 8 * len(order)
        for row, (start, shown) in enumerate((pair for pair in order for _ in range(8)) if not bad else ()):
            bad += probes.differs(rows, row, start, shown, 4 if wrong else start)
            bad += bool(rows.column("hinted")[row]) != (shown > 0) or int(rows.column("start")[row]) != start
            bad += rows.group is None or int(rows.group[row]) != start + (shown > 0) * 2**32
    return float(bad)


def pooled_advantage(ours: Recipe) -> float:
    """Returns the largest advantage of groups of which the bare ones are all wrong and the guided ones all right."""
    scene = scene_of()
    rows: Experience = probes.gathered_in(ours, scene)
    rows = rows.rows(rows.column("start") == 2)
    for part in ours.credit:
        rows = part(rows, scene)
    return float(rows.column("advantage").abs().max()) + float(rows.column("score").mean() != 0.5)


def hard_of_unsure(ours: Recipe) -> float:
    """Returns the share of hard prompts if the only one is right in about half of the tries."""
    actor = probes.half_known(unsure=True)
    scene = probes.hint_scene((0,), actor, probes.Only(actor))
    probes.gathered_in(ours, scene)
    ((hard, count),) = scene.metrics["hard"]
    return hard / count


CLAIMS = Claims(
    claims=(
        Exact("its gradient is grpo's", lambda: probes.formula_gap(recipe(), probes.ANY_OUTCOME, by_hand.grpo_loss),
              at_most=1e-9),
        Exact("beside each hard prompt a group sees the shortest share after which one of 16 tries is right, the first "
              "quarter if none is; chosen once, and the tries count", lambda: wrong_rows(recipe(), False), equals=0.0),
        Exact("the first policy chooses, not the present one", lambda: wrong_rows(recipe(), True), equals=0.0),
        Exact("one right try is enough", lambda: hard_of_unsure(recipe()), equals=0.0),
        Exact("guided answers are not compared with bare ones: all right and all wrong, neither has an advantage",
              lambda: pooled_advantage(recipe()), at_most=1e-9, illustrates=True),
        refuses("a file without worked solutions is refused", recipe, lambda: probes.BARE_FILE),
        Measured("where the start is right once in 10,000 it is right on bare prompts more often than grpo, at equally "
                 "many generated tokens", "reading:digits=4", recipe(READING), recipes.grpo(READING),
                 AtEqual("pass_rate", reached="decisions_total"), margin=0.2, seeds=5, minutes=4.0, steps=100, looks=2,
                 about=About.HEADLINE),
    ),
    mutants=(
        Edit("one group of both", WithGuided.__call__, "guided.group + GUIDED", "guided.group"),
        Edit("chosen at every visit", WithGuided.__call__, 'if prompt not in state["share"]', "if True"),
        Edit("all prompts are hard", WithGuided.__call__, "shares > NOT_HARD", "shares > -1"),
        Edit("chosen by the present policy", WithGuided.solved, "actor=scene.models.model(self.policy), ", ""),
        Edit("nothing is tried bare", WithGuided.chosen, "(NOT_HARD, *self.shares)", "self.shares"),
        Edit("the longest share that helps", WithGuided.chosen, "open_ = open_[~is_solved]", "pass"),
        Edit("all tries must be right", WithGuided.solved, ".any(1)", ".all(1)"),
        Edit("tries are free", WithGuided.solved, "scene.log(DISCARDED, float(played.mask.sum()))", "pass"),
        Edit("not marked", hinted_groups, '"hinted": torch.ones', '"hinted": torch.zeros'),
    ),
)
