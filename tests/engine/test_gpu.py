"""On a GPU: the same update as on the CPU, and a run from sampling to evaluation."""

from __future__ import annotations

import copy
import json
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import assay
from assay import recipes
from assay.core.record import Draw, Experience, Need
from assay.core.spaces import Spec, Vocabulary
from assay.decoding import kernels
from assay.decoding.layers import stack_of
from assay.decoding.pages import Way
from assay.decoding.sampling_parameters import Narrowing
from assay.decoding.scheduler import Sampler
from assay.decoding.sessions import Session
from assay.engine.engine import Engine
from assay.engine.loop import Loop
from assay.engine.placement import Placement, arrange
from assay.engine.updates import Update
from assay.models.bodies.transformer import Transformer
from assay.models.model import Policy
from assay.models.pretrained.causal import PretrainedActor
from assay.ops import random
from assay.ops.decoded import Stop
from assay.ops.repeats import Repeats, repeats_of, taken
from assay.parts.rollouts.episodes import Episodes
from assay.parts.rollouts.narrowed import Narrowed
from assay.rollouts import text
from assay.runs import catalogue
from assay.runs.options import LanguageOptions, RunOptions
from assay.runs.plan import plan_of
from assay.runs.progress import Mode
from tests.models.test_transformers import save_qwen
from tests.scenes import gathering

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
SMALL = Policy(Transformer(width=32, layers=2, heads=2))


@pytest.mark.parametrize("name", ["grpo", "ppo", "dpo", "sft"])
def test_a_step_on_the_gpu_is_the_step_on_the_cpu(name: str) -> None:
    task = catalogue.find_task("sorting-3")
    recipe = replace(catalogue.recipe_for(name, task, {}), actor=SMALL)
    weights = []
    for device in ("cpu", "cuda"):
        loop = Loop(recipe, task, seed=0, num_steps=2, placement=Placement(device, micro_batch=24))
        step = loop.step()
        assert not step.alarms
        weights.append(loop.engine.flats["actor"].values.cpu())
    start = Loop(recipe, task, seed=0, num_steps=2).engine.flats["actor"].values
    moved, apart = (weights[0] - start).norm(), (weights[0] - weights[1]).norm()
    assert apart <= 0.02 * moved, "the same samples and gradients up to rounding"


def packable(dtype: torch.dtype, device: str) -> Any:
    """A small Qwen3 whose weights are bfloat16 numbers in whichever type."""
    transformers = pytest.importorskip("transformers", reason="the extra 'language' is not installed")
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=500, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=64, tie_word_embeddings=True, max_position_embeddings=4096,
    )  # fmt: skip
    network = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    return PretrainedActor(Vocabulary(500, 0, 1, 2), network.to(device, dtype))


def completions() -> Experience:
    """Groups of eight, five, one and three; a row that decides nothing, one with a hole."""
    draw = torch.Generator().manual_seed(3)

    def some(num: int) -> list[int]:
        return torch.randint(3, 500, (num,), generator=draw).tolist()

    prompts, whose = [some(100), some(64), some(37), some(129)], [0] * 8 + [1] * 5 + [2] + [3] * 3
    responses = [some(num) for num in torch.randint(1, 300, (17,), generator=draw).tolist()]
    batch = text.written([prompts[number] for number in whose], responses, torch.arange(17), 0)
    mask = batch.mask.clone()
    mask[2], mask[4, 150:170] = False, False
    return replace(batch, mask=mask, group=torch.tensor(whose))


def scores_and_gradient(actor: Any, batch: Experience) -> tuple[Tensor, Tensor]:
    found = actor.score(batch, frozenset({Need.LOGP, Need.ENTROPY}))
    weight = torch.linspace(-1.0, 1.0, batch.mask.numel(), device=batch.mask.device).view_as(batch.mask) * batch.mask
    slopes = torch.autograd.grad(((found.logp + 0.3 * found.entropy) * weight).sum(), list(actor.parameters()))
    return found.logp.detach().double().cpu(), torch.cat([slope.double().flatten() for slope in slopes]).cpu()


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
@pytest.mark.parametrize("recompute", [False, True])
def test_packed_rows_have_the_scores_and_gradients_of_float64(
    dtype: torch.dtype, limit: float, recompute: bool
) -> None:
    logp, gradient = scores_and_gradient(packable(torch.float64, "cpu"), completions())
    actor = packable(dtype, "cuda")
    assert arrange(actor, Placement("cuda", recompute=recompute, packed=True))
    mine = scores_and_gradient(actor, completions().to("cuda"))
    assert float((mine[1] - gradient).norm() / gradient.norm()) <= limit
    assert float((mine[0] - logp).abs().max()) <= 2 * limit


