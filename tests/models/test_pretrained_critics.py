"""Critics of a pretrained actor: the same network with a head that starts at 0, and the settings of the actor."""

import copy
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.cli import main as cli
from assay.core import store
from assay.core.errors import AssayError
from assay.core.optimizers import Adam
from assay.core.recipe import Copy, Recipe, Stage, united
from assay.core.record import Experience, Need, Outcome, Score
from assay.core.schedules import Delayed, Linear
from assay.engine.loop import Loop
from assay.engine.machine import tuned
from assay.engine.updates import Update
from assay.models.heads.value import ActionValue, Value
from assay.models.model import Critic
from assay.models.pretrained.adapters import Lora
from assay.models.pretrained.body import PretrainedBody
from assay.models.pretrained.transformers import Pretrained
from assay.parts.rollouts.episodes import Episodes
from assay.parts.sources.fresh import FreshSequences
from assay.parts.targets.one_step import NextValue
from assay.recipes.presets import LANGUAGE
from assay.runs import catalogue, run
from assay.runs.adapters import adapter_note
from assay.runs.options import LanguageOptions, RunOptions
from assay.runs.phase_plans import phases_of
from assay.runs.plan import Plan, make_plan
from assay.tasks.adapters.pretrained import with_model
from assay.tasks.language.addition import Addition, addition
from assay.tasks.language.items import Item
from assay.tasks.language.prompts import PromptTask
from tests.optional import Optional

transformers = Optional("transformers")
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


@cache
def task_of(path: str) -> PromptTask:
    made = with_model(addition(1), path)
    assert isinstance(made, PromptTask)
    return replace(made, items=EvenLength(), max_tokens=6)


def shown(path: str) -> Experience:
    return task_of(path).demonstrate(np.arange(3), 0)


def small(recipe: Recipe) -> Recipe:
    """The recipe with little to gather."""

    def short(source: Any) -> Any:
        inner = getattr(source, "replay", None)
        return replace(source, replay=short(inner)) if inner is not None else replace(source, updates=2, batch=4)

    stages = tuple(replace(one, source=None if one.source is None else short(one.source)) for one in recipe.stages)
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


def test_heads_are_in_float32_on_a_network_in_bfloat16_and_both_learn(path: str) -> None:
    recipe = small(catalogue.recipe_for("ppo", task_of(path), {"dtype": "bfloat16"}, Pretrained(path)))
    loop = Loop(recipe, task_of(path), seed=0, num_steps=2)
    critic: Any = loop.engine.models["value"]
    assert {weight.dtype for weight in critic.body.states.parameters()} == {torch.bfloat16}
    assert {weight.dtype for weight in critic.body.layer.parameters()} == {torch.float32}
    before = {name: weight.clone() for name, weight in critic.named_parameters()}
    for _ in range(2):
        assert loop.step().alarms == []
    assert critic(shown(path).context).dtype == torch.float32
    moved = {name for name, weight in critic.named_parameters() if not torch.equal(weight, before[name])}
    assert "body.layer.weight" in moved
    assert any(name.startswith("body.states.") for name in moved)


def test_action_values_are_in_float32_on_a_network_in_bfloat16(path: str) -> None:
    critic: Any = Critic(PretrainedBody(Pretrained(path, dtype="bfloat16")), ActionValue()).build(task_of(path).spec)
    assert {critic.body.inner.weight.dtype, critic.body.layers.dtype} == {torch.float32}
    assert critic(shown(path).context, shown(path).action).dtype == torch.float32


def test_values_are_in_float32_under_mixed_precision(path: str) -> None:
    batch = shown(path)
    spec, body = task_of(path).spec, PretrainedBody(Pretrained(path))
    critics: list[Any] = [Critic(body, head).build(spec) for head in (Value(), ActionValue())]
    torch.nn.init.normal_(critics[0].body.layer.weight)
    torch.nn.init.normal_(critics[1].body.layers)
    with tuned(0, bfloat16=True), torch.autocast("cpu", dtype=torch.bfloat16):
        values = critics[0](batch.context), critics[1](batch.context, batch.action)
    assert {value.dtype for value in values} == {torch.float32}
    assert all(not torch.equal(value, value.bfloat16().float()) for value in values)


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


