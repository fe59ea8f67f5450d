"""lamo: a decision transformer whose layers are those of a language model, frozen but for low-rank adapters.

    y = W x + (alpha / rank) B A x in the projections to queries, keys and values;   W frozen, B = 0 at first
    token = W_2 gelu(W_1 x) + W_1 x, normalised, then the time is added;   action = W_4 gelu(W_3 hidden)
    loss = -mean log pi(a_t | window) - weight * mean log p(token | text before it), the text through the same layers

Shi et al. 2024. What layers learned on text, to find and copy patterns, serves where few decisions are recorded; the
text's loss keeps the adapters near it.

Axes: R rows, L positions, W units.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.method import CONTINUOUS, CONTROL, LANGUAGE, TABLE, AssayError, Experience, Loss, Method, Need, Phase, Preset
from assay.method import PromptTask, Recipe, Regularizer, Scene, State, TaskChange, View, Vocabulary, model_name
from assay.method import recipes
from assay.models import MAKES, Embedding, Policy, Stack, Transformer
from assay.models.bodies.transformer import Trunk
from assay.parts import Log
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.arithmetic import exact_match
from assay.tasks.language.items import Generator, Item

LETTERS, LONGEST, TEXT = "abcdefgh", 5, 16
WORDS = CharacterTokenizer(LETTERS)


def repeated(letters: Sequence[str]) -> str:
    """Returns TEXT letters of a pattern that repeats."""
    return ("".join(letters) * TEXT)[:TEXT]


@dataclass(frozen=True)
class Repeats(Generator):
    """Texts of a pattern of 2 to 5 letters that repeats: the second half is a function of the first."""

    not_a_part: ClassVar[str] = "it makes the items of a task, which have laws of their own"
    num_words: ClassVar[int] = 1 + LONGEST

    def propose(self, words: Sequence[int]) -> tuple[str, Item]:
        """Returns the text whose pattern these words name."""
        text = repeated([LETTERS[word % len(LETTERS)] for word in words[1 : 3 + words[0] % (LONGEST - 1)]])
        return text, Item(text[: TEXT // 2], text[TEXT // 2 :], text[TEXT // 2 :])

    def verify(self, item: Item, completion: str) -> Any:
        """Returns 1 for the second half, 0 for all else."""
        return exact_match(item.answer, completion)


@dataclass(frozen=True)
class Texts(TaskChange):
    """The task of continuing repeated patterns, in place of the plan's own."""

    breaks: ClassVar[dict[str, str]] = {"spaces": "a language model reads text before its layers read decisions"}

    def __call__(self, scene: Scene) -> PromptTask:
        return PromptTask("repeats", Repeats(), WORDS, max_prompt=TEXT // 2 + 1, max_tokens=TEXT // 2 + 1)


class LowRank(nn.Linear):
    """W x + (alpha / rank) B A x (arXiv:2106.09685) with W as it is; rank 0 is W x."""

    def __init__(self, plain: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__(plain.in_features, plain.out_features, bias=False)
        self.scale = alpha / max(1, rank)
        self.down = nn.Parameter(torch.randn(rank, plain.in_features) * plain.in_features**-0.5)
        self.up = nn.Parameter(torch.zeros(plain.out_features, rank))

    def forward(self, input: Tensor) -> Tensor:
        """Returns the layer's and the adapter's output."""
        return super().forward(input) + self.scale * (input @ self.down.T) @ self.up.T


class LanguageLayers(nn.Module):
    """The layers of a language model with adapters; its own weights are frozen and saved with the run."""

    def __init__(self, words: Vocabulary, settings: "LanguageStack") -> None:
        super().__init__()
        self.trunk = Trunk(words, settings.width, settings.layers, settings.heads)
        self.output = nn.Linear(settings.width, words.size, bias=False)
        self.requires_grad_(settings.is_trained)
        for block in self.trunk.layers():
            block.qkv = LowRank(block.qkv, settings.rank, settings.alpha).requires_grad_(True)
            block.qkv.weight.requires_grad_(settings.is_trained)

    @property
    def width(self) -> int:
        """Size of a hidden state."""
        return self.trunk.width

    def forward(self, x: Tensor) -> Tensor:
        """Returns hidden states of vectors [R, L, W]."""
        turn = self.trunk.turn(torch.arange(x.shape[1], device=x.device))
        for block in self.trunk.layers():
            x = block(x, turn, None)
        return self.trunk.last_norm(x)

    def log_words(self, tokens: Tensor) -> Tensor:
        """Returns log-probabilities of the next token after each, [R, L, V]."""
        logits: Tensor = self.output(self.trunk(tokens))
        return logits.log_softmax(-1)

    def kept(self) -> State:
        """Returns the frozen weights."""
        return {name: one.detach().clone() for name, one in self.named_parameters() if not one.requires_grad}

    @torch.no_grad()
    def keep(self, state: State) -> None:
        """Sets the frozen weights."""
        for name, one in self.named_parameters():
            if name in state and state[name].shape != one.shape:
                raise AssayError(
                    f"the language model's {name} is {list(state[name].shape)}, and the layers' is {list(one.shape)}. "
                    "Set both: actor.body.stack.* and before.reading.recipe.actor.body.*"
                )
            if name in state:
                one.copy_(state[name])


@dataclass(frozen=True)
class LanguageStack(Stack):
    """The layers of a language model of letters. `rank` of its adapters; with `is_trained` all its weights move."""

    width: int = 64
    layers: int = 2
    heads: int = 2
    rank: int = 8
    alpha: float = 16.0
    is_trained: bool = False
    not_a_part: ClassVar[str] = MAKES

    def build(self) -> nn.Module:
        return LanguageLayers(WORDS.vocabulary, self)


@dataclass(frozen=True)
class ResidualTokens(Embedding):
    """token = W_2 gelu(W_1 x) + W_1 x; outputs of two layers; the time is added after the normalisation."""

    is_timed_first: ClassVar[bool] = False
    not_a_part: ClassVar[str] = MAKES

    def token(self, size: int, width: int) -> nn.Module:
        return Residual(nn.Linear(size, width), nn.Linear(width, width))

    def output(self, width: int, size: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, size))


class Residual(nn.Module):
    """outer(gelu(inner(x))) + inner(x)."""

    def __init__(self, inner: nn.Linear, outer: nn.Linear) -> None:
        super().__init__()
        self.inner, self.outer = inner, outer

    def forward(self, x: Tensor) -> Tensor:
        """Returns the token."""
        first: Tensor = self.inner(x)
        second: Tensor = self.outer(functional.gelu(first))
        return second + first


@dataclass(frozen=True)
class NextWord(Regularizer):
    """weight * mean of -log p(token | those before it) of new texts, one for each window (arXiv:2310.20587, eq. 5).

    Texts belong to the update and the row. Degenerate: weight 0 draws no text, a row without a decision has none.
    Assumes a stack that reads text.
    """

    weight: float = 0.1
    actor: str = model_name("actor")
    divergence: ClassVar[bool] = False
    needs: ClassVar[frozenset[Need]] = frozenset()
    together: ClassVar[str | None] = None

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of letters."""
        return batch.mask.any(1).sum() * TEXT

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the texts' cross-entropy."""
        count = self.count(batch)
        if not self.weight:
            return Loss(batch.reward.new_zeros(()), count)
        drawn = view.uniform((len(batch), 1 + LONGEST), 11).to(batch.mask.device)
        length = 2 + (drawn[:, :1] * (LONGEST - 1)).long().clamp(max=LONGEST - 2)
        letters = 3 + (drawn[:, 1:] * len(LETTERS)).long().clamp(max=len(LETTERS) - 1)
        text = letters.gather(1, torch.arange(TEXT, device=letters.device) % length)
        tokens = functional.pad(text, (1, 0), value=WORDS.vocabulary.bos)
        logp = view.model(self.actor).body.stack.log_words(tokens[:, :-1]).gather(2, text.unsqueeze(2))
        logp = torch.where(batch.mask.any(1).view(-1, 1, 1), logp, 0.0)
        return Loss(-self.weight * logp.sum(), count, {"text_nll": (-logp.detach().sum(), count)})


def recipe(
    preset: Preset = CONTROL,
    log: Log | None = None,
    length: int = 20,
    stack: LanguageStack = LanguageStack(),
    weight: float = 0.1,
    reading: int = 150,
) -> Recipe:
    """Returns decision_transformer on layers that were trained on text for `reading` steps; 0 leaves them random."""
    base = recipes.decision_transformer(preset, log, length)
    body = replace(base.actor.body, stack=stack, embed=ResidualTokens())  # type: ignore[attr-defined]
    (stage,) = base.stages
    stage = replace(stage, regularizers=(NextWord(weight),))
    reader = Policy(Transformer(stack.width, stack.layers, stack.heads))
    language = replace(recipes.sft(LANGUAGE), name="reading", actor=reader)
    phase = Phase("reading", language, max(1, reading), hands={"actor": "actor.body.stack"}, task=Texts())
    actor = replace(base.actor, body=body)  # type: ignore[type-var]
    return replace(base, name="lamo", actor=actor, stages=(stage,), before=(phase,) if reading else ())


METHOD = Method(
    paper="arXiv:2310.20587",
    recipe=recipe,
    presets=(CONTROL, CONTINUOUS, TABLE),
    default_task="cartpole",
    family="offline",
    base=recipes.decision_transformer,
    departures=(
        "the language model is a small one of assay's own, trained on repeated patterns of letters before each run "
        "(GPT-2 small on web text): what a real language gives is not measured",
        "rotary positions, with which the layers were trained (no positions); rank 8, alpha 16, no dropout",
        "the head squashes actions into their bounds (their MLP head does not)",
        "the text's loss is part of the default, as in their co-training script; their base script leaves it out",
    ),
)
