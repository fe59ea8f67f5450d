"""What `assay serve` answers: tokens of one policy by the routes of vLLM 0.32, with this package's own sampler, and
conversations by OpenAI's (`open_chat`).

Requests that name a batch are sampled together once all its rows are there, with the random numbers of their seeds: the
rows are then those that a run without a server samples, bit by bit on a CPU. A pause lets what is being sampled finish
(vLLM stops it in the middle and continues it with the new weights); requests that arrive later wait for `/resume`.

Tensors have any shape.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.http import Answer, Caller, Refused
from assay.core.record import State
from assay.core.slots import logp_of
from assay.core.spaces import Spec, Vocabulary
from assay.decoding.sampling_parameters import Narrowing
from assay.engine.flat import Flat
from assay.engine.machine import tuned
from assay.ops.decoded import Stop, Written
from assay.parts.credit.teacher import ranked
from assay.rollouts.completions import Ends, answers
from assay.rollouts.text import Tokenizer
from assay.runs import hardware
from assay.runs.checks import check_device
from assay.runs.distributed.open_chat import CALLS, OpenChat
from assay.runs.distributed.servers import GENERATE, LOGP, OWNER, as_rows
from assay.runs.distributed.weights import tree_of
from assay.runs.options.scoring import RebuiltOptions
from assay.runs.plan import plan_of
from assay.runs.rebuilt import rebuilt_plan
from assay.runs.run import loaded_engine
from assay.tasks.adapters.agents.chat import Bounds
from assay.tasks.adapters.agents.sampling import Reply, Row, sampled
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.prompts import PromptTask

WAIT, LONGEST = 60.0, 3600.0
"""Seconds that a row waits for the others of its batch, and at most for its tokens or the end of a pause."""
MOST_TOKENS, MOST_ROWS, MOST_BESIDE = 1 << 20, 4096, 1024
LEAST_CONTEXT = 2048
"""Tokens of a conversation that a run's policy answers, even if its task has shorter ones."""


@dataclass(eq=False)
class Policy:
    """The policy that is served: its parameters and its tokens."""

    name: str
    actor: Any
    flat: Flat
    tokenizer: Tokenizer
    num_parameters: int
    most_tokens: int

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens."""
        return self.tokenizer.vocabulary

    def load(self, told: Mapping[str, Any]) -> None:
        """Takes over the weights of a file; Refused if it is not there, torn, or of another model.

        The sentence is the same for a file that is missing, of another kind or of another digest: a client learns
        nothing about the disk. A pipe is not opened, which would wait for its other end with the model held.
        """
        path, digest, model = (checked(told, name, str) for name in ("path", "sha256", "model"))
        try:
            if not Path(path).is_file():
                raise ValueError(path)
            tree = tree_of(Path(path), digest)[model]
        except (OSError, SafetensorError, ValueError, LookupError, TypeError, RecursionError):
            what = f"{path[:200]} holds no weights of '{model[:60]}' with this digest, or cannot be read here"
            raise Refused(400, f"{what}. Share the folder.") from None
        if odd := shapes(tree).items() ^ shapes(self.flat.snapshot()).items():
            what = f"'{min(odd)[0]}' is missing, or has another shape, in one of them"
            raise Refused(400, f"the weights of {path} are not those of {self.name}: {what}. Serve the same model.")
        self.flat.restore(tree)


def shapes(tree: State) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each weight; () for what a model keeps besides."""
    return {name: tuple(value.shape) if isinstance(value, Tensor) else () for name, value in tree.items()}


def is_run(folder: Path) -> bool:
    """Returns whether a folder has a config.json that is not that of a pretrained model."""
    path = folder / "config.json"
    try:
        return "model_type" not in json.loads(path.read_text())
    except (OSError, ValueError, TypeError):
        return path.is_file()