def test_the_warm_up_of_a_pretrained_actor_has_the_pretrained_rate_of_sft(path: str) -> None:
    (warm,) = phases_of(make_plan("grpo", "countdown", model=path, warmup=3))
    assert warm.recipe.stages[0].optimizer.learning_rate == catalogue.PRETRAINED_SUPERVISED_RATE
    assert isinstance(warm.recipe.actor, Pretrained)


def test_ppo_on_a_pretrained_actor_has_no_entropy_bonus(path: str) -> None:
    found = {
        name: [vars(term)["coefficient"] for term in recipe.stages[0].regularizers]
        for name, recipe in {
            "small": catalogue.recipe_for("ppo", catalogue.find_task("countdown"), {}),
            "pretrained": catalogue.recipe_for("ppo", task_of(path), {}, Pretrained(path)),
            "the method's own": catalogue.recipe_for("simplerl-zoo", task_of(path), {}, Pretrained(path)),
        }.items()
    }
    assert found == {"small": [0.003], "pretrained": [0.0], "the method's own": [0.001, 1e-4]}


def rates_of(plan: Plan) -> dict[str, Any]:
    """Returns the learning rate of each stage."""
    return {stage.name: stage.optimizer.learning_rate for stage in plan.recipe.stages}


def test_adapters_have_ten_times_the_rate_of_whole_weights_unless_one_is_set(path: str) -> None:
    options = RunOptions(language=LanguageOptions(lora_rank=4))
    for given in ({"options": options}, {"settings": {"lora.rank": 4}}):
        adapted = make_plan("ppo", "countdown", model=path, warmup=3, **given)
        assert rates_of(adapted) == {"policy": pytest.approx(5e-5), "value": pytest.approx(1e-4)}
        (warm,) = phases_of(adapted)
        assert warm.recipe.stages[0].optimizer.learning_rate == pytest.approx(2e-4)
    assert rates_of(make_plan("sft", "countdown", model=path, options=options)) == {"likelihood": pytest.approx(2e-4)}
    chosen = make_plan("ppo", "countdown", model=path, options=options, settings={"policy.learning_rate": 3e-6})
    assert rates_of(chosen) == {"policy": 3e-6, "value": pytest.approx(1e-4)}
    whole = make_plan("ppo", "countdown", model=path, options=RunOptions(language=LanguageOptions(lora_rank=0)))
    assert rates_of(whole) == {"policy": catalogue.PRETRAINED_RATE, "value": catalogue.PRETRAINED_CRITIC_RATE}
    notes = [adapter_note(one.recipe, one.model, one.options, one.settings) for one in (adapted, chosen, whole)]
    assert notes == [
        "adapters: learning rate 5e-05 (policy), 0.0001 (value), 10 x that of whole weights; change with --set "
        "learning_rate=",
        "",
        "",
    ]


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
    recipe = catalogue.with_pretrained(catalogue.methods()["oreal"].recipe(), Pretrained(path))
    assert recipe.before[0].recipe.actor == recipe.actor == Pretrained(path)


def test_phases_for_models_from_scratch_are_left_out(path: str) -> None:
    recipe = catalogue.methods()["sdpo"].recipe()
    assert [phase.name for phase in recipe.before] == ["in-context"]
    assert catalogue.with_pretrained(recipe, Pretrained(path)).before == ()


def test_from_the_command_line_and_on_from_the_folder(path: str, tmp_path: Path) -> None:
    words = f"train ppo --task addition-1 --steps 2 --out {tmp_path / 'run'} --model {path} --set lora.rank=2"
    sizes = "--set rollout.num_starts=2 --set rollout.group_size=2 --device cpu"
    assert cli.main([*words.split(), *sizes.split()]) == 0
    _, plan, step = run.load(tmp_path / "run")
    assert step == 2
    assert plan.recipe.critics["value"] == Critic(PretrainedBody(plan.recipe.actor))  # type: ignore[arg-type]
    again = make_plan("ppo", "addition-1", steps=2, model=path, settings=plan.settings)
    assert again.config()["fingerprint"] == plan.config()["fingerprint"]


# ---------------------------------------------------------------------------------------------------- shared backbone
SHARED = {"critics.value.body.shared": True}


def shared_loop(path: str, **settings: Any) -> Loop:
    """A loop of PPO whose value head reads the actor's hidden states."""
    names = {"body_gradient": "critics.value.body.body_gradient", "rank": "lora.rank"}
    given = SHARED | {names.get(name, name): value for name, value in settings.items()}
    recipe = small(catalogue.recipe_for("ppo", task_of(path), given, Pretrained(path)))
    return Loop(recipe, task_of(path), seed=0, num_steps=4)