@dataclass(frozen=True)
class Packable:
    """The network as an actor of a task."""

    def build(self, spec: Spec) -> nn.Module:
        """In bfloat16."""
        return packable(torch.bfloat16, "cuda")


def test_the_host_waits_in_an_update_only_where_the_batch_moves() -> None:
    words = Vocabulary(500, 0, 1, 2)
    recipe = replace(recipes.sft(), actor=Packable())
    engine = Engine(recipe, Spec(words, words, 512), 0, Placement("cuda", tokens=1024))
    batch = engine.annotate(completions(), recipe.needs)
    for _ in range(2):  # what is found out once: leaks, whether the output layer is plain, kernels
        engine.update(recipe.stages[0], batch)
        engine.follow({})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        update = engine.update(recipe.stages[0], batch)
        torch.cuda.set_sync_debug_mode("default")
    waits = [each for each in caught if "synchronizing CUDA operation" in str(each.message)]
    assert {Path(each.filename).name for each in waits} <= {"record.py"}
    update.settle()
    assert not update.fault


def test_a_gradient_that_is_not_finite_moves_nothing_and_is_known_when_settled() -> None:
    recipe, task = replace(recipes.sft(), actor=SMALL), catalogue.find_task("sorting-3")
    engine = Engine(recipe, task.spec, 0, Placement("cuda"))
    stage, flat = recipe.stages[0], engine.flats["actor"].values
    before = copy.deepcopy((flat, engine.optimizers[stage.name]))
    update = Update(stage.name, task.demonstrate(torch.arange(2).numpy(), 0))
    engine.apply(stage, [torch.full_like(flat, torch.inf)], update)
    assert not update.fault
    update.settle()
    assert "not finite" in update.fault
    state = engine.optimizers[stage.name]
    assert torch.equal(flat, before[0])
    assert torch.equal(state["steps"], before[1]["steps"])
    assert all(torch.equal(state[name][0], before[1][name][0]) for name in ("first", "second"))


def test_a_run_on_the_gpu_ends_with_a_score(tmp_path: Path) -> None:
    recipe = replace(recipes.grpo(), actor=SMALL)
    run = assay.train(
        recipe, "sorting-3", steps=3, warmup=20, out=tmp_path, placement=Placement("cuda"), mode=Mode.SILENT
    )
    assert run.after.count == run.before.count > 200


@pytest.mark.parametrize("compiled", [False, True])
def test_a_repeated_gradient_has_the_same_bits(compiled: bool) -> None:
    """Tests run with deterministic kernels, as `--deterministic` does; the texts have more keys than one block."""
    words = Vocabulary(500, 0, 1, 2)
    recipe = replace(recipes.sft(), actor=Packable())
    engine = Engine(recipe, Spec(words, words, 512), 0, Placement("cuda", tokens=2048, compiled=compiled))
    assert engine.models["actor"].is_packed
    batch = engine.annotate(completions(), recipe.needs)
    found = [engine.slopes(recipe.stages[0], batch, Update("policy"))[0][0].clone() for _ in range(4)]
    assert float(found[0].norm()) > 0.0
    assert all(torch.equal(found[0], other) for other in found[1:])


