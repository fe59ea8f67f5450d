"""A pretrained network as an actor: scoring, and decoding with the network's own cache.

Axes: B sequences, T tokens, D decisions, V vocabulary, W width, N rows that decode together. Decision t is token t
given the tokens before it: its logits come from position t - 1.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.core.record import Experience, Need, Scored
from assay.core.spaces import Context, Vocabulary
from assay.models.decoder_handle import Held
from assay.models.pretrained import packed_layers, routing
from assay.ops import distributions, output, packed_attention, packing, repeats
from assay.rollouts import text

LOGITS_AT_ONCE = 1 << 25  # 128 MiB of float32
EXPERTS = "experts"
LARGEST_GAP = 1e-3  # between log-probabilities and those of the network's own forward pass
LARGEST_GAP_LOW = 0.25  # the same in bfloat16, whose logits have three digits


@contextmanager
def silenced() -> Iterator[Any]:
    """Silences progress bars and reports of transformers. A change of its level visits every logger of the process, so
    that inside another such block nothing is changed.
    """
    library = require("transformers", "language", "pretrained models")
    log, level, had_bar = library.logging, library.logging.get_verbosity(), library.logging.is_progress_bar_enabled()
    if level == log.ERROR and not had_bar:
        yield library
        return
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield library
    finally:
        log.set_verbosity(level)
        (log.enable_progress_bar if had_bar else log.disable_progress_bar)()


@contextmanager
def asking(trouble: str) -> Iterator[Any]:
    """Silences transformers; turns its exceptions into an AssayError about `trouble`."""
    with silenced() as library:
        try:
            yield library
        except Exception as error:
            reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise AssayError(f"{trouble}: {reason}") from error


def bypass(*ignored: Any, inputs_embeds: Tensor, **settings: Any) -> Any:
    """Replaces the layers by the identity: the network is then its output layer alone."""
    outputs = require("transformers.modeling_outputs", "language")
    result = outputs.MoeModelOutputWithPast(last_hidden_state=inputs_embeds)
    result.cross_attentions = None  # some networks read it, none needs it
    return result


class PretrainedActor(nn.Module):
    """A policy over the tokens of a pretrained network, with exactly its distribution at `temperature`: no token is
    excluded.
    """

    num_draws = 1
    has_layers_in_a_row = True

    def __init__(self, vocabulary: Vocabulary, network: Any) -> None:
        super().__init__()
        self.vocabulary, self.network, self.is_packed, self.sampler = vocabulary, network, False, Held()
        self.temperature, self.num_choices = 1.0, routing.prepare(network)

    @cached_property
    def is_plain(self) -> bool:
        """Whether logits are the product with one matrix and nothing else: no bias, adapter, scale, soft cap or cut."""
        head = self.network.get_output_embeddings()
        if type(head) is not nn.Linear or head.bias is not None or head.out_features != self.vocabulary.size:
            return False
        with torch.no_grad():
            hidden = torch.linspace(-30.0, 30.0, 2 * head.in_features, device=head.weight.device).view(2, -1)
            product = head(hidden.to(head.weight.dtype))
            own = self.own_logits(hidden.to(head.weight.dtype))
            return torch.allclose(own, product.to(own.dtype), rtol=1e-4)

    def layers(self) -> Sequence[nn.Module]:
        """Returns the transformer layers; an empty list if the network stores them in an unknown place."""
        return layers_of(self.network.base_model)

    def logits(self, hidden_DW: Tensor) -> Tensor:
        """Returns [D, V] in float32 or wider; on a GPU without rounding in between."""
        if hidden_DW.is_cuda and hidden_DW.dtype == torch.bfloat16 and not hidden_DW.requires_grad and self.is_plain:
            weight = self.network.get_output_embeddings().weight.to(hidden_DW.dtype)
            return output.products(self.cooled(hidden_DW), weight)
        return self.cooled(self.own_logits(hidden_DW))

    def cooled(self, values: Tensor) -> Tensor:
        """Returns the values divided by the temperature: logits, or states before a product that gives them."""
        return values if self.temperature == 1.0 else values / self.temperature

    def own_logits(self, hidden_DW: Tensor) -> Tensor:
        """Returns logits [D, V] of the network's own output layer, with its scales and soft caps."""
        head = copy.copy(self.network)
        vars(head)[self.network.base_model_prefix] = bypass
        logits = head(inputs_embeds=hidden_DW.unsqueeze(0), use_cache=False).logits.squeeze(0)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> Decoder:
        """Returns a decoder of `repeats` rows of each prompt."""
        return Decoder(self, prompts, repeats)

    def release(self) -> None:
        """Frees the memory that decoding on a GPU holds."""
        self.sampler.release()

    def pack(self) -> bool:
        """Switches packing on if the network's layers support it; returns whether they do."""
        self.is_packed = packed_layers.can_pack(self.network, self.vocabulary.size)
        return self.is_packed

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns log-probabilities of the decided tokens; logits are not kept unless requested."""
        place_D, hidden = (self.packed_states if self.is_packed else self.padded_states)(batch)
        logp, entropy = self.judged(hidden, batch.action.reshape(-1).index_select(0, place_D), needs)

        def spread(values: Tensor) -> Tensor:
            empty = values.new_zeros(batch.mask.numel(), *values.shape[1:])
            return empty.index_copy(0, place_D, values).unflatten(0, batch.mask.shape)

        return Scored(
            spread(logp),
            spread(entropy) if Need.ENTROPY in needs else None,
            spread(self.logits(hidden)) if Need.LOGITS in needs else None,
            spread(hidden) if Need.HIDDEN in needs else None,
            spread(self.candidates(hidden, batch, place_D)) if Need.CANDIDATES in needs else None,
            spread(self.uniform(hidden)) if Need.UNIFORM in needs else None,
        )

    def candidates(self, hidden_DW: Tensor, batch: Experience, place_D: Tensor) -> Tensor:
        """Returns log-probabilities of the candidates of each decision, [D, K]; logits are computed in chunks, and
        again in the backward pass.
        """
        action_DK = batch.column("candidates")[..., 0].long().flatten(0, 1).index_select(0, place_D)
        num = max(1, LOGITS_AT_ONCE // self.vocabulary.size)

        def measure(some_DW: Tensor, action: Tensor) -> Tensor:
            return distributions.categorical_candidates(self.logits(some_DW), action)

        chunks = zip(hidden_DW.split(num), action_DK.split(num), strict=True)
        return torch.cat([checkpoint(measure, some, action, use_reentrant=False) for some, action in chunks])

    @torch.no_grad()
    def uniform(self, hidden_DW: Tensor) -> Tensor:
        """Returns the mean log-probability over the vocabulary, [D], from chunks of logits."""
        num = max(1, LOGITS_AT_ONCE // self.vocabulary.size)
        return torch.cat([distributions.uniform_logp(self.logits(some)) for some in hidden_DW.split(num)])

    def padded_states(self, batch: Experience) -> tuple[Tensor, Tensor]:
        """Returns (places in the batch [D], states before them [D, W]); right-padded rows need the causal mask only."""
        mask_BT = batch.mask.clone()
        mask_BT[:, 0] = False
        place_D = mask_BT.view(-1).nonzero().squeeze(1)  # the only wait of the host here
        if not len(place_D):
            return place_D, self.no_states()
        given = self.choices(batch)
        more = {} if given is None else {routing.GIVEN: given[:, :-1]}
        states = self.network.base_model(input_ids=batch.context["tokens"][:, :-1], use_cache=False, **more)
        before_D = place_D - place_D.div(batch.num_columns, rounding_mode="floor") - 1
        return place_D, states.last_hidden_state.flatten(0, 1).index_select(0, before_D)

    def packed_states(self, batch: Experience) -> tuple[Tensor, Tensor]:
        """Returns the same from packed rows: no padding, and the shared prefix of a group once. The host makes the
        plan from its own copy of the batch and does not wait for the device.
        """
        home, device = batch.on_cpu, batch.mask.device
        pack = packing.packed(home.context["tokens"], home.mask, home.group)
        place_D = packed_attention.sent(pack.place_D, device)
        if not len(place_D):
            return place_D, self.no_states()
        tokens_N = batch.context["tokens"].reshape(-1).index_select(0, packed_attention.sent(pack.token_N, device))
        given = self.choices(batch)
        if given is not None:
            given = given.flatten(0, 1).index_select(0, packed_attention.sent(pack.token_N, device))
        states_NW = packed_layers.states(self.network, tokens_N, pack, given)
        found = vars(repeats.repeats_of(pack.before_D)).items()
        again = repeats.Repeats(**{name: packed_attention.sent(some, device) for name, some in found})
        return place_D, repeats.taken(states_NW, packed_attention.sent(pack.before_D, device), again)

    def choices(self, batch: Experience) -> Tensor | None:
        """Returns the experts recorded for each token, [B, T, L * K]; None without, and for a network that is not
        trained: a reference has its own.
        """
        given = batch.extra.get(EXPERTS) if self.num_choices else None
        is_own = given is not None and given.shape[-1] == self.num_choices
        return given if is_own and any(weight.requires_grad for weight in self.parameters()) else None

    def no_states(self) -> Tensor:
        """Returns empty states, [0, W]."""
        return next(self.parameters()).new_zeros(0, self.network.get_output_embeddings().weight.shape[1])

    def judged(self, hidden_DW: Tensor, action_D: Tensor, needs: frozenset[Need]) -> tuple[Tensor, Tensor]:
        """Returns (log-probability, entropy): fused with the output layer if that is one matrix and there are many
        logits, else LOGITS_AT_ONCE at a time.
        """
        num = max(1, LOGITS_AT_ONCE // self.vocabulary.size)
        is_long = torch.is_grad_enabled() and len(hidden_DW) > num  # else backward would keep all chunks' logits
        if (is_long or hidden_DW.is_cuda) and self.is_plain:
            weight, kind = self.network.get_output_embeddings().weight, hidden_DW.device.type
            narrow = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
            with torch.autocast(kind, enabled=False):
                given = (self.cooled(hidden_DW.to(narrow)), weight.to(narrow), action_D)
                logp, entropy = output.given_logp(*given, Need.ENTROPY in needs)
            return logp, torch.zeros_like(logp) if entropy is None else entropy
        measure: Any = partial(checkpoint, self.measured, use_reentrant=False) if is_long else self.measured
        chunks = zip(hidden_DW.split(num), action_D.split(num), strict=True)
        parts = [measure(some, action, needs) for some, action in chunks]
        return torch.cat([logp for logp, _ in parts]), torch.cat([entropy for _, entropy in parts])

    def measured(self, hidden_DW: Tensor, action_D: Tensor, needs: frozenset[Need]) -> tuple[Tensor, Tensor]:
        """Returns (log-probability, entropy) of some decisions; the entropy is 0 if it is not requested."""
        logits = self.logits(hidden_DW)
        logp = distributions.categorical_logp(logits, action_D)
        return logp, distributions.categorical_entropy(logits) if Need.ENTROPY in needs else torch.zeros_like(logp)


class PretrainedStates(nn.Module):
    """Hidden states of a pretrained network without its output layer, for other heads."""

    has_layers_in_a_row = True

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network, self.width = network.base_model, int(network.get_output_embeddings().weight.shape[1])
        self.dtype: torch.dtype = network.dtype

    def layers(self) -> Sequence[nn.Module]:
        """Returns the transformer layers."""
        return layers_of(self.network)

    def after(self, context: Context) -> Tensor:
        """Returns the state after each token, [B, T, W]."""
        return self.states(context["tokens"])

    def before(self, context: Context) -> Tensor:
        """Returns the state before each token, zeros at column 0, [B, T, W]."""
        return nn.functional.pad(self.states(context["tokens"][:, :-1]), (0, 0, 1, 0))

    def states(self, tokens_BT: Tensor) -> Tensor:
        """Returns the hidden states [B, T, W]; rows are right-padded, which causal attention never reads."""
        states: Tensor = self.network(input_ids=tokens_BT, use_cache=False).last_hidden_state
        return states


class SharedStates(nn.Module):
    """Hidden states of an actor's own network, for a value head on a shared backbone; has no weights of its own.

    `gradient` is the factor of the head's gradient into the network; 0 detaches the states. A context with `hidden`,
    the states that the actor computed for the same decisions, needs no forward pass.
    """

    def __init__(self, network: Any, gradient: float) -> None:
        super().__init__()
        # In a list, so that it is not a submodule: the actor owns the weights, saves them and is stepped with them.
        self.lent, self.gradient = [PretrainedStates(network)], gradient

    @property
    def width(self) -> int:
        """Size of a hidden state."""
        return self.lent[0].width

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the actor's weights."""
        return self.lent[0].dtype

    def before(self, context: Context) -> Tensor:
        """Returns the state before each token, [B, T, W]."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.gradient > 0):
            states = context["hidden"] if "hidden" in context else self.lent[0].before(context)
        return states.detach().lerp(states, self.gradient) if self.gradient else states.detach()


def layers_of(network: Any) -> list[nn.Module]:
    """Returns a network's layers; an empty list if it stores them in an unknown place."""
    found = vars(network)["_modules"].get("layers")
    return list(found) if isinstance(found, nn.ModuleList) else []


