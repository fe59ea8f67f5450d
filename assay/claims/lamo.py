"""Claims of lamo: its losses by hand, what stays frozen, mutants. Axes: B windows, T decisions, W width."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from assay.claims import About, Claims, Edit, Exact, Measured, cartpole, probes, same_gradient, trajectories
from assay.method import CONTINUOUS, CONTROL, Preset, Recipe
from assay.methods.lamo import LETTERS, TEXT, LanguageStack, LowRank, NextWord, Repeats, recipe
from assay.parts import Log

SMALL, LOG = LanguageStack(8, 2, 2, rank=3, alpha=6.0), Log(3, noise=0.5)


def small(preset: Preset = CONTROL, weight: float = 0.1, stack: LanguageStack = SMALL) -> Recipe:
    """Returns the recipe with a small stack, known units of returns and no reading before."""
    whole = recipe(preset, log=LOG, length=5, weight=weight, stack=stack, reading=0)
    return whole.set("actor.body.scale", 2.0)


def merged(body: object) -> dict[str, Tensor]:
    """Returns the weights of a plain stack that does what layers and adapters do together."""
    given = {name.replace("stack.trunk.", "stack."): one for name, one in trajectories.weights_of(body).items()}
    for layer in range(SMALL.layers):
        own = f"stack.blocks.{layer}.qkv."
        given[f"{own}weight"] = given[f"{own}weight"] + 6.0 / 3.0 * given[f"{own}up"] @ given[f"{own}down"]
    return given


def token(weights: trajectories.Weights, kind: str, value: Tensor, time: Tensor) -> Tensor:
    """Returns norm(W_2 gelu(W_1 x) + W_1 x) + time."""
    inner = weights[f"{kind}.inner.weight"] @ value + weights[f"{kind}.inner.bias"]
    outer = weights[f"{kind}.outer.weight"] @ functional.gelu(inner) + weights[f"{kind}.outer.bias"] + inner
    return functional.layer_norm(outer, outer.shape, weights["norm.weight"], weights["norm.bias"]) + time


def output(weights: trajectories.Weights, hidden: Tensor) -> Tensor:
    """Returns W_4 gelu(W_3 h)."""
    inner = functional.gelu(hidden @ weights["output.0.weight"].T + weights["output.0.bias"])
    return inner @ weights["output.2.weight"].T + weights["output.2.bias"]


def losses_by_hand(seen: probes.Seen) -> Tensor:
    """Returns the loss of actions plus a tenth of that of texts, letter by letter."""
    data, weights = seen.experience, merged(seen.models["actor"].body)
    spec = probes.BOX_SPEC if data.action.is_floating_point() else probes.CHOICE_SPEC
    done, taken = (trajectories.vectors_of(a, spec) for a in (data.context["previous_action"], data.action))
    out = trajectories.outputs(weights, SMALL, data.context, done, 2.0, token, output)
    likely = (out.tanh() - taken).square().sum(2) / -2 if taken.shape != out.shape or data.action.dim() > 2 else (
        out.log_softmax(2) * taken).sum(2)
    texts = []
    for row in seen.uniform(6, tag=11).double().tolist():
        length = 2 + int(4 * row[0])
        letters = [3 + int(len(LETTERS) * one) for one in row[1 : 1 + length]]
        tokens = [1] + [letters[place % length] for place in range(TEXT)]
        hidden = trajectories.layers(weights, weights["stack.embedding.weight"][tokens[:-1]], SMALL)
        logits = hidden @ weights["stack.output.weight"].T
        texts += [logits[place].log_softmax(0)[tokens[place + 1]] for place in range(TEXT)]
    return -likely[data.mask].mean() - 0.1 * torch.stack(texts).mean()


def moved() -> float:
    """Returns how many frozen numbers five updates change, plus how many trained ones the stack has beyond A and B."""
    loop = probes.trained(small(), cartpole(), 0, 0)
    stack = loop.actor.body.stack
    before = stack.kept()
    loop.step()
    wrong = sum(int((before[name] != now).sum()) for name, now in stack.kept().items())
    trained = sum(one.numel() for one in stack.parameters() if one.requires_grad)
    has_learned = any(bool(one.any()) for name, one in stack.named_parameters() if name.endswith("qkv.up"))
    return float(wrong + abs(trained - 2 * 3 * (8 + 24)) + (not has_learned))


def adapter_gap() -> float:
    """Returns how far a new adapter's layer is from the layer alone."""
    torch.manual_seed(0)
    plain, x = torch.nn.Linear(8, 24, bias=False), torch.randn(5, 8)
    adapted = LowRank(plain, 3, 6.0)
    adapted.weight.data.copy_(plain.weight.data)
    return float((adapted(x) - plain(x)).abs().max().detach())


