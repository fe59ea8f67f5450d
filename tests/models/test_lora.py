"""LoRA adapters: only they are trained and saved, the network below is one for actor, reference and sampler, and every
number is that of peft's own forward pass.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay import recipes
from assay.claims.laws.actor import check_actor
from assay.cli import main as cli
from assay.core.errors import AssayError
from assay.core.recipe import Copy
from assay.core.record import Draw, Experience, Need, Outcome, Score
from assay.core.spaces import Vocabulary
from assay.decoding import fast
from assay.decoding.layers import products, stack_of
from assay.decoding.pages import Way
from assay.decoding.scheduler import Sampler
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.models.pretrained.adapters import Lora
from assay.models.pretrained.transformers import Pretrained, export
from assay.ops import random
from assay.parts.regularizers.divergence import KlToReference
from assay.parts.rollouts.episodes import Episodes
from assay.runs import catalogue, run
from assay.runs.options import CadenceOptions, RunOptions
from assay.runs.progress import Mode
from assay.tasks.adapters.pretrained import with_model
from assay.tasks.language.addition import Addition, addition
from assay.tasks.language.items import Item
from assay.tasks.language.prompts import PromptTask
from tests.optional import Optional

transformers = Optional("transformers")
tokenizers = Optional("tokenizers")
peft = Optional("peft")

SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16,
    "num_key_value_heads": 2, "max_position_embeddings": 96, "initializer_range": 0.3,
}  # fmt: skip
LORA = Lora(rank=3, alpha=6.0)
LOGP = frozenset({Need.LOGP})
PROMPTS = [[5, 6, 7], [8, 9, 10, 11, 12, 13], [30]]
NEW = 16


def save_model(folder: Path, kind: str) -> str:
    """A tiny random network with a tokenizer of bytes."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=270, special_tokens=["<pad>", "<s>", "</s>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    made.train_from_iterator(["12+34=46"], trainer)
    named = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, **named).save_pretrained(folder)
    torch.manual_seed(1)
    config = getattr(transformers, f"{kind}Config")(vocab_size=made.get_vocab_size(), **SIZES)
    getattr(transformers, f"{kind}ForCausalLM")(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    base = tmp_path_factory.mktemp("models")
    return {kind: save_model(base / kind, kind) for kind in ("Llama", "Qwen3", "Qwen2")}


@pytest.fixture(params=["Llama", "Qwen3", "Qwen2"])
def path(request: pytest.FixtureRequest, paths: dict[str, str]) -> str:
    return paths[request.param]


class EvenLength(Addition):
    """Pays for completions of even length, so that a random model sees both outcomes."""

    def verify(self, item: Item, completion: str) -> Outcome:
        return Score(float(len(completion) % 2 == 0))


@cache
def task_of(path: str) -> PromptTask:
    made = with_model(addition(1), path)
    assert isinstance(made, PromptTask)
    return replace(made, items=EvenLength(), max_tokens=6)


def stirred(network: Any) -> Any:
    """The network with adapters that do something: their second matrices are 0 when they are new."""
    generator = torch.Generator().manual_seed(7)
    for name, weight in network.named_parameters():
        if ".lora_B." in name:
            weight.data.copy_(0.1 * torch.randn(weight.shape, generator=generator))
    return network


def actor_of(path: str, lora: Lora = LORA, task: PromptTask | None = None) -> Any:
    torch.manual_seed(3)
    actor = Pretrained(path, lora=lora).build((task or task_of(path)).spec)
    stirred(actor.network)
    return actor


def patterned(path: str) -> Any:
    """An actor with two adapters at once, of ranks that differ from layer to layer, another scaling and a dropout."""
    actor = Pretrained(path).build(task_of(path).spec)
    config = peft.LoraConfig(
        r=2, lora_alpha=7, target_modules=["q_proj", "v_proj", "down_proj"], lora_dropout=0.5, use_rslora=True,
        rank_pattern={"layers.1.self_attn.v_proj": 5}, alpha_pattern={"down_proj": 3},
    )  # fmt: skip
    peft.inject_adapter_in_model(config, actor.network)
    other = peft.LoraConfig(r=1, target_modules=["q_proj", "up_proj"])
    with pytest.warns(UserWarning, match="multiple adapters"):
        peft.inject_adapter_in_model(other, actor.network, "second")
    for module in actor.network.modules():
        if isinstance(module, peft.tuners.lora.Linear):
            module.set_adapter(["default", "second"])
    stirred(actor.network.eval())
    return actor


def sampler_of(actor: Any) -> Sampler:
    stack = stack_of(actor)
    assert stack is not None
    return Sampler(stack, rows=8, pages=60, longest=40, page=4, interval=4)


def sampled(actor: Any, sampler: Sampler, greedy: bool = False) -> tuple[Any, Any, Any]:
    places = np.arange(NEW)[None], np.repeat(np.arange(3), 2)[:, None], np.tile(np.arange(2), 3)[:, None]
    uniform = random.as_open_float32(random.uniform(Draw(3), places[1], places[2], places[0]))
    found = sampler.sample(PROMPTS, [2] * 3, None if greedy else uniform, torch.full((6,), NEW), Way(2))
    return found.tokens, found.logp, found.length


def expected(network: Any, prompt: list[int], tokens: Any) -> Any:
    whole = torch.cat([torch.tensor(prompt, device=tokens.device), tokens])
    logp = network(whole.unsqueeze(0)).logits[0].log_softmax(-1)[len(prompt) - 1 : -1]
    return logp.gather(1, tokens.unsqueeze(1)).squeeze(1)


def assert_same_logp(mine: Any, theirs: Any) -> None:
    """To five digits of the largest one: logits are rounded on their own scale, however likely a token is."""
    torch.testing.assert_close(mine, theirs, atol=1e-5 * max(1.0, float(theirs.abs().max())), rtol=0)


# ---------------------------------------------------------------------------------------------------- sampling
@pytest.mark.parametrize("make", [actor_of, patterned])
@torch.no_grad()
def test_sampled_log_probabilities_are_those_of_peft(path: str, make: Any) -> None:
    actor = make(path)
    plain = Pretrained(path).build(task_of(path).spec).network
    tokens, logp, length = sampled(actor, sampler_of(actor))
    gaps = []
    for row in range(6):
        mine = tokens[row, : length[row]]
        theirs = expected(actor.network, PROMPTS[row // 2], mine)
        assert_same_logp(logp[row, : length[row]], theirs)
        gaps.append(float((theirs - expected(plain, PROMPTS[row // 2], mine)).abs().max()))
    assert max(gaps) > 0.1, "the adapters do something"


@pytest.mark.parametrize("make", [actor_of, patterned])
@torch.no_grad()
def test_the_likeliest_text_is_that_of_generate(path: str, make: Any) -> None:
    actor = make(path)
    tokens, _, length = sampled(actor, sampler_of(actor), greedy=True)
    for row, prompt in enumerate(PROMPTS):
        ids = torch.tensor([prompt])
        options = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": 2, "pad_token_id": 0}
        generated = actor.network.generate(ids, attention_mask=torch.ones_like(ids), **options)
        assert tokens[2 * row, : length[2 * row]].tolist() == generated[0, len(prompt) :].tolist()


@torch.no_grad()
def test_an_update_is_seen_by_the_next_sampling(path: str) -> None:
    actor = actor_of(path)
    sampler = sampler_of(actor)
    held = {id(one.module.q_proj.base_layer.weight) for one in sampler.stack.of_heads}  # type: ignore[attr-defined]
    assert held <= {id(weight) for weight in actor.parameters()}, "the weights are the trainer's"
    before = sampled(actor, sampler)
    for weight in actor.parameters():
        if weight.requires_grad:
            weight.mul_(1.5)
    tokens, logp, length = sampled(actor, sampler)
    assert not torch.equal(logp, before[1])
    for row in range(6):
        mine = tokens[row, : length[row]]
        assert_same_logp(logp[row, : length[row]], expected(actor.network, PROMPTS[row // 2], mine))


@torch.no_grad()
def test_adapters_that_are_off_or_merged_add_nothing(paths: dict[str, str]) -> None:
    actor = actor_of(paths["Llama"])
    identity = sampler_of(actor).stack.identity
    assert identity == sampler_of(actor).stack.identity
    for change in ("enable_adapters", "merge"):
        for module in actor.network.modules():
            if isinstance(module, peft.tuners.lora.Linear):
                module.enable_adapters(change == "merge")
                module.merge() if change == "merge" else None
        sampler = sampler_of(actor)
        assert sampler.stack.identity != identity, "steps that were recorded are not used again"
        tokens, logp, length = sampled(actor, sampler)
        theirs = expected(actor.network, PROMPTS[0], tokens[0, : length[0]])
        assert_same_logp(logp[0, : length[0]], theirs)


@torch.no_grad()
def test_matrices_that_follow_each_other_are_one_product_below_adapters(paths: dict[str, str]) -> None:
    actor = actor_of(paths["Qwen3"])
    attention = actor.network.model.layers[0].self_attn
    linears = [attention.q_proj, attention.k_proj, attention.v_proj]
    state = torch.randn(4, 32)
    apart = [linear(state) for linear in linears]
    whole = torch.cat([linear.base_layer.weight for linear in linears])
    for linear, part in zip(linears, whole.split([64, 32, 32]), strict=True):
        linear.base_layer.weight.data = part
    before = torch.nn.functional.linear
    seen: list[int] = []
    torch.nn.functional.linear = lambda inner, weight, *rest: seen.append(len(weight)) or before(inner, weight, *rest)  # type: ignore[func-returns-value]
    try:
        together = products(state, *linears)
    finally:
        torch.nn.functional.linear = before
    assert seen == [128], "one product"
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-5)


def odd_actor(path: str, settings: dict[str, Any], training: bool = False) -> Any:
    actor = Pretrained(path).build(task_of(path).spec)
    peft.inject_adapter_in_model(peft.LoraConfig(r=2, **({"target_modules": ["q_proj"]} | settings)), actor.network)
    actor.network.train(training)
    return actor


@pytest.mark.parametrize(
    ("settings", "training"),
    [
        ({"use_dora": True}, False),
        ({"lora_bias": True}, False),
        ({"target_modules": ["lm_head"]}, False),
        ({"lora_dropout": 0.5}, True),
    ],
)
def test_adapters_of_another_kind_are_left_to_the_networks_own_cache(
    paths: dict[str, str], settings: dict[str, Any], training: bool
) -> None:
    assert stack_of(odd_actor(paths["Qwen2"], {})) is not None
    assert stack_of(odd_actor(paths["Qwen2"], settings, training)) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="recorded steps need a GPU")
@torch.no_grad()
def test_recorded_steps_see_updates_and_are_recorded_anew_for_other_adapters(path: str) -> None:
    actor, words = actor_of(path).cuda(), task_of(path).spec.action
    assert isinstance(words, Vocabulary)
    uniform = torch.rand(6, NEW, generator=torch.Generator().manual_seed(5))
    samplers = []
    for change in ("nothing", "an update", "another scaling"):
        for module in actor.network.modules():
            if isinstance(module, peft.tuners.lora.Linear) and change == "an update":
                module.lora_B["default"].weight.mul_(1.5)
            if isinstance(module, peft.tuners.lora.Linear) and change == "another scaling":
                module.set_scale("default", 3.0)
        for greedy in (False, True):
            found = fast.sampled(actor, PROMPTS, [2] * 3, None if greedy else uniform, words, NEW)
            assert found is not None
            for row, length in enumerate(found.length.tolist()):
                theirs = expected(actor.network, PROMPTS[row // 2], found.tokens[row, :length].cuda()).cpu()
                torch.testing.assert_close(found.logp[row, :length], theirs, atol=1e-4, rtol=0)
        samplers.append(actor.sampler.held)
    assert samplers[0] is samplers[1]
    assert samplers[1] is not samplers[2]


# ---------------------------------------------------------------------------------------------------- training
def test_gradient_is_that_of_peft(path: str) -> None:
    task = task_of(path)
    actor, batch = actor_of(path, task=task).double(), task.demonstrate(np.arange(5), 0)
    adapters = {name: weight for name, weight in actor.named_parameters() if weight.requires_grad}
    assert len(adapters) == 2 * 7 * 2
    assert all(".lora_" in name for name in adapters)
    weight = torch.linspace(-1.0, 1.0, batch.mask.numel(), dtype=torch.float64).view(batch.mask.shape)
    ours = torch.autograd.grad((actor.score(batch, LOGP).logp * weight).sum(), list(adapters.values()))
    tokens = batch.context["tokens"]
    logp = actor.network(input_ids=tokens, attention_mask=batch.context["valid"].long()).logits.log_softmax(-1)
    chosen = logp[:, :-1].gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
    theirs = torch.autograd.grad((chosen * batch.mask[:, 1:] * weight[:, 1:]).sum(), list(adapters.values()))
    assert all(bool(gradient.any()) for gradient in ours)
    torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-6)


def test_it_obeys_the_laws_of_an_actor(path: str) -> None:
    task = task_of(path)
    assert [str(one) for one in check_actor(actor_of(path, task=task), task.spec) if not one.held] == []


def recipe_of(path: str) -> Any:
    made = replace(recipes.grpo(), actor=Pretrained(path, lora=LORA), rollout=Episodes(num_starts=4, group_size=4))
    stage = replace(made.stages[0], regularizers=(KlToReference(),))
    return replace(made, stages=(stage,), copies={"reference": Copy(of="actor")})


def loop_of(path: str) -> Loop:
    return Loop(recipe_of(path), task_of(path), seed=0, num_steps=3)


def test_a_step_changes_adapters_alone(path: str) -> None:
    loop = loop_of(path)
    before = {name: weight.clone() for name, weight in loop.actor.named_parameters()}
    for _ in range(2):  # A has no gradient before B has moved
        step = loop.step()
        assert step.alarms == []
        assert step.metrics["gradient_norm/policy"] > 0
    moved = {name for name, weight in loop.actor.named_parameters() if not torch.equal(weight, before[name])}
    assert moved == {name for name in before if ".lora_" in name}
    first = loop.engine.optimizers["policy"]["first"]
    assert sum(each.numel() for each in first) == sum(before[name].numel() for name in moved)


def test_the_reference_is_the_network_below_and_shares_its_weights(path: str) -> None:
    loop = loop_of(path)
    loop.step()
    actor, reference = loop.engine.models["actor"], loop.engine.models["reference"]
    pairs = list(zip(actor.named_parameters(), reference.parameters(), strict=True))
    shared = {name for (name, mine), theirs in pairs if mine.data_ptr() == theirs.data_ptr()}
    assert shared == {name for (name, _), _ in pairs if ".lora_" not in name}
    batch = task_of(path).demonstrate(np.arange(3), 0)
    plain = Pretrained(path).build(task_of(path).spec)
    torch.testing.assert_close(reference.score(batch, LOGP).logp, plain.score(batch, LOGP).logp, atol=0, rtol=0)
    assert not torch.equal(actor.score(batch, LOGP).logp, plain.score(batch, LOGP).logp)
    assert not any(weight.requires_grad for weight in reference.parameters())


def test_a_restored_loop_goes_on_bitwise_and_saves_adapters_alone(path: str) -> None:
    first, second = loop_of(path), loop_of(path)
    first.step()
    state = first.snapshot()
    assert all(".lora_" in name for model in state["engine"]["models"].values() for name in model)
    second.restore(state)
    first.step()
    second.step()
    for name, value in first.actor.state_dict().items():
        assert torch.equal(value, second.actor.state_dict()[name]), name


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the sampler decodes on a GPU")
@pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated:DeprecationWarning")  # by torch.compile itself
@pytest.mark.parametrize(
    ("dtype", "how"),
    [("float32", {}), ("bfloat16", {}), ("float32", {"recompute": True}), ("float32", {"compiled": True})],
)
def test_on_a_gpu_the_sampler_decodes_with_the_adapters_that_are_trained(
    paths: dict[str, str], dtype: str, how: dict[str, bool]
) -> None:
    recipe = recipe_of(paths["Qwen3"])
    recipe = replace(recipe, actor=replace(recipe.actor, dtype=dtype)).set("learning_rate", 0.01)
    loop = Loop(recipe, task_of(paths["Qwen3"]), seed=0, num_steps=3, placement=Placement("cuda", **how))
    for _ in range(3):  # a guard compares sampled with trained log-probabilities
        assert loop.step().alarms == []
    assert loop.actor.sampler.held is not None
    assert any(bool(weight.any()) for name, weight in loop.actor.named_parameters() if ".lora_B." in name)


def test_in_bfloat16_adapters_have_masters_and_the_rest_has_none(paths: dict[str, str]) -> None:
    recipe = recipe_of(paths["Llama"])
    recipe = replace(recipe, actor=replace(recipe.actor, dtype="bfloat16"))
    loop = Loop(recipe, task_of(paths["Llama"]), seed=0, num_steps=2)
    assert {weight.dtype for weight in loop.actor.parameters()} == {torch.bfloat16}
    loop.step()
    masters = loop.engine.optimizers["policy"]["master"]
    assert [master.dtype for master in masters] == [torch.float32]
    assert masters[0].numel() == sum(weight.numel() for weight in loop.actor.parameters() if weight.requires_grad)
    assert stack_of(loop.actor) is not None


# ---------------------------------------------------------------------------------------------------- files
def scores_of(actor: Any, batch: Experience) -> torch.Tensor:
    with torch.no_grad():
        return actor.score(batch, LOGP).logp  # type: ignore[no-any-return]


def test_from_the_command_line_to_a_folder_that_peft_loads(
    paths: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, out, target = paths["Qwen3"], tmp_path / "run", tmp_path / "adapter"
    words = f"train grpo --task addition-1 --steps 2 --out {out} --model {base} --device cpu"
    words += " --set lora.rank=3 --set lora.alpha=6 --set learning_rate=0.01"
    words += " --set rollout.num_starts=2 --set rollout.group_size=2"
    assert cli.main(words.split()) == 0
    assert cli.main(["export", str(out), str(target)]) == 0
    assert "after 2 steps" in capsys.readouterr().out
    assert cli.main(["export", str(out), str(target)]) == 2
    policy, plan, _ = run.load(out)
    assert json.loads((target / "adapter_config.json").read_text())["base_model_name_or_path"] == base
    batch = plan.task.demonstrate(np.arange(3), 0)
    theirs = peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(base), target).eval()
    tokens = batch.context["tokens"]
    logp = theirs(tokens, attention_mask=batch.context["valid"].long()).logits.log_softmax(-1)
    chosen = logp[:, :-1].gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1).detach()
    mask = batch.mask[:, 1:]
    torch.testing.assert_close(scores_of(policy, batch)[:, 1:][mask], chosen[mask], atol=1e-5, rtol=0)
    again = Pretrained(str(target)).build(with_model(addition(1), str(target)).spec)
    torch.testing.assert_close(scores_of(again, batch), scores_of(policy, batch), atol=1e-6, rtol=0)
    assert {name for name, weight in again.named_parameters() if weight.requires_grad} == {
        name for name, weight in policy.named_parameters() if ".lora_" in name
    }


def test_a_whole_model_is_exported_as_one(paths: dict[str, str], tmp_path: Path) -> None:
    model = Pretrained(paths["Llama"])
    actor, batch = model.build(task_of(model.path).spec), task_of(model.path).demonstrate(np.arange(3), 0)
    export(actor, model, tmp_path / "whole")
    task = with_model(addition(1), str(tmp_path / "whole"))
    torch.testing.assert_close(
        scores_of(Pretrained(str(tmp_path / "whole")).build(task.spec), batch), scores_of(actor, batch)
    )
    small = catalogue.recipe_for("grpo", catalogue.find_task("addition-1"), {}).actor
    with pytest.raises(AssayError, match="not a network of transformers"):
        export(small.build(addition(1).spec), small, tmp_path / "small")


def saved_adapter(folder: Path, base: str, **settings: Any) -> Path:
    network = transformers.AutoModelForCausalLM.from_pretrained(base)
    config = peft.LoraConfig(**({"r": 2, "target_modules": ["q_proj"]} | settings))
    peft.get_peft_model(network, config).save_pretrained(folder)
    return folder


def edited(folder: Path, **changes: Any) -> Path:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return folder


@pytest.mark.filterwarnings("ignore:Model has .tie_word_embeddings")  # peft 0.18 says so of any output layer
def test_adapters_that_cannot_be_trained_are_refused(paths: dict[str, str], tmp_path: Path) -> None:
    base, spec = paths["Llama"], task_of(paths["Llama"]).spec

    def refusal(folder: Path, **settings: Any) -> str:
        with pytest.raises(AssayError) as caught:
            Pretrained(str(folder), **settings).build(spec)
        return str(caught.value)

    assert "modules_to_save" in refusal(saved_adapter(tmp_path / "a", base, modules_to_save=["lm_head"]))
    assert "with bias 'all'" in refusal(saved_adapter(tmp_path / "b", base, bias="all"))
    assert "type IA3" in refusal(edited(saved_adapter(tmp_path / "c", base), peft_type="IA3"))
    assert "name its base model" in refusal(edited(saved_adapter(tmp_path / "d", base), base_model_name_or_path=None))
    good = saved_adapter(tmp_path / "e", base)
    assert "adapter already" in refusal(good, lora=LORA)
    assert "adapts another adapter" in refusal(
        edited(saved_adapter(tmp_path / "f", base), base_model_name_or_path=str(good))
    )
    assert "does not fit" in refusal(edited(saved_adapter(tmp_path / "g", base), r=5))
    assert "does not fit" in refusal(edited(saved_adapter(tmp_path / "h", base), target_modules=["k_proj"]))
    (good / "adapter_model.safetensors").unlink()
    assert "pickles are not read" in refusal(good)
    assert "cannot be adapted" in refusal(Path(base), lora=Lora(2, targets=("nowhere",)))
    assert "Use rank 1 or more" in refusal(Path(base), lora=Lora(-1))


def test_an_adapter_with_dropout_is_trained_without(paths: dict[str, str], tmp_path: Path) -> None:
    folder = saved_adapter(tmp_path / "dropout", paths["Llama"], lora_dropout=0.5)
    actor = Pretrained(str(folder)).build(task_of(paths["Llama"]).spec)
    stirred(actor.network)
    assert not any(module.training for module in actor.network.modules())
    batch = task_of(paths["Llama"]).demonstrate(np.arange(3), 0)
    assert torch.equal(scores_of(actor, batch), scores_of(actor, batch))
    assert stack_of(actor) is not None


def test_a_run_of_adapters_is_refused_after_its_base_weights_changed(tmp_path: Path) -> None:
    from tests.models.test_transformers import save_qwen

    model, folder = Path(save_qwen(tmp_path / "model")), tmp_path / "run"
    settings = {"rollout.num_starts": 2, "rollout.group_size": 2, "lora.rank": 2}
    options = RunOptions(cadence=CadenceOptions(eval_prompts=2))
    told = {"steps": 1, "warmup": 0, "model": str(model), "out": folder, "options": options, "mode": Mode.SILENT}
    run.train("rloo", "addition-1", settings=settings, **told)
    weights = model / "model.safetensors"
    shutil.copy(weights, tmp_path / "copy")
    shutil.copy(tmp_path / "copy", weights)  # another time, the same content
    assert run.load(folder)[2] == 1
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    for again in (lambda: run.load(folder), lambda: run.resume(folder, mode=Mode.SILENT)):
        with pytest.raises(AssayError, match=r"model\.safetensors has changed since .* was started"):
            again()
