"""Claims of lhf: its loss by hand, utilities and chances in numbers, the kept histories one by one, mutants.

Axes: B windows, T decisions, H histories, E attempts.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from assay.claims import About, Claims, Edit, Exact, Measured, cartpole, probes, same_gradient, trajectories
from assay.claims.testbeds.control.darkroom import darkroom
from assay.method import CONTINUOUS, CONTROL, Draw, Preset, Recipe, Scene, random
from assay.methods.lhf import ByHistory, HistoryOutputs, OnceADecision, recipe, resampled, utilities
from assay.parts import Log

LOG = Log(3, noise=0.5)
HISTORIES = ((0, 1, 2, 3, 4), (0, 3, 1, 4, 4), (0, 0, 0, 0, 0), (2, 0, 3, 1, 2))
TURNED = ((4, 3, 2, 1, 0), (4, 4, 4, 4, 4), (0, 4, 4, 4, 4), (4, 2, 4, 2, 4))


def small(preset: Preset = CONTROL, filtered: bool = False) -> Recipe:
    """Returns the recipe with a small stack."""
    return recipe(preset, log=LOG, length=5, filtered=filtered).set("stack.width", 8)


def likelihood(seen: probes.Seen) -> Tensor:
    """Returns minus the mean log-probability of choices, or half the squared distance, decision by decision."""
    data, body = seen.experience, seen.models["actor"].body
    spec = probes.BOX_SPEC if data.action.is_floating_point() else probes.CHOICE_SPEC
    weights = {name.replace("stack.stack.", "stack."): one for name, one in trajectories.weights_of(body).items()}
    done, taken = (trajectories.vectors_of(one, spec) for one in (data.context["previous_action"], data.action))
    losses = []
    for row, end in enumerate(data.mask.sum(1).tolist()):
        sums, to_go = [], data.context["return_to_go"][row]
        for t in range(end):
            time = weights["of_time.weight"][data.context["time"][row, t]]
            before = weights["of_time.weight"][data.context["time"][row, t - 1]]
            paid = to_go[t - 1] - to_go[t] if t else to_go[0] * 0
            seen_now = (data.context["observation"][row, t] - weights["mean"]) / weights["deviation"]
            both = [trajectories.token_of(weights, "of_return", paid.view(1), time),
                    trajectories.token_of(weights, "of_state", seen_now, time)]  # fmt: skip
            both += [trajectories.token_of(weights, "of_action", done[row, t], before)] if t else []
            sums.append(torch.stack(both).sum(0))
        hidden = trajectories.layers(weights, torch.stack(sums), body.settings.stack.stack)
        out = trajectories.output_of(weights, hidden)
        if data.action.is_floating_point():
            losses.append((out.tanh() - taken[row, :end]).square().sum(1) / 2)
        else:
            losses.append(-(functional.log_softmax(out, 1) * taken[row, :end]).sum(1))
    return torch.cat(losses).mean()


def utility_gap(histories: tuple[tuple[int, ...], ...], weight: float, *expected: float) -> float:
    """Returns the largest gap of the utilities of histories to these numbers."""
    found = utilities(torch.tensor(histories).double(), weight)
    return float((found - torch.tensor(expected, dtype=torch.float64)).abs().max())


def kept_by_hand(paid: list[list[float]], agents: int, attempt: int, weight: float, draw: Draw) -> list[int]:
    """Returns the kept histories, environment by environment and attempt by attempt."""
    longest, kept = max(len(one) for one in paid), list[int]()
    for first in range(0, len(paid), agents):
        own = [one + [0.0] * longest for one in paid[first : first + agents]]
        returns = [[sum(one[at : at + attempt]) for at in range(0, longest, attempt)] for one in own]
        least = min(0.0, *(min(one) for one in returns))
        returns = [[value - least for value in one] for one in returns]
        best, scores = max(max(one) for one in returns) or 1.0, list[float]()
        for one in returns:
            falls = [after - before for before, after in zip(one, one[1:], strict=False) if after < before]
            stability = 1 + (sum(falls) / len(falls) / best if falls else 0.0)
            scores.append((sum(one) / len(one) + max(one) - min(one)) / best / 2 + weight * stability)
        span, sweep, mine = max(scores) - min(scores), 0, list[int]()
        while len(mine) < len(own):
            for place, score in enumerate(scores):
                chance = (score - min(scores)) / span if span else 1.0
                if len(mine) < len(own) and float(random.uniform(draw.at(first), sweep, place)) <= chance:
                    mine.append(first + place)
            sweep += 1
        kept += mine
    return kept


def wrong_rows() -> float:
    """Returns how many decisions of a small darkroom's windows, and of made-up histories, are not the kept ones."""
    task, draw = darkroom(size=5, attempt=4, attempts=3, agents=4), Draw(3)
    source = ByHistory(recipe(filtered=False).source, agents=4, attempt=4, weight=0.7)  # type: ignore[arg-type]
    log = source.init(Scene(task, draw=draw))["contents"].columns[0]
    paid: Any = task.logged(draw).reward[:, :-1].tolist()  # type: ignore[misc]
    kept = torch.tensor(kept_by_hand(paid, 4, 4, 0.7, draw.at(18, 0))).unsqueeze(1)
    place, last = kept * 13 + torch.arange(12), (kept * 13 + 11).expand(-1, 12)  # a history has 12 decisions
    wrong = [log["place"] != place.flatten(), log["last"] != last.flatten(), ~log["mask"]]
    spread, lengths = torch.Generator().manual_seed(1), (7, 3, 9, 9, 2, 8, 5, 9, 4) * 5
    made = [torch.randn(length, generator=spread).double() - 0.3 for length in lengths]
    rows = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    found = replace(source, attempt=2).rows_of(torch.cat(made), rows, draw)
    chosen = kept_by_hand([one.tolist() for one in made], 4, 2, 0.7, draw)
    expected = torch.cat([(rows == one).nonzero().squeeze(1) for one in chosen])
    wrong.append(torch.tensor([not torch.equal(found, expected)]))
    return float(torch.cat(wrong).sum())