def served_policy(address: str, rebuilt: RebuiltOptions = RebuiltOptions()) -> Policy:
    """Returns the acting policy of a run folder's newest checkpoint, or a pretrained model by folder or hub id.

    A run computes as it did, a model as one that is trained: on a GPU if there is one, in bfloat16; `rebuilt` says
    otherwise.
    """
    rebuilt.check()
    if is_run(Path(address)):
        plan = plan_of(address, model=rebuilt.model, device=hardware.device_here(address, rebuilt.device))
        plan = rebuilt_plan(plan, rebuilt, {})
        if not isinstance(plan.task, PromptTask | DialogueTask):
            raise AssayError(
                f"{address} was trained on '{plan.task.name}', which has no prompts. Serve a language run."
            )
        engine, step = loaded_engine(plan, Path(address))
        name, acting = f"{plan.recipe.name} on {plan.task.name}, step {step}", plan.recipe.behaviour
        most = max(LEAST_CONTEXT, plan.task.spec.horizon)
        num = sum(flat.num_parameters for flat in engine.flats.values())
        return Policy(name, engine.models[acting], engine.flats[acting], plan.task.tokenizer, num, most)
    from assay.models.pretrained.transformers import PretrainedTokenizer, pinned

    if (rebuilt.model, rebuilt.compiled, rebuilt.micro_batch, rebuilt.set_) != (None, None, None, ()):
        what = "--model, --compiled, --micro-batch and --set are for runs"
        raise AssayError(f"'{address}' is a pretrained model; {what}. Use --device and --dtype, or serve a run folder.")
    device, dtype = served_on(rebuilt)
    model = replace(pinned(address), dtype=dtype)
    tokenizer = PretrainedTokenizer(model.path, model.revision)
    actor = model.build(Spec(tokenizer.vocabulary, tokenizer.vocabulary, horizon=1)).to(device)
    flat = Flat(actor)
    most = min(tokenizer.most_tokens, MOST_TOKENS)
    return Policy(address, actor, flat, tokenizer, flat.num_parameters, most)


def served_on(rebuilt: RebuiltOptions) -> tuple[str, str]:
    """Returns the device and the dtype of a pretrained model."""
    device = rebuilt.device or (hardware.GPU if torch.cuda.is_available() else "cpu")
    check_device(device)
    is_half = device.partition(":")[0] == hardware.GPU and hardware.has_half(device)
    return device, rebuilt.dtype or (hardware.HALF if is_half else hardware.FULL)


# ---------------------------------------------------------------------------------------------------- requests
@dataclass(frozen=True)
class Wanted:
    """One row: its prompt, start, seed and time, where it ends, how it is drawn, and how many tokens are wanted with
    their log-probabilities beside each one of its prompt (None: not even that one).
    """

    prompt: list[int]
    start: int
    seed: int
    time: int
    max_tokens: int
    greedy: bool
    narrowing: Narrowing
    stops: tuple[str, ...]
    beside: int | None


@dataclass(eq=False)
class Batch:
    """Rows that are sampled together, by place, and what came of them."""

    size: int
    rows: dict[int, Wanted] = field(default_factory=dict)
    is_full: threading.Event = field(default_factory=threading.Event)
    is_done: threading.Event = field(default_factory=threading.Event)
    written: Written | None = None
    version: str = ""
    refused: Refused | None = None


def checked(told: Any, name: str, kind: type, usual: Any = None) -> Any:
    """Returns an entry of a request; Refused if it has another type, or is missing and has no default."""
    value = told.get(name, usual) if isinstance(told, Mapping) else None
    value = float(value) if kind is float and type(value) is int else value
    if type(value) is not kind:
        raise Refused(400, f"'{name}' is {value!r:.60}. Send {kind.__name__}.")
    return value


def wanted(body: Mapping[str, Any], size: int) -> tuple[Wanted, str, int, int]:
    """Returns a row with the name of its batch, its place there and the number of rows."""
    prompt, how = checked(body, "token_ids", list), checked(body, "sampling_params", dict)
    if not prompt or any(type(one) is not int or not 0 <= one < size for one in prompt):
        raise Refused(400, f"'token_ids' has a token that is out of vocabulary. Send tokens from 0 to {size - 1}.")
    if checked(how, "n", int, 1) != 1:
        raise Refused(400, f"'n' is {how['n']}. Use 1, and a request for each row.")
    if not 1 <= (most := checked(how, "max_tokens", int, 16)) <= MOST_TOKENS:
        raise Refused(400, f"'max_tokens' is {most}. Use 1 to {MOST_TOKENS}.")
    seed = checked(how, "seed", int, secrets.randbits(63))
    more = checked(how, "extra_args", dict, {})
    rows, place, time = checked(more, "rows", int, 1), checked(more, "place", int, 0), checked(more, "time", int, 0)
    seed = checked(more, "seed", int, seed)
    if not 0 <= place < rows <= MOST_ROWS or not -(2**63) <= seed < 2**63 or not 0 <= time < 2**62:
        raise Refused(400, f"row {place} of {rows} has seed {seed}. Use at most {MOST_ROWS} rows, and 64 bits.")
    stops = tuple(str(one) for one in checked(how, "stop", list, []) if one)
    start = checked(more, "start", int, 0)
    beside = checked(how, "prompt_logprobs", int, 0) if "prompt_logprobs" in how else None
    if beside is not None and not 0 <= beside <= min(size, MOST_BESIDE):
        raise Refused(400, f"'prompt_logprobs' is {beside}. Use 0 to {min(size, MOST_BESIDE)}.")
    if not -(2**63) <= start < 2**63:
        raise Refused(400, f"'start' is {start:.3g}. Use 64 bits.")
    greedy = how.get("temperature") == 0 or checked(more, "greedy", bool, False)
    row = Wanted(prompt, start, seed, time, most, greedy, drawn_by(how), stops, beside)
    return row, checked(more, "batch", str, secrets.token_hex(16)), place, rows


