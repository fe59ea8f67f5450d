"""Claims of pasta: its losses by hand, token by token, sensors that fail, what is handed on, mutants.

Axes: B windows, T columns, S numbers of a state, L tokens, W width.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from assay.claims import About, Claims, Edit, Exact, Measured, probes, same_gradient
from assay.claims.probes import trajectories
from assay.core.slots import History
from assay.datasets.recorded import with_statistics
from assay.method import CONTINUOUS, CONTROL, Ask, Box, Preset, Recipe, Spec, recipes
from assay.methods.pasta import FEW, offline, recipe
from assay.methods.pasta.losses import MaskedToken, NextToken, tokens_of
from assay.methods.pasta.tokens import ByNumber, ByVector, NumberTokens, VectorTokens, bins_of
from assay.methods.pasta.trunk import OnTrajectories, TrajectoryTrunk, may_see
from assay.models import CausalStack
from assay.parts import Log, Logged
from assay.tasks.control.pendulum import pendulum

STACK, MOMENTS = CausalStack(8, 2, 2), ((0.1, -0.2, 0.3), (0.5, 1.5, 2.5))
BODY = OnTrajectories(stack=STACK, tokens=NumberTokens(16), length=4, moments=MOMENTS)
VECTORS = replace(BODY, tokens=VectorTokens(6))
NUMBERS, BINS = (-1.0, -0.1, 0.0, 0.1, 0.5, 1.0), (0, 52, 127, 203, 240, 255)


def small(preset: Preset = CONTINUOUS, body: OnTrajectories = BODY) -> Recipe:
    """Returns the recipe with a small trunk and no data before."""
    made = recipe(preset, log=Log(3, noise=0.5), reading=0)
    return replace(made, actor=replace(made.actor, body=body))  # type: ignore[type-var]


def completing(preset: Preset = CONTINUOUS, body: OnTrajectories = BODY, before: NextToken = NextToken()) -> Recipe:
    """Returns the recipe of the phase before it, with a small trunk."""
    (phase,) = recipe(preset, before=before).before
    return replace(phase.recipe, actor=replace(phase.recipe.actor, body=body))  # type: ignore[type-var]


# ---------------------------------------------------------------------------------------------------- by hand
def spec_of(data: Any) -> Spec:
    return probes.BOX_SPEC if data.action.is_floating_point() else probes.CHOICE_SPEC


def bin_of(x: float, num: int) -> int:
    """Returns the bin of a number: of the num intervals of (y + 1) / 2, closed above, the one it is in."""
    share = (math.copysign(math.log1p(255 * abs(x)) / math.log(256), x) + 1) / 2 * num
    return min(num - 1, max(0, math.ceil(share) - 1))


def vector(weights: trajectories.Weights, which: str, x: Tensor) -> Tensor:
    """Returns W_2 gelu(W_1 x)."""
    inner = functional.gelu(weights[f"tokens.{which}.0.weight"] @ x + weights[f"tokens.{which}.0.bias"])
    return weights[f"tokens.{which}.2.weight"] @ inner + weights[f"tokens.{which}.2.bias"]


class ByHand:
    """The tokens of one window [L, W], and how far each is from what a hidden state foretells."""

    def __init__(self, trunk: Any, spec: Spec, seen: Tensor, done: Tensor, time: Tensor) -> None:
        self.weights, self.spec, self.stack = trajectories.weights_of(trunk), spec, STACK
        self.state, self.time = (seen.double() - self.weights["mean"]) / self.weights["deviation"], time
        self.acted, self.done = trajectories.vectors_of(done, spec), done
        self.bins = trunk.tokens.num if "tokens.of_bin.weight" in self.weights else 0
        self.counts = (1, 1) if not self.bins else (len(seen[0]), self.acted.shape[1] if isinstance(
            spec.action, Box) else 1)  # fmt: skip
        self.values = [one for t in range(len(seen)) for one in self.column(t)]

    def column(self, t: int) -> list[Any]:
        """Returns the bins of a column's tokens, or its two vectors."""
        state, acted = self.state[t].nan_to_num(), self.acted[t]
        if not self.bins:
            return [state, acted]
        acts = [bin_of(x, self.bins) for x in acted.tolist()]
        return [bin_of(x / 4, self.bins) for x in state.tolist()] + (
            acts if isinstance(self.spec.action, Box) else [int(self.done[t])])

    def hidden(self, sees: Sequence[Sequence[int]] | None = None, blank: Sequence[int] = ()) -> Tensor:
        """Returns the hidden states [L, W]."""
        num, tokens = sum(self.counts), []
        for place, value in enumerate(self.values):
            t, part = divmod(place, num)
            if place in blank:
                x = self.weights["blank"]
            elif self.bins:
                x = self.weights["tokens.of_bin.weight"][value]
            else:
                x = vector(self.weights, "of_action" if part else "of_state", value)
            x = x + self.weights["of_part.weight"][part] + self.weights["of_time.weight"][self.time[t]]
            tokens.append(functional.layer_norm(x, x.shape, self.weights["norm.weight"], self.weights["norm.bias"]))
        return trajectories.layers(self.weights, torch.stack(tokens), self.stack, sees)

    def miss(self, place: int, hidden: Tensor) -> Tensor:
        """Returns -log p of the token at a place, or half of its vector's squared distance."""
        if not self.bins:
            foretold = vector(self.weights, "next_action" if place % 2 else "next_state", hidden)
            return (foretold - self.values[place]).square().sum() / 2
        logits = self.weights["tokens.output.weight"] @ hidden + self.weights["tokens.output.bias"]
        return -logits.log_softmax(0)[self.values[place]]


