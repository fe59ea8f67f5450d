"""A teacher by folder and by address: its numbers are its model's, its tokens the student's; it is never trained."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from assay.cli.serve import make_server
from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.core.slots import Scene, logp_of
from assay.engine.engine import Engine
from assay.engine.placement import Placement
from assay.models.pretrained.teacher import PretrainedTeacher
from assay.ops.divergences import forward_kl
from assay.parts.credit.teacher import candidates_of, ranked
from assay.runs import run
from assay.runs.options import LanguageOptions, RunOptions
from assay.runs.plan import Plan, make_plan, plan_of
from assay.runs.progress import Mode
from tests.optional import Optional

transformers = Optional("transformers")
tokenizers = pytest.importorskip("tokenizers", reason="the extra 'language' is not installed")

SIZES = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "max_position_embeddings": 96, "initializer_range": 0.3,
}  # fmt: skip
TEACHES = {"gkd": 0.8, "gkd:reverse": 0.8, "gkd:sampled": 0.95}
"""Methods, and the share of the first divergence that is left at most; sampled tokens are noisy."""


def made(folder: Path, seed: int, more_tokens: int = 0, text: str = "12+34=46") -> str:
    """Saves a model of random weights whose output layer has more rows than its tokenizer has tokens."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    specials = ["<pad>", "<s>", "</s>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=262,
        special_tokens=specials,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text], trainer)
    names = dict(zip(("pad_token", "bos_token", "eos_token"), specials, strict=True))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(vocab_size=tokenizer.get_vocab_size() + more_tokens, **SIZES)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made(tmp_path_factory.mktemp("student"), 1)