def drawn_by(how: Mapping[str, Any]) -> Narrowing:
    """Returns the sampling parameters of a request; Refused if one is out of range. Temperature 0 is greedy, top-k 0 or
    -1 is all tokens.
    """
    cold, top_k = checked(how, "temperature", float, 1.0), checked(how, "top_k", int, 0)
    top_p, min_p = checked(how, "top_p", float, 1.0), checked(how, "min_p", float, 0.0)
    try:
        return Narrowing(cold or 1.0, 0 if top_k == -1 else top_k, top_p, min_p)
    except AssayError as error:
        raise Refused(400, f"{error}.") from None


# ---------------------------------------------------------------------------------------------------- the service
class Service:
    """Answers requests by route, from any thread. One batch at a time is sampled; weights change between batches."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.version = policy, "default"
        self.model, self.turn = threading.Lock(), threading.Condition()
        self.batches: dict[str, Batch] = {}
        self.is_paused = self.is_updating = False
        bounds = Bounds(policy.most_tokens, policy.most_tokens, CALLS, LONGEST)
        self.chat = OpenChat(policy.name, policy.tokenizer, bounds, self.drawn)
        self.routes: dict[tuple[str, str], Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
            ("GET", "/health"): lambda body: {},
            ("GET", "/v1/models"): self.models,
            ("GET", "/weight_info"): lambda body: {"weight_version": self.version},
            ("POST", "/pause"): lambda body: self.gate(paused=True),
            ("POST", "/resume"): lambda body: self.gate(paused=False),
            ("POST", "/init_weight_transfer_engine"): lambda body: {"message": "Weights come as files"},
            ("POST", "/start_weight_update"): lambda body: self.gate(updating=True),
            ("POST", "/update_weights"): self.update,
            ("POST", "/finish_weight_update"): self.finish,
            ("POST", GENERATE): self.generate,
        }

    def answer(self, method: str, path: str, body: Mapping[str, Any], caller: Caller = Caller()) -> Answer:
        """Returns the answer of a route; those of conversations have other rules, and Refused for an unknown route."""
        route = self.routes.get((method, path.partition("?")[0]))
        return self.chat.answer(method, path, body, caller) if route is None else route(body)

    def close(self) -> None:
        """Ends the thread that samples for conversations."""
        self.chat.close()

    def models(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Lists the one model, in OpenAI's form."""
        facts = {"object": "model", "owned_by": OWNER, "vocab_size": self.policy.vocabulary.size}
        return {"object": "list", "data": [{"id": self.policy.name, **facts}]}

    # ------------------------------------------------------------------------------------------------ weights
    def gate(self, *, paused: bool | None = None, updating: bool | None = None) -> Mapping[str, Any]:
        """Stops sampling, after the batch that is being sampled, or lets it go on."""
        with self.turn:
            self.is_paused = self.is_paused if paused is None else paused
            self.is_updating = self.is_updating if updating is None else updating
            self.turn.notify_all()
        with self.held():
            return {"status": "paused" if self.is_paused else "resumed"}

    @property
    def is_open(self) -> bool:
        """Whether batches may be sampled."""
        return not self.is_paused and not self.is_updating

    @contextmanager
    def held(self) -> Iterator[None]:
        """Has the model alone inside the block."""
        if not self.model.acquire(timeout=LONGEST):
            raise Refused(503, f"the model was busy for {LONGEST:g} s. Send smaller batches.")
        try:
            yield
        finally:
            self.model.release()

    def update(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Loads weights from a file."""
        if not self.is_updating:
            raise Refused(409, "no update was started. Send /start_weight_update first.")
        try:
            with self.held():
                self.policy.load(checked(body, "update_info", dict))
        except Refused:
            self.gate(updating=False)  # the weights are as before
            raise
        return {"message": "Weights updated"}

    def finish(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ends an update: answers have its version from here on."""
        with self.held():
            self.version = checked(body, "weight_version", str, self.version)
        return self.gate(updating=False)

    # ------------------------------------------------------------------------------------------------ tokens
    def generate(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the tokens of a row, their log-probabilities and the version of the weights."""
        row, name, place, rows = wanted(body, self.policy.vocabulary.size)
        if len(row.prompt) > (most := self.policy.most_tokens):
            raise Refused(400, f"'token_ids' has {len(row.prompt)} tokens. Send at most {most}, which the model reads.")
        with self.turn:
            batch = self.batches.setdefault(name, Batch(rows))
            if batch.size != rows:
                raise Refused(400, f"batch {name[:60]} has {batch.size} rows, and 'rows' is {rows}. Send equal ones.")
            batch.rows[place] = row
            if is_last := len(batch.rows) == rows:
                del self.batches[name]
                batch.is_full.set()
        if is_last:
            try:
                self.sample(batch)
            except Refused as refused:
                batch.refused = refused
            finally:
                batch.is_done.set()
        if not batch.is_full.wait(WAIT) or not batch.is_done.wait(LONGEST):
            self.batches.pop(name, None)
            raise Refused(503, f"batch {name} has {len(batch.rows)} of {rows} rows. Send all at the same time.")
        if batch.refused is not None or batch.written is None:
            raise batch.refused or Refused(500, "sampling failed. Look at the server's terminal.")
        return self.told(row, batch.written.rows(torch.tensor([place])), batch.version)

    def sample(self, batch: Batch) -> None:
        """Samples all rows of a batch, when there is no pause."""
        rows = [batch.rows[place] for place in sorted(batch.rows)]
        ends = {(row.max_tokens, row.greedy, row.narrowing, row.stops) for row in rows}
        if len(ends) > 1:
            raise Refused(400, "rows of a batch differ in 'max_tokens', 'stop' or how they are drawn. Send equal ones.")
        ((most, greedy, narrowing, stops),) = ends
        actor = narrowing.wrap(self.policy.actor)
        stop = Stop(self.policy.tokenizer.decode, stops) if stops else None
        where, prompts = Ends(most, self.policy.vocabulary, stop), [row.prompt for row in rows]
        starts, seeds, since = np.array([(row.start, row.seed, row.time) for row in rows], dtype=np.int64).T.copy()
        words = seeds.view(np.uint64)
        with self.sampling():
            batch.written = answers(actor, prompts, starts, words, where, greedy=greedy, since=since)
            batch.version = self.version

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Has the model alone inside the block, which begins when there is no pause."""
        while True:
            with self.turn:
                if not self.turn.wait_for(lambda: self.is_open, LONGEST):
                    raise Refused(503, f"the server was paused for {LONGEST:g} s. Send /resume.")
            with self.held(), tuned(self.policy.num_parameters):
                if self.is_open:  # or a pause came in between
                    yield
                    return

    def drawn(self, rows: list[Row]) -> list[Reply]:
        """Returns the replies to rows of conversations."""
        with self.sampling():
            replies = sampled(self.policy.actor, rows, self.policy.tokenizer)
            return [replace(one, version=self.version) for one in replies]

    def told(self, row: Wanted, written: Written, version: str) -> Mapping[str, Any]:
        """Returns a row as JSON."""
        num = int(written.length)
        tokens, logp = written.tokens[0, :num].tolist(), written.logp[0, :num].tolist()
        content = [{"token_id": token, "logprob": value} for token, value in zip(tokens, logp, strict=True)]
        if written.logp_model is not None:
            model = written.logp_model[0, :num].tolist()
            content = [one | {LOGP: value} for one, value in zip(content, model, strict=True)]
        choice = {"index": 0, "token_ids": tokens, "logprobs": {"content": content}}
        choice["finish_reason"] = "stop" if bool(written.has_ended) else "length"
        choice["weight_versions"] = [{"version": version, "start": 0, "end": num}]
        if row.beside is None:
            return {"choices": [choice]}
        return {"choices": [choice], "prompt_logprobs": self.scored(row.prompt, row.beside)}

    @torch.no_grad()
    def scored(self, prompt: list[int], num: int = 0) -> list[dict[str, Any] | None]:
        """Returns the log-probabilities of each token of a prompt and of the `num` likeliest; None for the first."""
        with self.held(), tuned(self.policy.num_parameters):
            rows = as_rows([prompt], self.policy.vocabulary).to(self.policy.flat.values.device)
            logp = logp_of(self.policy.actor, rows)[0].tolist()
            likely = ranked(self.policy.actor, rows, num)[0].tolist() if num else [[]] * len(prompt)
        found: list[dict[str, Any] | None] = [None]
        for token, value, others in list(zip(prompt, logp, likely, strict=True))[1:]:
            known = {int(one): other for one, other in others} | {token: value}
            found.append({str(one): {"logprob": other} for one, other in known.items()})
        return found