def batch_of(loop: Loop) -> Experience:
    """The demonstrations as a batch of PPO: with advantages, returns and values."""
    batch = shown(cast(Pretrained, loop.recipe.actor).path)
    numbers = torch.linspace(-1.0, 1.0, batch.mask.numel()).view_as(batch.reward)
    return loop.engine.annotate(batch.add({"advantage": numbers, "return": numbers.flip(1)}), frozenset())


def gradients_of(loop: Loop, stages: Sequence[Stage], batch: Experience) -> dict[str, Tensor]:
    """The gradient of the sum of the stages' losses, by full names."""
    engine, whole = loop.engine, united(stages)
    pieces, _ = engine.slopes(whole, batch, Update(whole.name, batch))
    parts = [part for name, piece in zip(whole.trains, pieces, strict=True) for part in engine.flats[name].split(piece)]
    return dict(zip([f"{m}.{n}" for m in whole.trains for n in engine.flats[m].names], parts, strict=True))


def test_a_shared_value_head_has_the_gradient_of_the_formula(path: str) -> None:
    loop = shared_loop(path)
    batch, head = batch_of(loop), cast(Any, loop.engine.models["value"]).body.layer
    torch.nn.init.normal_(head.weight)
    found = gradients_of(loop, loop.recipe.stages, batch)
    network = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    hidden = network.base_model(input_ids=batch.context["tokens"][:, :-1]).last_hidden_state
    state = torch.nn.functional.pad(hidden, (0, 0, 1, 0)).detach()[batch.mask]
    error = state @ head.weight[0] + head.bias - batch.column("return")[batch.mask]  # of mean (V - return)^2 / 2
    torch.testing.assert_close(found["value.body.layer.weight"][0], error @ state / len(error), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found["value.body.layer.bias"][0], error.mean(), atol=1e-5, rtol=1e-4)


def test_body_gradient_scales_what_the_value_loss_adds_to_the_network_and_0_detaches_it(path: str) -> None:
    found = {}
    for factor in (0.0, 0.25, 1.0):
        loop = shared_loop(path, body_gradient=factor)
        torch.manual_seed(3)
        torch.nn.init.normal_(cast(Any, loop.engine.models["value"]).body.layer.weight)
        found[factor] = gradients_of(loop, loop.recipe.stages, batch_of(loop))
    policy = gradients_of(loop, loop.recipe.stages[:1], batch_of(loop))
    for name, alone in policy.items():
        assert torch.equal(found[0.0][name], alone), name
        torch.testing.assert_close(found[0.25][name] - alone, 0.25 * (found[1.0][name] - alone), atol=1e-5, rtol=1e-3)
    assert any(not torch.allclose(found[1.0][name], alone, atol=1e-4) for name, alone in policy.items())
    for name in ("value.body.layer.weight", "value.body.layer.bias"):
        torch.testing.assert_close(found[0.0][name], found[1.0][name])


def test_a_shared_network_is_counted_saved_and_stepped_once(path: str) -> None:
    loop = shared_loop(path)
    engine = loop.engine
    width = SIZES["hidden_size"]
    assert engine.flats["value"].num_parameters == width + 1
    assert set(engine.snapshot()["models"]["value"]) == {"body.layer.weight", "body.layer.bias"}
    assert [len(piece) for piece in engine.optimizers["value"]["first"]] == [width + 1]
    lent = cast(Any, engine.models["value"]).body.states.lent[0].network
    assert lent is cast(Any, engine.models["actor"]).network.base_model
    before = float(engine.optimizers["policy"]["steps"])
    loop.step()
    assert float(engine.optimizers["policy"]["steps"]) - before == float(engine.optimizers["value"]["steps"]) == 2.0


def test_an_update_reads_the_network_once(path: str) -> None:
    loop, calls = shared_loop(path), []
    batch = batch_of(loop)
    cast(Any, loop.actor).network.base_model.register_forward_hook(lambda *_: calls.append(1))
    assert len(loop.engine.update_together(loop.recipe.stages, batch)) == 2
    assert len(calls) == 1