def distance_from_distillation() -> float:
    """Returns how far three updates on environments of one history each end from those without a filter."""
    task, theirs = darkroom(size=5, attempt=4, attempts=3, agents=2), small().set("source.updates", 3)
    ours = replace(theirs, source=ByHistory(theirs.source, agents=1))  # type: ignore[arg-type]
    mine, other = (probes.trained(one, task, 0, 1).actor.state_dict() for one in (ours, theirs))
    return probes.worst(*(float((mine[name] - one).abs().max()) for name, one in other.items()))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is that of the likelihood of choices given what was done and paid before", small,
                      likelihood, partial(trajectories.windows, probes.CHOICE_SPEC), probes.CHOICE_SPEC, at_most=1e-6),
        same_gradient("with continuous actions its gradient is that of least squares", partial(small, CONTINUOUS),
                      likelihood, trajectories.windows, probes.BOX_SPEC, at_most=1e-6, of="continuous-control"),
        Exact("the kept decisions are those of whole histories drawn by hand", wrong_rows, equals=0.0),
        Exact("a rise, one with a fall, nothing and ups and downs have the utilities 1.75, 1.3, 1 and 1.075",
              lambda: utility_gap(HISTORIES, 1.0, 1.75, 1.3, 1.0, 1.075), at_most=1e-9, illustrates=True),
        Exact("a fall has less utility than a rise, and an early rise more than a constant best",
              lambda: utility_gap(TURNED, 1.0, 1.5, 1.5, 1.9, 1.15), at_most=1e-9, of="theory"),
        Exact("acting it decides as training scored the logged episode",
              lambda: trajectories.acting_gap(small(), cartpole()), at_most=1e-5),
        Exact("with one history an environment it is algorithm distillation to the bit", distance_from_distillation,
              equals=0.0, tolerance=0.0, illustrates=True),
        # What would refute it: that imitating all histories does as well where half of the agents learn nothing.
        Measured("where half of the agents never learn, it is at held-out goals more often than without a filter",
                 "darkroom", recipe(), recipe(filtered=False), seeds=5, minutes=8, about=About.HEADLINE),
    ),
    mutants=(
        Edit("improvement without the range", utilities, "returns.mean(1) + returns.amax(1) - returns.amin(1)",
             "returns.mean(1) + returns.mean(1)"),
        Edit("all differences count", utilities, ".clamp(max=0.0)", ""),
        Edit("the number of falls counts", utilities, " / (fall < 0).sum(1).clamp(min=1)", " / fall.shape[1]"),
        Edit("the bad are kept", resampled, "<= chance", "> chance"),
        Edit("one sweep", resampled, "sweep += 1", "kept += kept"),
        Edit("rewards unseen", HistoryOutputs.tokens, "super().tokens(paid,", "super().tokens(0 * paid,"),
        Edit("returns to come are seen", HistoryOutputs.tokens, "super().tokens(paid,", "super().tokens(returns,"),
        Edit("a decision sees itself", OnceADecision.forward, "(0, 0, 1, 0)", "(0, 0, 0, 1)"),
    ),
)
