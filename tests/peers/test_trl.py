"""TRL's own losses on the same tensors: from rewards to advantages, to the loss, to its gradient.

Theirs is computed by their trainers: `_generate_and_score_completions` scores given completions with given rewards, and
`_compute_loss` sees a model that answers with given log-probabilities. Ours is `probes.loss` of the recipe. At the end
both have one real network, with prompts of unequal lengths, and its parameters' gradients are compared.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from assay import recipes
from assay.claims import probes
from assay.core.recipe import Copy, Recipe
from assay.core.record import Experience
from assay.core.spaces import Vocabulary
from assay.models.pretrained.causal import PretrainedActor
from assay.parts.aggregations import SequenceMean
from assay.parts.credit.shaping import KlInReward
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.ratio import ProductRatio
from assay.parts.objectives.trust import Clip
from assay.parts.regularizers.divergence import EntropyBonus, KlToReference
from assay.rollouts import text
from tests.peers.gaps import LARGEST_GAP, Record, assert_all_equal, assert_equal, gap

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

SIZE, PAD, EOS, MEMBERS, LENGTH = 13, 11, 12, 4, 6
NUM_TOKENS = (6, 3, 1, 5, 2, 6, 4, 4)  # of two groups of four completions
REWARDS = torch.tensor([1.0, 0.0, 0.5, 0.0, 0.2, 0.9, 0.9, -1.0])
MASK = torch.arange(LENGTH) < torch.tensor(NUM_TOKENS).unsqueeze(1)
GROUP = torch.arange(8) // MEMBERS
KL, ENTROPY = 0.07, 0.02
COLUMNS = {"DPO": ("chosen", "rejected"), "SFT": ("completion",)}
"""What those of their trainers read that do not sample."""


def drawn(seed: int, spread: float = 1.0) -> Tensor:
    """Numbers of the batch's shape, 0 behind each completion's end."""
    return torch.randn(MASK.shape, generator=torch.Generator().manual_seed(seed)) * spread * MASK


LOGP = (-1.5 * MASK + drawn(1, 0.3)).clamp(max=0.0)
OLD = LOGP + drawn(2, 0.3)
REFERENCE = LOGP + drawn(3, 0.3)
ENTROPIES = (1.0 + drawn(4, 0.2)) * MASK


# ---------------------------------------------------------------------------------------------------- their side
@pytest.fixture(scope="module")
def trl() -> Any:
    """The peer; the tests are skipped where it is not installed."""
    pytest.importorskip("datasets", reason="the extra 'peers' is not installed")
    return pytest.importorskip("trl", minversion="1.16", reason="the extra 'peers' is not installed")


def network() -> Any:
    """A small random Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=SIZE, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=EOS, pad_token_id=PAD,
            initializer_range=0.3,
        )
    )  # fmt: skip


def trainer(trl: Any, kind: str, folder: Path, **settings: Any) -> Any:
    """Their trainer of this kind on the processor, in training mode, with one batch a generation."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    inner = Tokenizer(models.WordLevel({f"w{k}": k for k in range(PAD)} | {"<pad>": PAD, "<eos>": EOS}, "w2"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")
    columns = {"prompt": ["w1"] * 8} | {name: ["w2"] * 8 for name in COLUMNS.get(kind, ())}
    network().save_pretrained(folder / "network")  # they load the reference from where the model came from
    model = AutoModelForCausalLM.from_pretrained(folder / "network", dtype=torch.float32)
    given: dict[str, Any] = {"model": model, "train_dataset": Dataset.from_dict(columns)}
    if kind not in COLUMNS:
        given["reward_funcs"] = lambda completions, **rest: [0.0] * len(completions)
        settings = {"num_generations": MEMBERS, "max_completion_length": LENGTH} | settings
    options = {"per_device_train_batch_size": 8, "bf16": False, "use_cpu": True, "report_to": [], **settings}
    config = getattr(trl, f"{kind}Config")(output_dir=str(folder), **options)
    made = getattr(trl, f"{kind}Trainer")(args=config, processing_class=tokenizer, **given)
    made.current_gradient_accumulation_steps = 1  # what their training loop sets
    made.model.train()
    return made


@dataclass
class Answers:
    """Stands where their model does: answers with given numbers, as their fused output layer does."""

    logp: Tensor
    entropy: Tensor = ENTROPIES

    def __call__(self, **inputs: Any) -> Any:
        """One prompt token, so that the columns are the completion's; 0 where there is no label."""
        zeros = torch.zeros_like(self.logp)
        logp = self.logp.masked_fill(inputs["labels"][:, 1:] == -100, 0.0)
        return SimpleNamespace(log_probs=logp, entropy=self.entropy, mean_logits=zeros, is_top1=zeros > 0)