def completion(seen: probes.Seen, share: float | None = None) -> Tensor:
    """Returns the mean over decisions of the misses of all tokens but the first, or of masked ones, divided by n."""
    data, trunk, losses = seen.experience, seen.models["actor"].body.trunk, []
    for row, end in enumerate(data.mask.sum(1).tolist()):
        hand = ByHand(trunk, spec_of(data), data.context["observation"][row], data.action[row],
                      data.context["time"][row])  # fmt: skip
        num = sum(hand.counts)
        length = end * num + hand.counts[0]
        if share is None:
            hidden = hand.hidden()
            losses += [hand.miss(place, hidden[place - 1]) / num for place in range(1, length)]
        else:
            drawn = seen.uniform(data.num_columns, num, tag=12)[row].flatten()
            masked = [place for place in range(length) if drawn[place] < share]
            hidden = hand.hidden([[*range(length)] if p < length else [*range(length), p] for p in range(
                len(hand.values))], masked)  # fmt: skip
            losses += [hand.miss(place, hidden[place]) / num for place in masked]
    return torch.stack(losses).sum() / data.mask.sum()


def cloning(seen: probes.Seen) -> Tensor:
    """Returns half of the squared distance in half-ranges, or -log pi, of the head on means of frozen hidden states."""
    data, body, losses = seen.experience, seen.models["actor"].body, []
    spec = spec_of(data)
    for row, end in enumerate(data.mask.sum(1).tolist()):
        before = data.context["previous_action"][row]
        done = torch.cat((before[1:], before[:1] * 0))
        hand = ByHand(body.trunk, spec, data.context["observation"][row], done, data.context["time"][row])
        hidden = hand.hidden().detach().unflatten(0, (-1, sum(hand.counts)))[:end, : hand.counts[0]].mean(1)
        out, taken = body.inner.net(hidden), trajectories.vectors_of(data.action[row, :end], spec)
        likely = (out.tanh() - taken).square().sum(1) / 2 if isinstance(spec.action, Box) else -(
            out.log_softmax(1) * taken).sum(1)
        losses.append(likely)
    return torch.cat(losses).mean()