def test_values_at_decisions_are_the_same_from_lent_states_and_from_a_forward_pass(path: str) -> None:
    loop = shared_loop(path)
    batch, critic = batch_of(loop), cast(Any, loop.engine.models["value"])
    torch.nn.init.normal_(critic.body.layer.weight)
    hidden = loop.actor.score(batch, frozenset({Need.LOGP, Need.HIDDEN})).hidden
    lent, own = critic({**batch.context, "hidden": hidden}), critic(batch.context)
    torch.testing.assert_close(lent[batch.mask], own[batch.mask], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"rank": 2}, {"dtype": "bfloat16"}, {"body_gradient": 0.0}], ids=str)
def test_a_run_with_a_shared_network_learns_and_resumes_bitwise(path: str, settings: dict[str, Any]) -> None:
    if "rank" in settings:
        pytest.importorskip("peft", reason="the extra 'language' is not installed")
    through, resumed = shared_loop(path, **settings), shared_loop(path, **settings)
    critic = cast(Any, through.engine.models["value"]).body.layer.weight
    assert critic.dtype == torch.float32
    start = through.engine.flats["actor"].values.clone()
    assert through.step().alarms == []
    saved = copy.deepcopy(through.snapshot())
    assert through.step().alarms == []
    assert not torch.equal(start, through.engine.flats["actor"].values)
    assert float(critic.detach().abs().max()) > 0.0
    resumed.restore(saved)
    resumed.step()
    for name, flat in through.engine.flats.items():
        assert torch.equal(flat.values, resumed.engine.flats[name].values), name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: replace(r, actor=replace(r.actor, dtype="bfloat16")), "Use the actor's model"),
        (lambda r: replace(r, critics={"value": replace(r.critics["value"], head=ActionValue())}), "Use Value"),
        (lambda r: r.set("critics.value.body.frozen", True), "Use body_gradient=0"),
        (lambda r: r.set("critics.value.body.body_gradient", -1.0), "Use 0"),
        (lambda r: replace(r, copies={"old": Copy(of="value", rate=0.1)}), "target network 'old'"),
        (lambda r: replace(r, stages=(r.stages[0], replace(r.stages[1], source=FreshSequences(7)))), "gradient=0"),
        (lambda r: replace(r, stages=(r.stages[0], bootstrapped(r.stages[1]))), "bootstraps"),
    ],
)  # fmt: skip
def test_a_network_that_cannot_be_shared_is_refused(path: str, change: Any, words: str) -> None:
    recipe = catalogue.recipe_for("ppo", task_of(path), SHARED, Pretrained(path))
    recipe.check()
    with pytest.raises(AssayError, match=words):
        change(recipe).check()


def bootstrapped(stage: Stage) -> Stage:
    """The stage with a target that reads the critic itself."""
    return replace(stage, critic=(replace(stage.critic[0], target=NextValue()),))  # type: ignore[type-var]


def test_a_shared_network_from_the_command_line_interrupted_and_resumed(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = f"train ppo --task addition-1 --model {path} --set critics.shared=true --steps 2"
    words += " --save-every 1steps"
    words += " --set rollout.num_starts=2 --set rollout.group_size=2"
    assert cli.main([*words.split(), "--out", str(tmp_path / "through")]) == 0
    step = Loop.step
    monkeypatch.setattr(Loop, "step", lambda loop: step(loop) if loop.progress.step < 1 else interrupt())
    assert cli.main([*words.split(), "--out", str(tmp_path / "halves")]) == 130
    monkeypatch.setattr(Loop, "step", step)
    assert run.load(tmp_path / "halves")[2] == 1
    assert cli.main(["resume", str(tmp_path / "halves")]) == 0
    _, plan, step_of_end = run.load(tmp_path / "through")
    assert step_of_end == 2
    body = PretrainedBody(cast(Pretrained, plan.recipe.actor), shared=True)
    assert plan.recipe.critics["value"] == Critic(body)
    saved = [store.load(tmp_path / name / "checkpoints") for name in ("through", "halves")]
    through, halves = (cast(store.Checkpoint, one).tree["loop"]["engine"]["models"] for one in saved)
    assert set(through["value"]) == {"body.layer.weight", "body.layer.bias"}
    for name, weights in through.items():
        assert all(torch.equal(weight, halves[name][own]) for own, weight in weights.items()), name


def interrupt() -> None:
    """Ends the process as Ctrl-C does."""
    os.kill(os.getpid(), signal.SIGINT)
    raise KeyboardInterrupt