def test_the_state_of_a_shared_prompt_has_the_same_gradient_again_without_deterministic_kernels() -> None:
    index = torch.arange(4096) // 8 * 8
    again = Repeats(**{name: one.cuda() for name, one in vars(repeats_of(index)).items()})
    states = torch.randn(4096, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    slope = torch.randn_like(states)
    torch.set_deterministic_debug_mode("default")  # switched on again before the next test
    found = [torch.autograd.grad(taken(states, index.cuda(), again), states, slope)[0] for _ in range(20)]
    assert all(torch.equal(found[0], other) for other in found[1:])
    plain = states.detach().double().requires_grad_()
    (exact,) = torch.autograd.grad(plain[index.cuda()], plain, slope.double())
    torch.testing.assert_close(found[0].double(), exact, atol=1e-5, rtol=2**-8)


def test_a_pretrained_model_is_trained_in_bfloat16_compiled_and_packed_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra 'language' is not installed")
    folder = save_qwen(tmp_path / "model")
    config = transformers.AutoConfig.from_pretrained(folder)
    config.update({"hidden_size": 256, "intermediate_size": 512, "initializer_range": 0.02})  # heads of 64 numbers
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)
    sizes = RunOptions(language=LanguageOptions(prompts=2, group_size=4, max_tokens=16))
    given: dict[str, Any] = {"model": folder, "steps": 2, "warmup": 0, "evaluations": 0, "options": sizes}
    run = assay.train("grpo", "addition-1", out=tmp_path / "run", mode=Mode.PLAIN, **given)
    there = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (there["device"], there["compiled"], there["options"]["dtype"]) == ("cuda", True, "bfloat16")
    said = "".join(capsys.readouterr())
    assert "bfloat16 with float32 master weights, layers compiled (cache " in said
    assert "packed rows" in said
    assert plan_of(run.folder).config()["fingerprint"] == there["fingerprint"]
    assert next(run.models["actor"].parameters()).dtype == torch.bfloat16


# ----------------------------------------------------------------------------------------------------- the sampler
WAYS = [
    Narrowing(temperature=0.7),
    Narrowing(top_k=50),
    Narrowing(top_p=0.95),
    Narrowing(temperature=1.3, top_k=200, top_p=0.9, min_p=0.01),
    Narrowing(top_p=1e-30),
    Narrowing(min_p=1.0),
]


def uniform_numbers(rows: int, many: int) -> torch.Tensor:
    return random.as_open_float32(random.uniform(Draw(3), np.arange(rows)[:, None], 0, np.arange(many)[None]))