# ---------------------------------------------------------------------------------------------------- sensors that fail
def failing_gap(body: OnTrajectories = BODY, spec: Spec = probes.BOX_SPEC) -> float:
    """Returns how far decisions of episodes of 1 to 6 steps, whole and with failed sensors, are from those by hand,
    which leave the tokens of what failed out, and those that are further back than the window.
    """
    torch.manual_seed(1)
    trunk: Any = body.outputs(spec, Ask((2,))).double().trunk
    gaps, fails = [], ((), (0,), (2,), (0, 1), (0, 1, 2))
    for row, failed in enumerate(fails * 2):
        steps, draw = row % 4 + row // 4, torch.Generator().manual_seed(row)
        seen = torch.randn(steps + 1, 3, generator=draw).double()
        seen[:, list(failed)] = torch.nan
        done = torch.rand(steps + 1, 2, generator=draw).double() * 0.2
        kept, far, left = max(0, steps - 3), max(0, steps - 5), max(0, 5 - steps)
        padded = [functional.pad(one[far:steps], (0, 0, left, 0), value=value)
                  for one, value in ((seen, 7.0), (done, 0.1))]  # fmt: skip
        context = {"observation": seen[-1:], "time": torch.tensor([steps]), "past_observation": padded[0][None],
                   "past_action": padded[1][None], "past": (torch.arange(5) >= left)[None]}  # fmt: skip
        last = seen[kept:]
        hand = ByHand(trunk, spec, last, torch.cat((done[kept:steps], 0 * done[:1])), torch.arange(kept, steps + 1))
        num = sum(hand.counts)
        gone = [t * num + part for t in range(len(last)) for part in failed] if hand.bins else []
        sees = [[one for one in range(p + 1) if one not in gone or one == p] for p in range(len(hand.values))]
        shown = [part for part in range(hand.counts[0]) if not hand.bins or part not in failed]
        mean = hand.hidden(sees)[-num:][shown].mean(0) if shown else torch.zeros(8).double()
        gaps.append(float((trunk.represented(context)[0] - mean).detach().abs().max()))
    return probes.worst(*gaps)


def planning_gap() -> float:
    """Returns how far the history that is shown to bodies of four decisions and of one, and the moments that a plan
    fills in, are from those of their length and of the log.
    """
    told, alone = (replace(BODY, length=length).reads_history for length in (4, 1))
    planned: Any = with_statistics(small(body=replace(BODY, moments=())), pendulum(), seed=0).actor
    seen = Log(3, noise=0.5).columns(pendulum())["context.observation"][:, 0].double()
    wrong = (told != History(4, actions=True)) + (alone != History()) + (len(planned.body.moments) != 2)
    if wrong:
        return float(wrong)
    mean, deviation = (torch.tensor(one, dtype=torch.float64) for one in planned.body.moments)
    return float(torch.cat((mean - seen.mean(0), deviation - seen.std(0, correction=0))).abs().max())


def share_of_parameters() -> float:
    """Returns by how much of them the parameters on the pendulum of both kinds of tokens differ."""
    bodies: list[Any] = [
        OnTrajectories(tokens=kind).outputs(pendulum().spec, Ask((1,))) for kind in (NumberTokens(), VectorTokens())
    ]
    one, two = (sum(each.numel() for each in body.trunk.parameters()) for body in bodies)
    return abs(one - two) / max(one, two)


def not_handed() -> float:
    """Returns how many models of the offline variant do not get the trunk's weights, plus whether its head is given."""
    (phase,) = offline().before
    (own, theirs), = phase.hands.items()
    wanted = {f"{name}.body.trunk" for name in ("actor", "value", "q")}
    return float(len(wanted ^ set(theirs)) + (own != "actor.body.trunk"))


WINDOWS, CHOICES = trajectories.windows, partial(trajectories.windows, probes.CHOICE_SPEC)
PLAIN = replace(recipes.bc(CONTINUOUS), source=Logged((FEW,), 64), steps=100)