class Decoder:
    """Decodes left-padded rows token by token with the network's own cache; rows of one prompt share its prefill."""

    def __init__(self, actor: PretrainedActor, prompts: Sequence[Sequence[int]], repeats: Sequence[int]) -> None:
        self.actor, self.cache = actor, cast(Any, None)
        device, longest, pad = next(actor.parameters()).device, max(map(len, prompts)), actor.vocabulary.pad
        unused = torch.tensor([longest - len(prompt) for prompt in prompts], device=device)
        self.seen = torch.arange(longest, device=device) >= unused.unsqueeze(1)
        self.is_even = bool(self.seen.all())
        self.take(torch.tensor([[pad] * (longest - len(prompt)) + [*prompt] for prompt in prompts], device=device))
        self.keep(torch.repeat_interleave(torch.tensor(repeats, device=device)))

    def take(self, tokens_NK: Tensor) -> None:
        """Feeds K more tokens of each row; `seen` already counts them."""
        inputs: dict[str, Any] = {"input_ids": tokens_NK, "past_key_values": self.cache, "use_cache": True}
        if not self.is_even:
            inputs["attention_mask"] = self.seen.long()
            inputs["position_ids"] = (self.seen.long().cumsum(1) - 1).clamp(min=0)[:, -tokens_NK.shape[1] :]
        output = self.actor.network.base_model(**inputs)
        self.cache, self.hidden = output.past_key_values, output.last_hidden_state[:, -1]

    def logits(self) -> Tensor:
        """Returns logits [N, V] for the next token."""
        return self.actor.logits(self.hidden)

    def push(self, tokens: Tensor) -> None:
        """Appends one token to each row."""
        self.seen = nn.functional.pad(self.seen, (0, 1), value=True)
        self.take(tokens.unsqueeze(1))

    def keep(self, rows: Tensor) -> None:
        """Drops all rows but these."""
        self.cache.reorder_cache(rows)
        self.hidden, self.seen = self.hidden[rows], self.seen[rows]


