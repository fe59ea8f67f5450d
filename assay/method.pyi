"""The vocabulary of a method's file: names and their homes. See `method.py`."""

# ruff: noqa: I001
# fmt: off
from assay import recipes as recipes
from assay.core.answers import (
    AnswerFormat as AnswerFormat, answer_format_of as answer_format_of, marked_once as marked_once,
    reasoned_answer as reasoned_answer,
)
from assay.core.errors import AssayError as AssayError
from assay.core.metrics import Metric as Metric
from assay.core.optimizers import (
    Adam as Adam, Averaging as Averaging, Descent as Descent, ObGD as ObGD, Traced as Traced,
)
from assay.core.recipe import Copy as Copy, Phase as Phase, Recipe as Recipe, Stage as Stage
from assay.core.record import (
    COLUMNS as COLUMNS, Certified as Certified, Draw as Draw, Experience as Experience, Fit as Fit, Loss as Loss,
    Need as Need, Origin as Origin, Progress as Progress, Regressed as Regressed, Score as Score, Scored as Scored,
    State as State, Sums as Sums, concatenate as concatenate,
)
from assay.core.schedules import Delayed as Delayed, Linear as Linear
from assay.core.settings import model_name as model_name
from assay.core.slots import (
    Actor as Actor, ActorHead as ActorHead, ActorSpec as ActorSpec, Aggregation as Aggregation,
    Annotation as Annotation, AnsweringTask as AnsweringTask, Ask as Ask, Body as Body, BoxedTask as BoxedTask,
    Certificate as Certificate, CheckedTask as CheckedTask,
    Chat as Chat, Choice as Choice, Constraint as Constraint, Correcting as Correcting, CostlyTask as CostlyTask,
    CountedTask as CountedTask,
    Credit as Credit, CreditWeight as CreditWeight, CriticHead as CriticHead, CriticLoss as CriticLoss,
    CriticSpec as CriticSpec, Curriculum as Curriculum, DemonstratedTask as DemonstratedTask,
    ExactTask as ExactTask, Explore as Explore, Framing as Framing, GameTask as GameTask, Gate as Gate,
    Grower as Grower, Grown as Grown, Inferring as Inferring, Keeping as Keeping, LabelLoss as LabelLoss,
    Layered as Layered, LoggedTask as LoggedTask, ModelSpec as ModelSpec, Models as Models, Objective as Objective,
    OfData as OfData, Optimizer as Optimizer, Over as Over, Packing as Packing, PairedTask as PairedTask,
    PathActor as PathActor, Prediction as Prediction, Prepare as Prepare, PresetTask as PresetTask,
    PromptedTask as PromptedTask, ProxyTask as ProxyTask, RatioLevel as RatioLevel,
    ReadySimulation as ReadySimulation, Regression as Regression, Regularizer as Regularizer,
    RepeatingTask as RepeatingTask, ReplayableTask as ReplayableTask, ResumableTask as ResumableTask, Reward as Reward,
    RoamingTask as RoamingTask,
    Rollout as Rollout, RowStatistic as RowStatistic, Sampled as Sampled, Scene as Scene, Schedule as Schedule,
    ScriptedTask as ScriptedTask, Select as Select, SharedBody as SharedBody, Simulation as Simulation,
    Source as Source, SourcedTask as SourcedTask, Steady as Steady, SteppingTask as SteppingTask, Target as Target,
    Task as Task, TaskChange as TaskChange, TaskReader as TaskReader,
    Term as Term, TextTask as TextTask, Transform as Transform,
    TrustRegion as TrustRegion, UncertainTask as UncertainTask, View as View, Wrapper as Wrapper,
    frame_of as frame_of, has_turns as has_turns, logp_of as logp_of, most_decisions as most_decisions,
    number as number,
)
from assay.core.score_range import RIGHT as RIGHT
from assay.core.slots.scene import DISCARDED as DISCARDED
from assay.core.spaces import (
    Box as Box, Context as Context, Discrete as Discrete, MultiDiscrete as MultiDiscrete, Space as Space,
    Spec as Spec, Vocabulary as Vocabulary,
)
from assay.core.verifier import Verifier as Verifier
from assay.decoding.sampling_parameters import (
    Decodes as Decodes, LOGP_MODEL as LOGP_MODEL, NarrowedDecoder as NarrowedDecoder, Narrowing as Narrowing,
    unwrapped as unwrapped,
)
from assay.ops import (
    distributions as distributions, divergences as divergences, groups as groups, logits as logits,
    random as random, returns as returns,
)
from assay.ops.distributions import (
    HALF_LOG_TWO_PI as HALF_LOG_TWO_PI, categorical_logp as categorical_logp, normal_sample as normal_sample,
)
from assay.ops.divergences import forward_kl as forward_kl, jensen_shannon as jensen_shannon, k2 as k2, k3 as k3
from assay.ops.divergences import reverse_kl as reverse_kl, with_tail as with_tail
from assay.ops.groups import Groups as Groups
from assay.ops.later import one_later as one_later, states_after as states_after
from assay.ops.logits import likeliest as likeliest, nucleus_entropy as nucleus_entropy, over_logits as over_logits
from assay.ops.ranks import smallest as smallest
from assay.recipes.actor_critic import ppo as ppo
from assay.recipes.classified import DEMOS as DEMOS, NEEDED as NEEDED, classified as classified
from assay.recipes.cloned import cloned as cloned
from assay.recipes.cloned_paths import cloned_gaussian as cloned_gaussian, cloned_path as cloned_path
from assay.recipes.conservative import cql as cql, iql as iql, logged as logged, td3_bc as td3_bc
from assay.recipes.constrained import constrained as constrained, safe_ppo as safe_ppo
from assay.recipes.forward_backward import forward_backward as forward_backward
from assay.recipes.group import (
    reinforce as reinforce, with_kl_in_reward as with_kl_in_reward, with_minibatches as with_minibatches,
    with_policy as with_policy, with_pool as with_pool, with_regularizers as with_regularizers,
    with_token_clip as with_token_clip,
)
from assay.recipes.method import Method as Method
from assay.recipes.off_policy import dqn as dqn, sac as sac, td3 as td3
from assay.recipes.presets import (
    BIGRAMS as BIGRAMS, CONTINUOUS as CONTINUOUS, CONTROL as CONTROL, D4RL as D4RL, EVERY as EVERY,
    LANGUAGE as LANGUAGE, MUJOCO as MUJOCO, PLACES as PLACES, PREFERENCES as PREFERENCES, Preset as Preset,
    READING as READING, STALE as STALE, TABLE as TABLE,
)
from assay.recipes.rlpd import (
    CRITIC_BODY as CRITIC_BODY, OPTIMIZER as OPTIMIZER, TARGETS as TARGETS, mixed as mixed, rlpd as rlpd,
)
from assay.recipes.value_range import (
    ANSWERS as ANSWERS, BinsOfTask as BinsOfTask, SPARE as SPARE, UNKNOWN as UNKNOWN, reach_of as reach_of,
)
from assay.rollouts import text as text
from assay.rollouts.completions import complete as complete
from assay.rollouts.episodes import decided_again as decided_again
from assay.rollouts.judgements import filled as filled
from assay.rollouts.resumed_episodes import first_decisions as first_decisions
from assay.rollouts.text import (
    hash_of_text as hash_of_text, is_last_true as is_last_true, with_last_message as with_last_message,
)
from assay.tasks.language.dialogue import DialogueTask as DialogueTask
from assay.tasks.language.feedback import feedback_of as feedback_of, gives_feedback as gives_feedback
from assay.tasks.language.prompts import PromptTask as PromptTask
