"""Critics of a pretrained actor: the same network with a head that starts at 0, and the settings of the actor."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.app import cli
from assay.core.optimizers import Adam
from assay.core.recipe import Recipe
from assay.core.record import Experience, Outcome, Score
from assay.core.schedules import Delayed, Linear
from assay.engine.loop import Loop
from assay.models.heads.value import ActionValue, Value
from assay.models.model import Critic
from assay.models.pretrained.adapters import Lora
from assay.models.pretrained.body import PretrainedBody
from assay.models.pretrained.transformers import Pretrained
from assay.parts.rollouts.episodes import Episodes
from assay.recipes.defaults import LANGUAGE
from assay.runs import catalogue, run
from assay.runs.plan import make_plan
from assay.tasks.adapters.pretrained import with_model
from assay.tasks.language.addition import Addition, addition
from assay.tasks.language.prompts import Item, PromptTask

transformers = pytest.importorskip("transformers", reason="the extra 'language' is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="the extra 'language' is not installed")

SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 96, "initializer_range": 0.3,
}  # fmt: skip
WITH_CRITICS = {"ppo": ("value",), "ma-rlhf": ("value",), "t-ppo": ("value",), "archer": ("q", "value")}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    specials = ["<pad>", "<s>", "</s>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=270, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(["12+34=46"], trainer)
    named = dict(zip(("pad_token", "bos_token", "eos_token"), specials, strict=True))
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, **named).save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.LlamaConfig(vocab_size=made.get_vocab_size(), **SIZES)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


class EvenLength(Addition):
    """Pays for completions of even length, so that a random model sees both outcomes."""

    def verify(self, item: Item, completion: str) -> Outcome:
        return Score(float(len(completion) % 2 == 0))


def task_of(path: str) -> PromptTask:
    made = with_model(addition(1), path)
    assert isinstance(made, PromptTask)
    return replace(made, items=EvenLength(), max_tokens=6)


def shown(path: str) -> Experience:
    return task_of(path).demonstrate(np.arange(3), 0)


def small(recipe: Recipe) -> Recipe:
    """The recipe with little to gather."""
    memory = {stage: replace(stage.source, updates=2, batch=4) for stage in recipe.stages if stage.source is not None}
    stages = tuple(replace(stage, source=memory.get(stage)) for stage in recipe.stages)
    rollout = Episodes(4, 4) if isinstance(recipe.rollout, Episodes) else replace(recipe.rollout, slots=8)
    return replace(recipe, stages=stages, rollout=rollout)


# ---------------------------------------------------------------------------------------------------- models
def test_values_are_a_linear_function_of_the_state_before_each_token(path: str) -> None:
    batch = shown(path)
    critic: Any = Critic(PretrainedBody(Pretrained(path))).build(task_of(path).spec)
    assert critic(batch.context).shape == batch.mask.shape
    assert float(critic(batch.context).detach().abs().max()) == 0.0
    torch.nn.init.normal_(critic.body.layer.weight)
    network = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    for row, tokens in enumerate(batch.context["tokens"]):
        length = int(batch.context["valid"][row].sum())
        hidden = network.base_model(input_ids=tokens[:length].unsqueeze(0)).last_hidden_state[0]
        own = (hidden @ critic.body.layer.weight[0])[:-1]
        torch.testing.assert_close(critic(batch.context)[row, 1:length], own, atol=1e-4, rtol=1e-4)


def test_action_values_see_the_token_itself(path: str) -> None:
    batch = shown(path)
    critic: Any = Critic(PretrainedBody(Pretrained(path)), ActionValue(3)).build(task_of(path).spec)
    assert critic(batch.context, batch.action).shape == (3, *batch.mask.shape)
    assert float(critic(batch.context, batch.action).detach().abs().max()) == 0.0
    torch.nn.init.normal_(critic.body.layers)
    tokens = batch.context["tokens"].clone()
    tokens[:, 3] = (tokens[:, 3] + 1) % 200
    contexts = (batch.context, {**batch.context, "tokens": tokens})
    before, after = (critic(context, batch.action) for context in contexts)
    torch.testing.assert_close(before[..., :3], after[..., :3])
    assert not torch.allclose(before[..., 3], after[..., 3])


def test_values_are_in_float32_on_a_network_in_bfloat16_and_both_learn(path: str) -> None:
    recipe = small(catalogue.recipe_for("ppo", task_of(path), {"dtype": "bfloat16"}, Pretrained(path)))
    loop = Loop(recipe, task_of(path), seed=0, num_steps=2)
    critic: Any = loop.engine.models["value"]
    head = critic.body.layer.weight
    assert {weight.dtype for weight in critic.parameters()} == {torch.bfloat16}
    before = head.clone()
    assert loop.step().alarms == []
    assert critic(shown(path).context).dtype == torch.float32
    assert not torch.equal(head, before)


def test_a_frozen_network_leaves_the_head_to_be_trained(path: str) -> None:
    critic = Critic(PretrainedBody(Pretrained(path), frozen=True)).build(task_of(path).spec)
    trained = [name for name, weight in critic.named_parameters() if weight.requires_grad]
    assert trained == ["body.layer.weight", "body.layer.bias"]


# ---------------------------------------------------------------------------------------------------- recipes
@pytest.mark.parametrize("name", sorted(WITH_CRITICS))
def test_a_pretrained_actor_has_pretrained_critics_that_learn(name: str, path: str) -> None:
    actor = Pretrained(path)
    recipe = small(catalogue.recipe_for(name, task_of(path), {}, actor))
    heads = {critic: ActionValue() if critic == "q" else Value() for critic in WITH_CRITICS[name]}
    assert recipe.critics == {critic: Critic(PretrainedBody(actor), head) for critic, head in heads.items()}
    loop = Loop(recipe, task_of(path), seed=0, num_steps=3)
    before = {
        critic: {key: value.clone() for key, value in loop.engine.models[critic].state_dict().items()}
        for critic in recipe.critics
    }
    for _ in range(2):
        assert loop.step().alarms == []
    for critic, weights in before.items():
        now = loop.engine.models[critic].state_dict()
        assert any(not torch.equal(now[key], value) for key, value in weights.items()), critic


def test_rates_keep_their_schedule_and_take_the_pretrained_peak(path: str) -> None:
    actor = Pretrained(path)
    archer = catalogue.recipe_for("archer", task_of(path), {}, actor)
    rates = {stage.name: stage.optimizer.learning_rate for stage in archer.stages}
    critic_rate, actor_rate = catalogue.PRETRAINED_CRITIC_RATE, catalogue.PRETRAINED_RATE
    assert rates == {"q": critic_rate, "value": critic_rate, "policy": Delayed(actor_rate)}
    falling = replace(LANGUAGE, optimizer=Adam(Linear(3e-4, 3e-5)))
    ppo = catalogue.with_pretrained(catalogue.methods()["ppo"].recipe(falling), actor)
    assert ppo.stages[0].optimizer.learning_rate == Linear(actor_rate, pytest.approx(actor_rate / 10))
    assert ppo.stages[1].optimizer.learning_rate == Linear(critic_rate, pytest.approx(critic_rate / 10))


def test_settings_of_the_actor_hold_for_its_critics(path: str) -> None:
    settings = {"lora.rank": 16, "dtype": "bfloat16"}
    recipe: Any = catalogue.recipe_for("archer", task_of(path), settings, Pretrained(path))
    assert recipe.actor == Pretrained(path, dtype="bfloat16", lora=Lora(16))
    assert {critic.body.model for critic in recipe.critics.values()} == {recipe.actor}
    frozen = recipe.set("critics.value.body.frozen", True).critics["value"]
    assert frozen == Critic(PretrainedBody(recipe.actor, frozen=True))


def test_with_lora_a_critic_trains_adapters_and_its_head(path: str) -> None:
    pytest.importorskip("peft", reason="the extra 'language' is not installed")
    recipe = small(catalogue.recipe_for("ppo", task_of(path), {"lora.rank": 16}, Pretrained(path)))
    loop = Loop(recipe, task_of(path), seed=0, num_steps=2)
    critic = loop.engine.models["value"]
    trained = [name for name, weight in critic.named_parameters() if weight.requires_grad]
    assert any(".lora_A." in name for name in trained)
    assert all(".lora_" in name or name.startswith("body.layer.") for name in trained)
    before = {name: weight.clone() for name, weight in critic.named_parameters()}
    assert loop.step().alarms == []
    moved = {name for name, weight in critic.named_parameters() if not torch.equal(weight, before[name])}
    assert moved
    assert moved <= set(trained)


def test_phases_with_the_same_actor_get_the_pretrained_one(path: str) -> None:
    from assay.methods.sdpo import reading

    recipe = catalogue.with_pretrained(reading(catalogue.methods()["sdpo"].recipe()), Pretrained(path))
    assert recipe.before[0].recipe.actor == recipe.actor == Pretrained(path)


def test_from_the_command_line_and_on_from_the_folder(path: str, tmp_path: Path) -> None:
    words = f"train ppo --task addition-1 --steps 2 --out {tmp_path / 'run'} --model {path} --set lora.rank=2"
    assert cli.main([*words.split(), "--set", "rollout.num_starts=2", "--set", "rollout.group_size=2"]) == 0
    _, plan, step = run.load(tmp_path / "run")
    assert step == 2
    assert plan.recipe.critics["value"] == Critic(PretrainedBody(plan.recipe.actor))  # type: ignore[arg-type]
    again = make_plan("ppo", "addition-1", steps=2, model=path, settings=plan.settings)
    assert again.config()["fingerprint"] == plan.config()["fingerprint"]