@torch.no_grad()
def check_numbers(actor: PretrainedActor, name: str) -> None:
    """Raises AssayError if scoring or decoding differs from the network's own forward pass on six tokens."""
    ids = [7919 * place % actor.vocabulary.size for place in range(1, 7)]
    batch = text.written([ids[:1]] * 2, [ids[1:4], ids[1:]], torch.arange(2), actor.vocabulary.pad)
    with asking(f"the architecture of '{name}' does not fit"):
        decoder = actor.decoder([ids[:3], ids[:5]], [1, 2], 1)
        first = decoder.logits()
        own = actor.network(input_ids=torch.tensor([ids]), use_cache=False).logits[0].to(first.dtype).log_softmax(-1)
        decoder.keep(torch.tensor([2, 0]))
        decoder.push(torch.tensor([ids[5], ids[3]]))
        decoded = torch.cat([first, decoder.logits()]).log_softmax(-1)
        scored = actor.score(batch, frozenset({Need.LOGP})).logp[:, 1:]
    expected = own[torch.arange(5), ids[1:]] * batch.mask[:, 1:]
    gaps = [(decoded - own[[2, 4, 4, 5, 3]]).abs().max(), (scored - expected).abs().max()]
    gap = float(torch.stack([one.float() for one in gaps]).max())  # NaN if one is: Python's max may hide it
    broken = [] if math.isfinite(gap) else [key for key, one in actor.named_parameters() if not one.isfinite().all()]
    if broken:
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        raise AssayError(f"'{name}' has weights that are NaN or infinite: {broken[0]}{more}. Use an intact copy of it")
    is_low = next(actor.parameters()).dtype == torch.bfloat16
    if not gap <= (LARGEST_GAP_LOW if is_low else LARGEST_GAP):
        what = f"log-probabilities of '{name}' differ by {gap:.2g} from its own forward pass"
        raise AssayError(f"{what}: this architecture pads, caches or projects differently. Use another model")