def scored(theirs: Any, prompts: list[list[int]], completions: list[list[int]]) -> dict[str, Any]:
    """Their inputs to the loss, for given completions and REWARDS: masks, counts and advantages are their own."""
    is_rloo = type(theirs).__name__.startswith("RLOO")
    texts = [""] * len(completions)
    made = (prompts, completions, texts) if is_rloo else (prompts, completions, None, texts, None, {}, None, None)
    theirs._generate = lambda prompts: made
    theirs._calculate_rewards = lambda *batch: REWARDS.unsqueeze(1)
    inputs = theirs._generate_and_score_completions([{"prompt": "w1"} for _ in completions])
    return dict(inputs)


def their_loss(theirs: Any, logp: Tensor) -> tuple[Tensor, Tensor]:
    """Their loss of log-probabilities that we choose, and the advantages [B] that went into it."""
    asked = theirs._get_per_token_logps_and_entropies
    if theirs.beta:
        theirs._get_per_token_logps_and_entropies = lambda model, *rest, **more: (
            OLD if model is theirs.model else REFERENCE, None, None
        )  # fmt: skip
    inputs = scored(theirs, [[1]] * 8, [list(range(2, 2 + num)) for num in NUM_TOKENS])
    theirs._get_per_token_logps_and_entropies = asked
    assert torch.equal(inputs["completion_mask"].bool(), MASK)
    inputs |= {"old_per_token_logps": OLD, "old_logps": (OLD * MASK).sum(1), "ref_per_token_logps": REFERENCE}
    return theirs.compute_loss(Answers(logp), inputs), inputs["advantages"]


# ---------------------------------------------------------------------------------------------------- our side
def experience(mask: Tensor = MASK) -> Experience:
    """The same completions as a record."""
    last = text.is_last_true(mask)
    return Experience(
        context={}, action=torch.zeros_like(mask, dtype=torch.long), mask=mask, logp=OLD,
        reward=REWARDS.unsqueeze(1) * last, terminal=last, truncated=torch.zeros_like(mask), group=GROUP,
    )  # fmt: skip


def with_kl_and_entropy(recipe: Recipe) -> Recipe:
    """KL to the reference weighed as the loss is, entropy as a mean over tokens."""
    terms = (KlToReference(KL, aggregate=SequenceMean()), EntropyBonus(ENTROPY))
    stage = replace(recipe.stages[0], regularizers=terms)
    return replace(recipe, stages=(stage,), copies={"reference": Copy(of="actor")})


def clipped_rloo() -> Recipe:
    """RLOO as TRL has it: the whole completion's ratio, clipped; the KL in the reward."""
    objective = PolicyGradient(ProductRatio(), Clip(0.2, 0.2), SequenceMean())
    recipe = recipes.rloo()
    stage = replace(recipe.stages[0], objective=(objective,))
    credit = (KlInReward(KL), *recipe.credit)
    return replace(recipe, stages=(stage,), credit=credit, copies={"reference": Copy(of="actor")})


