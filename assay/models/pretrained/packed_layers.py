"""Runs the layers of a pretrained network on packed rows: its own forward pass with another attention function.

Axes: N packed tokens, H heads, K heads of keys, E head size, W width.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.models.pretrained import routing
from assay.models.pretrained.description import attention_of
from assay.ops import packed_attention, packing
from assay.ops.attention import Attention

NAME = "packed_or_"
"""Prefix of our attention's name, before the name of the network's own, which still serves rows that are not packed."""
PLAN = "packed_plan_"
"""Prefix of the names under which our attention's arguments pass through the network."""
WITHOUT_EFFECT = {"dropout", "position_ids", "use_cache", "cache_position", "is_causal", "output_attentions"}
LARGEST_GAP, LARGEST_GAP_LOW = 1e-4, 0.05
"""Largest relative gap between states on packed and on separate rows: in float32, in bfloat16."""


def attention(
    before: Callable[..., Any], module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **options: Any
) -> Any:
    """Implements transformers' attention interface: calls `before`, or maps one packed row [1, H, N, E] and [1, K, N,
    E] to [1, N, H, E]. The layer's own arguments decide which, since gradient checkpointing may run a layer again
    after its network's forward pass.
    """
    plan = {name.removeprefix(PLAN): some for name, some in options.items() if name.startswith(PLAN)}
    if not plan:
        return before(module, query, key, value, mask, **options)
    narrow = value.dtype
    if torch.is_autocast_enabled(value.device.type):
        narrow = torch.get_autocast_dtype(value.device.type)
    heads = [some.squeeze(0).transpose(0, 1).to(narrow) for some in (query, key, value)]
    return packed_attention.attend(heads[0], heads[1], heads[2], asked(module, query, options), plan).unsqueeze(0), None


def asked(module: Any, query: Tensor, options: dict[str, Any]) -> Attention:
    """Returns what a layer's attention computes by its description; AssayError if the layer asks for anything else."""
    scaling = options.get("scaling")
    how = attention_of(module) or Attention(query.shape[-1] ** -0.5 if scaling is None else scaling)
    known = {"scaling": how.scale, "sliding_window": how.window, "softcap": how.cap}
    for name, some in options.items():
        if some is None or name in WITHOUT_EFFECT or name.startswith(PLAN):
            continue
        if some is not how.sinks and (isinstance(some, Tensor) or known.get(name) != some):
            raise AssayError(f"attention with {name}={some} does not support packed rows. Set packed=False")
    if how.window and options.get("sliding_window") is None:
        raise AssayError(f"attention does not use its window of {how.window}. Set packed=False")
    return how


def eager(module: Any, *heads: Tensor, **options: Any) -> Any:
    """Calls the attention of the network's own code."""
    return sys.modules[type(module).__module__].eager_attention_forward(module, *heads, **options)


def prepare(network: Any) -> bool:
    """Replaces the network's attention by ours; returns False if it is not one of transformers' own, or written out
    (eager) where there is a faster one.
    """
    library, config = require("transformers", "language"), network.base_model.config
    name = config._attn_implementation.removeprefix(NAME)
    known, masks = library.AttentionInterface._global_mapping, library.AttentionMaskInterface._global_mapping
    before = eager if name == "eager" and not network._supports_sdpa else known.get(name)
    if before is None or name not in masks:
        return False
    library.AttentionInterface.register(NAME + name, partial(attention, before))
    library.AttentionMaskInterface.register(NAME + name, masks[name])
    config._attn_implementation = NAME + name
    return True


def states(network: Any, tokens_N: Tensor, pack: packing.Pack, given_NE: Tensor | None = None) -> Tensor:
    """Returns the last hidden states [N, W]; with the experts that were given, see `routing`."""
    device, weight = tokens_N.device, network.get_output_embeddings().weight
    kind = device.type
    narrow = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
    config = network.base_model.config.get_text_config()
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    plan = packed_attention.plan(pack, packed_attention.is_fast(device, narrow, size), device)
    position = packed_attention.sent(pack.position_N, device)
    ready = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device)  # a placeholder, so that no mask of N x N is made
    found = network.base_model(
        input_ids=tokens_N.unsqueeze(0), position_ids=position.unsqueeze(0), attention_mask=ready, use_cache=False,
        **{PLAN + name: some for name, some in plan.items()}, **({} if given_NE is None else {routing.GIVEN: given_NE}),
    )  # fmt: skip
    return found.last_hidden_state.squeeze(0)


def can_pack(network: Any, num_words: int) -> bool:
    """Returns whether the network supports packed rows; if not, it is left unchanged, with a warning that says why."""
    config = network.base_model.config
    before = config._attn_implementation
    why = trouble(network, num_words) if prepare(network) else f"its attention '{before}' is not one of transformers'"
    if why:
        config._attn_implementation = before
        warnings.warn(f"rows are padded, not packed, for {type(network).__name__}: {why}", stacklevel=2)
    return not why


@torch.no_grad()
def trouble(network: Any, num_words: int) -> str:
    """Compares three packed rows, two of them with one prompt, with separate rows; returns what differs, empty if
    nothing does. Unsupported positions, windows or soft caps show up here, or raise.
    """
    device = next(network.parameters()).device
    words = torch.arange(1, 31).mul(7919).remainder(num_words).view(3, 10)
    words[1, :6] = words[0, :6]
    mask = torch.arange(10) >= torch.tensor([[6], [6], [3]])
    pack = packing.packed(words, mask, torch.tensor([0, 0, 1]))
    try:
        packed_NW = states(network, words.view(-1)[pack.token_N].to(device), pack)
    except (AssayError, TypeError, ValueError, AttributeError, RuntimeError, NotImplementedError) as error:
        return f"a trial raised {type(error).__name__}: {error}"
    own_BTW = network.base_model(input_ids=words[:, :-1].to(device), use_cache=False).last_hidden_state
    row, column = pack.place_D // 10, pack.place_D % 10 - 1
    gap = (packed_NW[pack.before_D.to(device)] - own_BTW[row.to(device), column.to(device)]).abs().max()
    share = float(gap / own_BTW.abs().max())
    limit = LARGEST_GAP_LOW if own_BTW.dtype in packed_attention.FAST else LARGEST_GAP
    return "" if share <= limit else f"its states differ by {share:.2g} of their largest number in a trial"