@pytest.mark.parametrize("words", [40, 5000, 151_936])
@pytest.mark.parametrize("how", WAYS, ids=str)
def test_the_kernel_removes_what_sorting_removes(how: Narrowing, words: int) -> None:
    torch.manual_seed(0)
    logits = 3.0 * torch.randn(16, words)
    logits[1] = logits[1].round()
    logits[2, : words // 2] = -torch.inf
    logits[3, 1:] = -1e9
    expected, found = kernels.narrowed(logits.double(), how), kernels.narrowed(logits.cuda(), how).cpu()
    stays = expected.softmax(-1) * (found == -torch.inf)
    goes = found.double().softmax(-1) * (expected == -torch.inf)
    assert float(stays.sum(1).max()) < 1e-5, "float32 sums decide at most about tokens at the very edge"
    assert float(goes.sum(1).max()) < 1e-5
    for uniform in (torch.zeros(16), torch.full((16,), 1 - 2**-24), uniform_numbers(16, 1)[:, 0]):
        token, logp, model = kernels.draw_tokens(logits.cuda(), uniform.cuda(), how)
        token = token.cpu()
        assert bool((found.gather(1, token.unsqueeze(1)) > -torch.inf).all()), "no removed token"
        expected_logp = found.double().log_softmax(-1).gather(1, token.unsqueeze(1)).squeeze(1)
        torch.testing.assert_close(logp.cpu().double(), expected_logp, atol=1e-4, rtol=0)
        own = logits.double().log_softmax(-1).gather(1, token.unsqueeze(1)).squeeze(1)
        torch.testing.assert_close(model.cpu().double(), own, atol=1e-4, rtol=1e-6)


def gpu_sampler(rows: int = 24, pages: int = 200, interval: int = 16) -> tuple[Any, Sampler]:
    torch.manual_seed(0)
    actor = SMALL.build(catalogue.find_task("sorting-3").spec).cuda()
    stack = stack_of(actor)
    assert stack is not None
    return actor, Sampler(stack, rows=rows, pages=pages, longest=200, page=16, interval=interval)


PROMPTS = [[1, *range(3, 9 + start)] for start in range(6)]


def test_a_narrowed_sample_is_the_same_whoever_decodes_beside() -> None:
    uniform, limit = uniform_numbers(24, 40), torch.full((24,), 40)
    way = Way(-1, narrowing=Narrowing(temperature=0.8, top_k=20, top_p=0.9))
    found = [gpu_sampler(*size)[1].sample(PROMPTS, [4] * 6, uniform, limit, way) for size in ((24, 200), (5, 60, 4))]
    rows = (found[0].tokens == found[1].tokens).all(1)
    assert float(rows.float().mean()) > 0.9, "float32 sums in another order may part a row from its twin"
    gap = (found[0].logp - found[1].logp)[rows].abs().max()
    assert float(gap) < 1e-4
    assert found[0].logp_model is not None
    assert bool((found[0].logp_model != found[0].logp).any())


def test_ways_of_drawing_share_a_sampler_and_memory_is_taken_again() -> None:
    actor, one = gpu_sampler()
    uniform, limit = uniform_numbers(24, 30), torch.full((24,), 30)
    ways = [Way(-1), Way(-1, narrowing=WAYS[3])]
    first = [one.sample(PROMPTS, [4] * 6, uniform, limit, way) for way in ways]
    many = len(one.graphs.known)
    actor.sampler.held = one
    before = torch.cuda.memory_allocated()
    actor.release()
    assert torch.cuda.memory_allocated() < before
    again = [one.sample(PROMPTS, [4] * 6, uniform, limit, way) for way in ways]
    assert len(one.graphs.known) == many
    for mine, other in zip(again, first, strict=True):
        assert torch.equal(mine.tokens, other.tokens)


def test_turns_keep_their_pages_on_the_gpu() -> None:
    one, fresh, uniform = gpu_sampler()[1], gpu_sampler()[1], uniform_numbers(24, 60)
    alike = []
    with Session(one) as session:
        rows = session.open(PROMPTS, [4] * 6)
        known = [list(PROMPTS[row // 4]) for row in rows]
        for turn in range(3):
            limit = torch.tensor([5 + (row + turn) % 6 for row in rows])
            found = session.sample(rows, uniform[:, 12 * turn :], limit, Way(-1))
            other = fresh.sample(known, [1] * 24, uniform[:, 12 * turn :], limit, Way(-1))
            for row in rows:
                end = int(found.length[row])
                alike.append(torch.equal(found.tokens[row, :end], other.tokens[row, :end]))
                heard = [3 + (row + turn + time) % 9 for time in range(row % 20)]
                session.extend([row], [heard])
                known[row] += [*found.tokens[row, :end].tolist(), *heard]
        assert all(session.tokens(row) == known[row] for row in rows)
    assert sum(alike) >= len(alike) - 3, "float32 sums in another order may part a row from its twin"
    assert len(one.ledger.free) == 199


def test_stop_strings_on_the_gpu_are_those_of_the_cpu() -> None:
    def letters(ids: Any) -> str:
        return "".join(chr(60 + index) for index in ids)

    uniform, limit = uniform_numbers(24, 40), torch.full((24,), 40)
    free = gpu_sampler()[1].sample(PROMPTS, [4] * 6, uniform, limit, Way(-1))
    stop = Stop(letters, tuple("ABCDEF"))
    for interval in (1, 7, 16):
        cut = gpu_sampler(interval=interval)[1].sample(PROMPTS, [4] * 6, uniform, limit, Way(-1), stop=stop)
        ends = [stop.first(row.tolist()) or 40 for row in free.tokens]
        assert cut.length.tolist() == ends


@pytest.mark.parametrize("name", ["sorting-3", "twenty-questions-2", "red-teaming", "prisoners-dilemma-tokens"])
def test_narrowed_rollouts_on_the_gpu_are_recorded_right(name: str) -> None:
    task = catalogue.find_task(name)
    torch.manual_seed(0)
    actor: Any = SMALL.build(task.spec).cuda()
    fresh = Narrowed(Episodes(6, 4), WAYS[3])(gathering(task, actor, np.arange(6), Draw(1)), {})
    with torch.no_grad():
        scored = actor.score(fresh.to("cuda"), frozenset({Need.LOGP})).logp.cpu()
    torch.testing.assert_close(fresh.column("logp_model")[fresh.mask], scored[fresh.mask], atol=3e-4, rtol=0)
    assert bool((fresh.logp >= fresh.column("logp_model") - 2.0)[fresh.mask].all())