def wrong_texts() -> float:
    """Returns how many texts of four lengths are wrong."""
    right = ("bcbcbcbcbcbcbcbc", "bcdbcdbcdbcdbcdb", "bcdebcdebcdebcde", "bcdefbcdefbcdefb")
    found = [Repeats().propose((place + 4, 1, 2, 3, 12, 5)) for place in range(4)]
    return float(sum((text, item.prompt + item.answer, item.answer) != (one, one, one[8:])
                     for (text, item), one in zip(found, right, strict=True)))  # fmt: skip


def distance_without_text() -> float:
    """Returns how far five updates with weight 0 end from those without the term."""
    ours = small(weight=0.0)
    (stage,) = ours.stages
    other = replace(ours, stages=(replace(stage, regularizers=()),))
    data = trajectories.windows(probes.CHOICE_SPEC).map(lambda one: one.float() if one.dtype == torch.float64 else one)
    one, two = (probes.history(each, data, probes.CHOICE_SPEC, 5)[-1] for each in (ours, other))
    return probes.worst(*(probes.distance(one[name], two[name]) for name in two))


RANDOM = recipe(length=5, reading=0, weight=0.0)
SCRATCH = recipe(length=5, reading=0, weight=0.0, stack=LanguageStack(rank=0, is_trained=True))

CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is that of both losses by hand", small, losses_by_hand,
                      partial(trajectories.windows, probes.CHOICE_SPEC), probes.CHOICE_SPEC, at_most=1e-6),
        same_gradient("with continuous actions its gradient is that of least squares and text",
                      partial(small, CONTINUOUS), losses_by_hand, trajectories.windows, probes.BOX_SPEC, at_most=1e-6,
                      of="continuous-control"),
        Exact("updates leave the language model's weights as they are and train r (in + out) numbers a layer", moved,
              equals=0.0),
        Exact("a new adapter changes nothing", adapter_gap, equals=0.0, tolerance=0.0),
        Exact("texts to read repeat a pattern of two to five letters, whose second half is the answer", wrong_texts,
              equals=0.0, of="the task of the phase"),
        Exact("without a weight it is the run without text to the bit", distance_without_text, equals=0.0,
              tolerance=0.0, illustrates=True),
        # What would refute it: that the shape of the stack and its adapters do as well without any text.
        Measured("on few episodes it scores higher than with layers that are random and frozen",
                 "logged-tree:coverage=0.3,episodes=20", recipe(length=5), RANDOM, seeds=5, minutes=10, steps=40,
                 about=About.MECHANISM),
        Measured("on few episodes it scores higher than the same layers from scratch",
                 "logged-tree:coverage=0.3,episodes=20", recipe(length=5), SCRATCH, seeds=5, minutes=10, steps=40,
                 about=About.HEADLINE),
    ),
    mutants=(
        Edit("the adapter without its scale", LowRank.forward, "self.scale * ", ""),
        Edit("B random at first", LowRank.__init__, "torch.zeros(plain", "torch.randn(plain"),
        Edit("the text's likelihood falls", NextWord.__call__, "-self.weight * logp", "self.weight * logp"),
        Edit("text of random letters", NextWord.__call__, "% length", "% LONGEST"),
    ),
)