CLAIMS = Claims(
    claims=(
        same_gradient("completing, its gradient is that of the cross-entropy of each number given those before it",
                      completing, completion, WINDOWS, probes.BOX_SPEC, at_most=1e-6),
        same_gradient("with tokens that are masked it is that of their cross-entropy given all others",
                      partial(completing, before=MaskedToken(share=0.4)), partial(completion, share=0.4), WINDOWS,
                      probes.BOX_SPEC, at_most=1e-6),
        same_gradient("with one token for a vector it is that of least squares", partial(completing, body=VECTORS),
                      completion, WINDOWS, probes.BOX_SPEC, at_most=1e-6),
        same_gradient("a choice is one token, its own bin", partial(completing, CONTROL), completion, CHOICES,
                      probes.CHOICE_SPEC, at_most=1e-6),
        same_gradient("cloning, it is that of least squares of the head alone", small, cloning, WINDOWS,
                      probes.BOX_SPEC, at_most=1e-6),
        Exact("acting, a number that a sensor does not give has no token: decisions are those without it",
              failing_gap, at_most=1e-5),
        Exact("where a vector is one token, what is missing is the mean", lambda: failing_gap(VECTORS), at_most=1e-5),
        Exact("it is shown as many decisions as it reads, and knows the moments of its data", planning_gap,
              at_most=1e-9),
        Exact("-1, -0.1, 0, 0.1, 0.5 and 1 are in the bins 0, 52, 127, 203, 240 and 255 of 256",
              lambda: float((bins_of(torch.tensor(NUMBERS), 256) - torch.tensor(BINS)).abs().sum()), equals=0.0,
              illustrates=True),
        Exact("both kinds of tokens have as many parameters, within a hundredth", share_of_parameters, at_most=0.01,
              of="the rival"),
        Exact("the offline variant hands the trunk to its actor and both critics", not_handed, equals=0.0,
              of="the variant iql"),
        # What would refute it: that a vector with a mean in it tells a head as much as tokens that are left out.
        Measured("where a sensor fails it scores higher than with one token for a state", "failing-sensors", recipe(),
                 recipe(tokens=VectorTokens()), seeds=5, minutes=30, about=About.HEADLINE),
        Measured("completing masked numbers it scores no more than 50 below completing the next, where a sensor fails",
                 "failing-sensors", recipe(before=MaskedToken()), recipe(), margin=-50.0, seeds=5, minutes=30,
                 about=About.COMPONENT),
        Measured("from five episodes it scores no more than 50 below a perceptron that clones them", "pendulum",
                 recipe(), PLAIN, margin=-50.0, seeds=5, minutes=30, about=About.COMPONENT),
    ),
    mutants=(
        Edit("a token foretells itself", NextToken.misses, "(0, 0, 1, 0)", "(0, 0, 0, 0)"),
        Edit("all tokens are told", MaskedToken.misses, "masked = there & (", "masked = there | ("),
        Edit("the masked value is seen", TrajectoryTrunk.forward, "self.blank, x)", "x, x)"),
        Edit("a failed sensor reads the mean", ByNumber.there, "~state.isnan()", "state.isnan() | True"),
        Edit("the mean over failed sensors too", TrajectoryTrunk.latest, "(hidden * known)", "(hidden * 1)"),
        Edit("what is before the episode is seen", TrajectoryTrunk.latest, "& there.unsqueeze(2), acted",
             "| ~there.unsqueeze(2), acted"),
        Edit("the state after the last decision has no token", tokens_of, "acted | functional", "acted & functional"),
        Edit("both ways under a head", may_see, "if both_ways", "if True"),
        Edit("a vector without its second layer", ByVector.miss, "self.next_state(hidden[..., 0, :]) - state",
             "self.next_state(hidden[..., 0, :]) + state"),
    ),
)
