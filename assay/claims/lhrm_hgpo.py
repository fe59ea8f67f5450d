"""The loss of two modes by hand, credit of a few rows, and what forced rollouts record. Axes: B rows, T decisions."""


import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Final, Measured, addition, by_hand, cartpole, probes
from assay.claims.testbeds.language.formats import formats
from assay.method import BIGRAMS, Experience, Recipe, recipes
from assay.methods.lhrm_hgpo import MODES, ForcedFirst, HybridCredit, halves, is_best, opening_logp, recipe, tags

TASK, DIGITS = addition(1), formats()


def in_modes(data: Experience, modes: int = 2) -> Experience:
    """Returns the rows in alternating modes; one or two first decisions are forced, by turns of rows."""
    place, row = data.mask.cumsum(1), torch.arange(len(data))
    return data.add({"mode": row % modes, "forced": data.mask & (place <= 1 + (row % 3 == 0).unsqueeze(1))})


def scaled(value: Tensor) -> Tensor:
    """Returns (x - mean) / std with n - 1; 0 if all are equal or there is one."""
    return torch.zeros_like(value) if len(value.unique()) < 2 else (value - value.mean()) / value.std()


def loss_by_hand(seen: probes.Seen, margin: float = 0.2) -> Tensor:
    """Returns the clipped loss of rank and mode advantages plus 0.001 of k3 to the reference, group by group."""
    data, outcome = seen.experience, by_hand.outcome(seen.experience)
    mode, advantage = data.column("mode"), torch.zeros_like(data.reward)
    assert data.group is not None
    for label in data.group.unique():
        rows = [row for row in range(len(data)) if data.group[row] == label and data.mask[row].any()]
        parts = [[row for row in rows if mode[row] == one] for one in mode.unique()]
        means = [float(outcome[part].mean()) + margin * (place == 0) for place, part in enumerate(parts)]
        winner = max(range(len(parts)), key=lambda place: means[place])
        inter = scaled(torch.tensor([float(mode[row] == winner) for row in rows], dtype=torch.float64))
        for row, push in zip(rows, inter, strict=True):
            advantage[row] += push * data.column("forced")[row]
        for part in parts:
            for row, rank in zip(part, scaled((outcome[part] == outcome[part].max()).double()), strict=True):
                advantage[row] += rank
    return with_divergence(seen, advantage)


def rank_loss(seen: probes.Seen) -> Tensor:
    """Returns the loss of grpo whose reward is 1 for the best row of a group, 0 for the others."""
    rank = by_hand.in_groups(by_hand.outcome(seen.experience), seen.experience, lambda one: scaled(
        (one == one.max()).double()))  # fmt: skip
    return with_divergence(seen, rank.unsqueeze(1))


def with_divergence(seen: probes.Seen, advantage: Tensor) -> Tensor:
    """Returns the loss clipped at 0.5, plus 0.001 of k3 to the reference, as a mean over sequences of means."""
    behind = torch.where(seen.experience.mask, seen.logp("reference").detach() - seen.logp(), 0.0)
    gain = by_hand.clipped(by_hand.ratio(seen), advantage, 0.5, 0.5) - 0.001 * (behind.exp() - 1 - behind)
    return -by_hand.mean_of_sequences(gain, seen.experience)


def wrong_rows(recipe: Recipe) -> float:
    """Returns how often a row does not begin with its opening, marks other tokens as forced, or has no decision of its
    own; plus how far recorded log-probabilities are from the policy's.
    """
    openings = ("12", "3")
    (played,), actor, _ = probes.gathered(recipe.set("rollout.openings", openings), TASK, starts=5)
    again = actor.score(played, frozenset()).logp.detach()
    said, mode = TASK.completions(played), played.column("mode").tolist()
    wrong = sum(not answer.startswith(openings[one]) for answer, one in zip(said, mode, strict=True))
    forced = played.column("forced").sum(1).tolist()
    wrong += sum(num != len(openings[one]) for num, one in zip(forced, mode, strict=True))
    wrong += mode != [sample % 2 for sample in played.column("sample").tolist()]
    wrong += not bool((played.mask.sum(1) > played.column("forced").sum(1)).all())
    wrong += len(set(said)) <= len(openings)  # the rest is sampled
    return wrong + float((again - played.logp).abs().max())


def mode_push(ours: Recipe, prob: float) -> float:
    """Returns the gradient in the logit of mode 0 of the gain of a group of four whose mode 0, of this probability, is
    better; answers are their mode alone.
    """
    logits = torch.tensor([prob, 1.0 - prob], dtype=torch.float64).log()
    rows = probes.bandit_experience([0, 0, 1, 1], [1.0, 1.0, 0.0, 0.0], logits)
    rows = rows.add({"mode": torch.tensor([0, 0, 1, 1]), "forced": rows.mask})
    return -float(probes.bandit_gradient_of(ours, rows, logits)[0])


CLAIMS = Claims(
    claims=(
        Exact("its gradient is the formula's, for scores and for tied answers", lambda: max(probes.formula_gap(
              recipe(), in_modes(data()), loss_by_hand) for data in (probes.sequences, probes.verified)),
              at_most=1e-9),
        Exact("with one mode its gradient is that of grpo on ranks", lambda: probes.formula_gap(
              recipe(), in_modes(probes.sequences(), modes=1), rank_loss), at_most=1e-9),
        Exact("rows begin as forced, with the free policy's log-probabilities", lambda: wrong_rows(recipe()),
              at_most=1e-5),
        Exact("tasks without tokens, and without the tags' letters, are refused", lambda: probes.is_refused(
              recipe(), cartpole()) and probes.is_refused(tags(), DIGITS), equals=1.0, of="tags"),
        Exact("through the loss a mode of one token is pushed by .43301, whatever its probability",
              lambda: probes.distance([mode_push(recipe(), prob) for prob in (0.05, 0.5, 0.95)], [3**0.5 / 4] * 3),
              at_most=1e-5, illustrates=True),
        Exact("openings are the task's: 0 and 5 on the testbed; a task that has none is refused", lambda: float(
              recipe().rollout.openings_on(formats(19, 11)) == ("0", "5")  # type: ignore[union-attr]
              and probes.is_refused(recipe(), TASK)), equals=1.0, of="refusals"),
        Measured("it takes the mode that a prompt needs more often than grpo, which begins freely", MODES,
                 recipe(BIGRAMS).set("actor.rank", 0), recipes.grpo(BIGRAMS).set("actor.rank", 0),
                 Final("cheapest_share"), seeds=10, minutes=6.0, steps=100, looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("the mode's credit on all tokens", HybridCredit.apply, ' * experience.column("forced")', ""),
        Edit("margin for thinking", HybridCredit.apply, "(mode == 0)", "(mode == 1)"),
        Edit("ranks in the whole group", HybridCredit.apply, "is_best(outcome, own)", "is_best(outcome, by_group)"),
        Edit("scores in place of ranks", HybridCredit.apply, "is_best(outcome, own).to(outcome)", "outcome"),
        Edit("scores within 1 are equal", is_best, "by_group) - TIE", "by_group) - 1.0"),
        Edit("modes of all groups together", halves, "by_group.index * (mode.max() + 1) + mode", "mode"),
        Edit("forced tokens are sure", opening_logp, "logits.log_softmax(-1)[:, token]", "logits[:, token].mul(0)"),
        Edit("forced tokens do not learn", ForcedFirst.__call__, "mask=played.mask | forced", "mask=played.mask"),
        Edit("the same opening for all", ForcedFirst.__call__, "samples % len(told)", "samples * 0"),
    ),
)