CASES: dict[str, tuple[Callable[[], Recipe], str, dict[str, Any]]] = {
    "grpo": (recipes.grpo, "GRPO", {"loss_type": "grpo"}),
    "grpo with KL and entropy": (
        lambda: with_kl_and_entropy(recipes.grpo()), "GRPO",
        {"loss_type": "grpo", "beta": KL, "use_bias_correction_kl": False, "entropy_coef": ENTROPY},
    ),
    "dr_grpo": (lambda: recipes.dr_grpo(length=LENGTH), "GRPO", {"loss_type": "dr_grpo", "scale_rewards": "none"}),
    "dapo": (recipes.dapo, "GRPO", {"loss_type": "dapo", "epsilon_high": 0.28}),
    "gspo": (
        recipes.gspo, "GRPO",
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
    ),
    "gspo, wide": (
        lambda: recipes.gspo().set("trust.low", 0.1).set("trust.high", 0.1), "GRPO",
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.1},
    ),
    "cispo": (recipes.cispo, "GRPO", {"loss_type": "cispo", "epsilon_high": 5.0}),
    "cispo, tight": (lambda: recipes.cispo().set("trust.high", 0.1), "GRPO", {"loss_type": "cispo",
    "epsilon_high": 1.1}),
    "sapo": (recipes.sapo, "GRPO", {"loss_type": "sapo"}),
    "rloo, clipped": (clipped_rloo, "RLOO", {"beta": KL}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_from_rewards_are_those_of_trl(
    trl: Any, name: str, tmp_path: Path, record_property: Record
) -> None:
    make, kind, settings = CASES[name]
    recipe, theirs = make(), trainer(trl, kind, tmp_path, **{"beta": 0.0, **settings})
    logp, their_logp = (LOGP.clone().requires_grad_() for _ in range(2))
    reference = REFERENCE if settings.get("beta") else None
    probe = probes.loss(recipe, experience(), logp, logp_ref=reference, entropy=ENTROPIES)
    their_value, advantage = their_loss(theirs, their_logp)
    assert_equal("advantage", probe.experience.column("advantage")[:, 0], advantage, record_property)
    assert_equal("loss", probe.loss, their_value, record_property)
    slopes = [torch.autograd.grad(*pair)[0] for pair in ((probe.loss, logp), (their_value, their_logp))]
    assert_equal("gradient", *slopes, record_property)
    assert (probe.means["clipped"] > 0) == (name not in ("cispo", "sapo")), "the clip is to be on both sides"
    if name in ("grpo", "dr_grpo", "dapo"):
        assert probe.means["clipped"] == pytest.approx(theirs._metrics["train"]["clip_ratio/region_mean"][-1])


def test_rloo_on_policy_has_the_gradient_of_trl_and_another_value(
    trl: Any, tmp_path: Path, record_property: Record
) -> None:
    """Theirs is -mean A * ratio, ours -mean A * log pi: one gradient at ratio one."""
    theirs = trainer(trl, "RLOO", tmp_path, beta=0.0)
    their_logp = OLD.clone().requires_grad_()
    (their_slope,) = torch.autograd.grad(their_loss(theirs, their_logp)[0], their_logp)
    ours = -probes.decision_weights(recipes.rloo(), experience(), OLD)
    assert_equal("gradient", ours, their_slope, record_property)


def pairs() -> tuple[Experience, list[int]]:
    """Rows 2i and 2i + 1 are chosen and rejected; and the order in which TRL stacks them."""
    chosen = torch.tensor([1.0, -1.0] * 4)
    record = replace(experience(), group=torch.arange(8) // 2).add({"chosen": chosen})
    return record, [0, 2, 4, 6, 1, 3, 5, 7]


def test_dpo_loss_and_gradient_are_those_of_trl(trl: Any, tmp_path: Path, record_property: Record) -> None:
    theirs = trainer(trl, "DPO", tmp_path, beta=0.3)
    record, order = pairs()
    logp, their_logp = (LOGP.clone().requires_grad_() for _ in range(2))
    probe = probes.loss(recipes.dpo(beta=0.3), record, logp, logp_ref=REFERENCE)
    theirs.ref_model = Answers(REFERENCE[order])
    mask = torch.nn.functional.pad(MASK[order].long(), (1, 0))
    inputs = {"input_ids": torch.ones_like(mask), "attention_mask": torch.ones_like(mask), "completion_mask": mask}
    their_value = theirs.compute_loss(Answers(their_logp[order]), inputs)
    assert_equal("loss", probe.loss, their_value, record_property)
    slopes = [torch.autograd.grad(*pair)[0] for pair in ((probe.loss, logp), (their_value, their_logp))]
    assert_equal("gradient", *slopes, record_property)


# ---------------------------------------------------------------------------------------------------- where they differ
def test_trl_divides_by_rows_that_were_masked_and_assay_does_not(
    trl: Any, tmp_path: Path, record_property: Record
) -> None:
    """A completion without tokens to learn from: the only difference is the count, 8 rows against 7."""
    theirs = trainer(trl, "GRPO", tmp_path, loss_type="grpo", beta=0.0)
    mask = MASK.clone()
    mask[5] = False
    advantage = probes.credited(recipes.grpo(), experience()).column("advantage")
    inputs = {
        "prompt_ids": torch.ones(8, 1).long(), "prompt_mask": torch.ones(8, 1).long(),
        "completion_ids": torch.ones_like(mask).long(), "completion_mask": mask.long(), "advantages": advantage[:, 0],
        "old_per_token_logps": OLD, "num_items_in_batch": mask.sum(),
    }  # fmt: skip
    their_value = theirs.compute_loss(Answers(LOGP), inputs)
    probe = probes.loss(recipes.grpo(), experience(mask).add({"advantage": advantage * mask}), LOGP)
    assert_equal("loss x 7/8", probe.loss * 7 / 8, their_value, record_property)


def test_trl_compares_with_rows_that_were_masked_and_assay_does_not(
    trl: Any, tmp_path: Path, record_property: Record
) -> None:
    """Their masked completion still is in its group's mean and deviation; ours has left its group."""
    theirs = trainer(trl, "GRPO", tmp_path, loss_type="grpo", beta=0.0, mask_truncated_completions=True)
    endings = [[*range(1, num), 2 if row == 5 else EOS] for row, num in enumerate(NUM_TOKENS)]
    inputs = scored(theirs, [[1]] * 8, endings)
    mask = inputs["completion_mask"].bool()
    assert mask.any(1).tolist() == [row != 5 for row in range(8)]
    whole, left = (probes.credited(recipes.grpo(), experience(one)).column("advantage") for one in (MASK, mask))
    assert_equal("advantage with all rows", whole[:, 0], inputs["advantages"], record_property)
    assert gap(left[:4, 0], inputs["advantages"][:4]) <= LARGEST_GAP
    assert gap(left[4:, 0], inputs["advantages"][4:]) > 0.1


# ---------------------------------------------------------------------------------------------------- one real network
PROMPTS = [[1, 4, 7]] * MEMBERS + [[5]] * MEMBERS
COMPLETIONS = [[(3 * row + k) % PAD for k in range(num)] for row, num in enumerate(NUM_TOKENS)]


def actor_of(module: Any) -> Any:
    """Our actor around a copy of their network, without their fused output layer."""

    own = network()
    own.load_state_dict(module.state_dict())
    return PretrainedActor(Vocabulary(SIZE, pad=PAD, bos=EOS, eos=EOS), own.eval())


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo", "gspo, wide", "cispo", "sapo"])
def test_gradient_of_a_real_network_is_that_of_trl(
    trl: Any, name: str, tmp_path: Path, record_property: Record
) -> None:
    """Theirs pads prompts in front and completions behind, ours the whole row behind."""
    make, kind, settings = CASES[name]
    recipe, theirs = make(), trainer(trl, kind, tmp_path, **{"beta": 0.0, **settings})
    inputs = scored(theirs, PROMPTS, COMPLETIONS)
    record = text.written(PROMPTS, COMPLETIONS, GROUP, PAD)
    old = torch.zeros_like(record.logp)
    with torch.no_grad():
        now = actor_of(theirs.model).score(record, frozenset()).logp
    old[record.mask] = now[record.mask] + drawn(2, 0.3)[MASK]
    their_old = torch.zeros(MASK.shape)
    their_old[MASK] = old[record.mask]
    reward = REWARDS.unsqueeze(1) * record.terminal
    ours = probes.gradient(recipe, replace(record, logp=old, reward=reward), actor_of(theirs.model))
    theirs.compute_loss(theirs.model, inputs | {"old_per_token_logps": their_old}).backward()
    slopes = {f"network.{key}": value.grad for key, value in theirs.model.named_parameters()}
    assert_all_equal("gradient", ours, slopes, record_property)


def test_dpo_gradient_of_a_real_network_is_that_of_trl(trl: Any, tmp_path: Path, record_property: Record) -> None:
    theirs = trainer(trl, "DPO", tmp_path, beta=0.3)
    other = copy.deepcopy(theirs.model.state_dict())
    theirs.ref_model.load_state_dict({name: value + 0.05 * torch.randn_like(value) for name, value in other.items()})
    _, order = pairs()
    record = text.written(PROMPTS, COMPLETIONS, torch.arange(8) // 2, PAD)
    record = record.add({"chosen": torch.tensor([1.0, -1.0] * 4)})
    models = {"reference": actor_of(theirs.ref_model)}
    ours = probes.gradient(recipes.dpo(beta=0.3), record, actor_of(theirs.model), models=models)
    inputs = {"input_ids": record.context["tokens"][order], "attention_mask": record.context["valid"][order].long()}
    theirs.compute_loss(theirs.model, inputs | {"completion_mask": record.mask[order].long()}).backward()
    slopes = {f"network.{key}": value.grad for key, value in theirs.model.named_parameters()}
    assert_all_equal("gradient", ours, slopes, record_property)


def test_sft_gradient_of_a_real_network_is_that_of_trl(trl: Any, tmp_path: Path, record_property: Record) -> None:
    theirs = trainer(trl, "SFT", tmp_path)
    record = text.written(PROMPTS, COMPLETIONS, GROUP, PAD)
    ours = probes.gradient(recipes.sft(), record, actor_of(theirs.model))
    tokens, valid = record.context["tokens"], record.context["valid"]
    inputs = {"input_ids": tokens, "attention_mask": valid.long(), "labels": tokens.masked_fill(~record.mask, -100)}
    theirs.compute_loss(theirs.model, inputs).backward()
    slopes = {f"network.{key}": value.grad for key, value in theirs.model.named_parameters()}
    assert_all_equal("gradient", ours, slopes, record_property)