@pytest.fixture(scope="module", params=[0, 7])
def teacher(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A teacher with the student's tokens, whose output layer is of the same size, or larger."""
    return made(tmp_path_factory.mktemp("teacher"), 2, request.param)


def planned(
    method: str,
    student: str,
    teacher: str | None,
    weight: float | None = None,
    steps: int = 2,
    rate: float | None = None,
) -> Plan:
    words = LanguageOptions(teacher=teacher, teacher_weight=weight, max_tokens=6, prompts=4)
    settings = {} if rate is None else {"optimizer.learning_rate": rate}
    options = RunOptions(language=words)
    return make_plan(
        method, "addition-1", steps=steps, model=student, warmup=0, evaluations=0, options=options, settings=settings
    )


def begun(plan: Plan) -> Engine:
    return Engine(plan.recipe, plan.task.spec, 0, Placement())


def rows_of(plan: Plan, engine: Engine) -> Experience:
    recipe, task = plan.recipe, plan.task
    assert recipe.rollout is not None
    scene = Scene(task, engine, actor=engine.model("actor"), starts=torch.arange(4).numpy())
    with torch.no_grad():
        return recipe.rollout(scene, recipe.rollout.init(scene))


def own_logits(teacher: str, rows: Experience, row: int, size: int) -> torch.Tensor:
    """The distribution of the folder's own network over the student's tokens, before each token of a row."""
    valid = rows.context["valid"][row].bool()
    network = transformers.AutoModelForCausalLM.from_pretrained(teacher)
    with torch.no_grad():
        return network(rows.context["tokens"][row][valid][None]).logits[0, :-1, :size].log_softmax(-1)


def test_candidates_are_the_likeliest_tokens_of_the_folders_own_network(student: str, teacher: str) -> None:
    plan = planned("gkd", student, teacher)
    engine = begun(plan)
    rows = rows_of(plan, engine)
    (part,) = plan.recipe.credit
    column = part(rows, Scene(plan.task, engine)).column("candidates")
    assert column.shape[-2:] == (100, 2)
    assert float(column[~rows.mask].abs().max()) == 0.0
    for row in range(len(rows)):
        own = own_logits(teacher, rows, row, plan.task.spec.action.size)
        for place in rows.mask[row].nonzero().flatten().tolist():
            best = own[place - 1].sort(descending=True)
            torch.testing.assert_close(column[row, place, :, 1], best.values[:100], rtol=0, atol=2e-4)
            assert set(column[row, place, :20, 0].long().tolist()) == set(best.indices[:20].tolist())


@pytest.mark.parametrize("method", TEACHES)
def test_a_student_approaches_its_teacher_which_stays_as_it_is(
    method: str, student: str, teacher: str, tmp_path: Path
) -> None:
    plan = planned(method, student, teacher, steps=30, rate=3e-3)
    begins = begun(plan)
    rows = rows_of(plan, begins)
    run.execute(plan, tmp_path / "run", mode=Mode.SILENT)
    ends, _ = run.loaded_engine(plan, tmp_path / "run")
    for name, tensor in begins.models["teacher"].state_dict().items():
        assert torch.equal(tensor, ends.models["teacher"].state_dict()[name]), name
    assert apart(ends, rows) < TEACHES[method] * apart(begins, rows)
    files = list((tmp_path / "run").rglob("*.safetensors"))
    assert files
    assert not any("models.teacher" in name for file in files for name in store_names(file))


def apart(engine: Engine, rows: Experience) -> float:
    """KL(q || pi) at the decisions of the rows, over the student's whole vocabulary."""
    logp, logq = (
        ranked(engine.model(name), rows, 10_000)[rows.mask].double() for name in ("actor", "teacher")
    )
    logp, logq = (one[..., 1].gather(-1, one[..., 0].argsort(-1)) for one in (logp, logq))
    return float(forward_kl(logp, logq.log_softmax(-1)).mean())


def store_names(file: Path) -> list[str]:
    with safe_open(file, "pt") as opened:
        return list(opened.keys())


def test_a_run_is_resumed_with_the_teacher_that_it_names(student: str, teacher: str, tmp_path: Path) -> None:
    run.execute(planned("gkd", student, teacher), tmp_path / "run", mode=Mode.SILENT)
    plan = plan_of(tmp_path / "run")
    assert isinstance(plan.recipe.critics["teacher"], PretrainedTeacher)
    assert plan.recipe.critics["teacher"].model.path == str(Path(teacher).resolve())
    file = Path(teacher) / "model.safetensors"
    before, weights = file.read_bytes(), load_file(file)
    weights["model.norm.weight"] += 0.001
    save_file(weights, file, {"format": "pt"})
    try:
        with pytest.raises(AssayError, match="belongs to other frozen weights"):
            run.loaded_engine(plan, tmp_path / "run")
    finally:
        file.write_bytes(before)


def test_a_teacher_adds_its_log_ratio_to_the_rewards_of_another_method(student: str, teacher: str) -> None:
    plan = planned("grpo", student, teacher, weight=0.5)
    engine, part = begun(plan), plan.recipe.credit[0]
    rows = rows_of(plan, engine)
    gained = part(rows, Scene(plan.task, engine)).reward - rows.reward
    for row in range(len(rows)):
        own = own_logits(teacher, rows, row, plan.task.spec.action.size)
        for place in rows.mask[row].nonzero().flatten().tolist():
            wanted = 0.5 * (own[place - 1, int(rows.action[row, place])] - rows.logp[row, place])
            assert float(gained[row, place] - wanted) == pytest.approx(0.0, abs=2e-4)
    assert float(gained[~rows.mask].abs().max()) == 0.0


@pytest.fixture
def address(teacher: str) -> Iterator[str]:
    with make_server(teacher, port=0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(10.0)


@pytest.mark.parametrize("teacher", [0], indirect=True)
def test_a_teacher_at_an_address_says_what_the_folders_says(student: str, teacher: str, address: str) -> None:
    near, far = (planned("gkd", student, where) for where in (teacher, address))
    engines = [begun(plan) for plan in (near, far)]
    rows = rows_of(near, engines[0])
    ours, theirs = (
        near.recipe.credit[0](rows, Scene(near.task, one)).column("candidates")[rows.mask] for one in engines
    )
    torch.testing.assert_close(ours[..., 1], theirs[..., 1], rtol=0, atol=1e-4)
    assert torch.equal(ours[:, :20, 0], theirs[:, :20, 0])
    sampled = planned("gkd:sampled", student, address)
    score = [logp_of(one.model("teacher"), rows) for one in engines]
    torch.testing.assert_close(score[0][rows.mask], score[1][rows.mask], rtol=0, atol=1e-4)
    assert sampled.recipe.critics["teacher"] == far.recipe.critics["teacher"]
    with pytest.raises(AssayError, match="cannot tell"):
        candidates_of(engines[1].model("teacher"), rows)


@pytest.mark.parametrize("teacher", [7], indirect=True)
def test_an_address_with_other_tokens_is_refused(student: str, teacher: str, address: str) -> None:
    plan = planned("gkd", student, address)
    with pytest.raises(AssayError, match=r"--teacher .* has another vocabulary"):
        begun(plan)


def test_what_cannot_teach_is_refused_in_a_sentence(student: str, tmp_path: Path) -> None:
    other = made(tmp_path / "other", 3, text="abcabcabc")
    refused = {
        "needs a teacher. Add --teacher": ("gkd", None, None),
        "has another vocabulary than the model": ("gkd", other, None),
        "grpo has no teacher of its own. Add --teacher-weight": ("grpo", student, None),
        "is for methods without a teacher; gkd has one": ("gkd", student, 0.1),
        "samples no answers. Train gkd": ("sft", student, None),
        "the teacher of 'sdpo' is the policy itself": ("sdpo", student, 0.1),
        "there is no folder": ("gkd", str(tmp_path / "none"), None),
        "Use a positive number": ("grpo", student, -1.0),
        "without a teacher. Add --teacher": ("grpo", None, 0.1),
        "does not answer": ("gkd", "http://127.0.0.1:9", None),
    }
    for sentence, words in refused.items():
        with pytest.raises(AssayError, match=sentence):
            begun(planned(words[0], student, *words[1:]))
    with pytest.raises(AssayError, match="--teacher is for pretrained models"):
        make_plan("gkd", "addition-1", steps=1, options=RunOptions(language=LanguageOptions(teacher=student)))
