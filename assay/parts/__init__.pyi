"""The parts by name, and their homes."""

# ruff: noqa: I001
# fmt: off
from assay.parts.aggregations import (
    Among as Among, FixedLength as FixedLength, OverDecisions as OverDecisions,
    OverTransitions as OverTransitions, SequenceMean as SequenceMean, SequenceSum as SequenceSum,
    TokenMean as TokenMean, Weighed as Weighed,
)
from assay.parts.constraints.cost import (
    CostCredit as CostCredit, CostCritic as CostCritic, CostToGo as CostToGo, CostValues as CostValues,
    channel_of as channel_of,
)
from assay.parts.constraints.multiplier import (
    Ascent as Ascent, Multiplier as Multiplier, Pid as Pid, Priced as Priced, Rule as Rule,
)
from assay.parts.credit.cost import EndAtCost as EndAtCost
from assay.parts.credit.judged import ActionValues as ActionValues
from assay.parts.credit.modes import CountModes as CountModes
from assay.parts.credit.neighbours import decision_after as decision_after, decision_before as decision_before
from assay.parts.credit.off_policy import OldPolicy as OldPolicy, SamplerWeight as SamplerWeight
from assay.parts.credit.outcome import (
    BatchMean as BatchMean, Constant as Constant, GroupDeviation as GroupDeviation, GroupMean as GroupMean,
    LeaveOneOut as LeaveOneOut, NoScale as NoScale, OutcomeCredit as OutcomeCredit,
)
from assay.parts.credit.reweigh import BySign as BySign, Reweigh as Reweigh, WithoutIdle as WithoutIdle
from assay.parts.credit.segments import SegmentGae as SegmentGae, Spans as Spans
from assay.parts.credit.self_teacher import (
    SHOWN as SHOWN, SolvedTeacher as SolvedTeacher, need_prompts as need_prompts, solved_sibling as solved_sibling,
)
from assay.parts.credit.shaping import (
    Informative as Informative, KlInReward as KlInReward, OverlongPenalty as OverlongPenalty, PairUp as PairUp,
    RightOrWrong as RightOrWrong,
)
from assay.parts.credit.step_judges import (
    ChatSteps as ChatSteps, FromReference as FromReference, StepJudge as StepJudge, check_rows as check_rows,
)
from assay.parts.credit.step_marks import (
    Capped as Capped, Signed as Signed, StepMarks as StepMarks, StepRewards as StepRewards, Telescoping as Telescoping,
    some_scores as some_scores,
)
from assay.parts.credit.steps import TextSteps as TextSteps, WrittenTask as WrittenTask, steps_of as steps_of
from assay.parts.credit.teacher import (
    TeacherCandidates as TeacherCandidates, TeacherReward as TeacherReward, candidates_of as candidates_of,
    likeliest_actions as likeliest_actions,
)
from assay.parts.credit.temporal import Gae as Gae, RewardToGo as RewardToGo, Whiten as Whiten
from assay.parts.critics.conservative import (
    Calibrated as Calibrated, Conservative as Conservative, ConservativeChoices as ConservativeChoices,
)
from assay.parts.critics.dynamics import DynamicsLikelihood as DynamicsLikelihood
from assay.parts.critics.measures import (
    MaximizeMeasure as MaximizeMeasure, MeasuredRows as MeasuredRows, MeasureLoss as MeasureLoss, OfPairs as OfPairs,
    Orthonormal as Orthonormal,
)
from assay.parts.critics.score import BradleyTerry as BradleyTerry
from assay.parts.critics.td import Td as Td
from assay.parts.curricula.in_order import InOrder as InOrder, next_starts as next_starts
from assay.parts.curricula.pool import (
    Passes as Passes, Pool as Pool, PoolRule as PoolRule, Visited as Visited, in_passes as in_passes,
)
from assay.parts.fits.logistic import Logistic as Logistic
from assay.parts.fits.quantile import QuantileHuber as QuantileHuber, quantile_huber as quantile_huber
from assay.parts.fits.squared import Expectile as Expectile, Huber as Huber, Squared as Squared
from assay.parts.importance import ByImportance as ByImportance
from assay.parts.objectives.denoising import Alike as Alike, Denoising as Denoising, Weight as Weight
from assay.parts.objectives.guided import (
    FOREIGN as FOREIGN, ForeignWeight as ForeignWeight, Guided as Guided, Shaped as Shaped, is_foreign as is_foreign,
)
from assay.parts.objectives.distil import (
    Distil as Distil, JensenShannon as JensenShannon, TEACHER_WEIGHT as TEACHER_WEIGHT, taught as taught,
)
from assay.parts.objectives.imitation import LogLikelihood as LogLikelihood
from assay.parts.objectives.labelled import CrossEntropy as CrossEntropy, OutcomeAsLabel as OutcomeAsLabel
from assay.parts.objectives.pathwise import (
    MatchEntropy as MatchEntropy, MaximizeQ as MaximizeQ, MaximizeSoftQ as MaximizeSoftQ,
)
from assay.parts.objectives.policy import PolicyGradient as PolicyGradient, ratio_metrics as ratio_metrics
from assay.parts.objectives.preference import (
    OverPairs as OverPairs, PreferencePair as PreferencePair, mean_logp as mean_logp, pair_totals as pair_totals,
    summed_over_pairs as summed_over_pairs,
)
from assay.parts.objectives.ratio import (
    MOST_CLIPPED as MOST_CLIPPED, ProductRatio as ProductRatio, SequenceRatio as SequenceRatio,
    TokenRatio as TokenRatio, clipped_share as clipped_share, of_rows as of_rows,
)
from assay.parts.objectives.regression import RegressLogRatio as RegressLogRatio
from assay.parts.objectives.scaled import MaximizeScaledQ as MaximizeScaledQ, ValueSize as ValueSize
from assay.parts.objectives.trust import (
    Clip as Clip, DualClip as DualClip, LARGEST_LOG_RATIO as LARGEST_LOG_RATIO, NoTrust as NoTrust,
    SoftGate as SoftGate, StopGradientWeight as StopGradientWeight, Unclipped as Unclipped,
    bounded_ratio as bounded_ratio,
)
from assay.parts.objectives.weighted import (
    CLIPPED_WEIGHTS as CLIPPED_WEIGHTS, LOST_WEIGHTS as LOST_WEIGHTS, NEGLIGIBLE as NEGLIGIBLE,
    AdvantageRegression as AdvantageRegression, exponential_weight as exponential_weight,
)
from assay.parts.predictions import OfAction as OfAction, OfChoice as OfChoice, OfState as OfState
from assay.parts.regularizers.divergence import (
    EntropyBonus as EntropyBonus, KlToReference as KlToReference, KlWhereHeld as KlWhereHeld, NEVER as NEVER,
)
from assay.parts.regularizers.entropy import MaskedEntropy as MaskedEntropy, mean_above as mean_above
from assay.parts.regularizers.nearness import NearRecorded as NearRecorded
from assay.parts.rewards.combine import (
    Gated as Gated, Product as Product, Rescored as Rescored, StandardisedInGroup as StandardisedInGroup,
    Weighted as Weighted, WeightedSum as WeightedSum, placed as placed,
)
from assay.parts.rewards.cost import BoundedCosts as BoundedCosts, LengthCost as LengthCost, TaskCost as TaskCost
from assay.parts.rewards.function import (
    FromFunction as FromFunction, on_last_decision as on_last_decision, uniform_of as uniform_of,
)
from assay.parts.rewards.judges import (
    FunctionJudge as FunctionJudge, OutcomeJudge as OutcomeJudge, PairwiseJudge as PairwiseJudge,
    margins as margins,
)
from assay.parts.rewards.labels import ByLabel as ByLabel, check_labels as check_labels, labels_of as labels_of
from assay.parts.rewards.learned import FromModel as FromModel
from assay.parts.rewards.length import ByLength as ByLength, inverse as inverse
from assay.parts.rewards.likelihood import (
    Reduce as Reduce, geometric_mean as geometric_mean, mean_probability as mean_probability,
)
from assay.parts.rewards.noise import Noisy as Noisy, Rates as Rates, noisy as noisy
from assay.parts.rewards.ranking import RightRanking as RightRanking
from assay.parts.rewards.rubric import (
    ByPattern as ByPattern, RubricJudge as RubricJudge, pattern_of as pattern_of,
)
from assay.parts.rewards.scaled import ScaledReward as ScaledReward
from assay.parts.rewards.text import Matches as Matches, OfText as OfText
from assay.parts.rollouts.episodes import (
    Around as Around, Episodes as Episodes, Fragments as Fragments, group_rows as group_rows,
)
from assay.parts.rollouts.explore import EpsilonGreedy as EpsilonGreedy, GaussianNoise as GaussianNoise
from assay.parts.rollouts.greedy import WithGreedy as WithGreedy
from assay.parts.rollouts.hinted import (
    FIRST_AGAIN as FIRST_AGAIN, Hinted as Hinted, failed_groups as failed_groups, hinted_groups as hinted_groups,
    in_order as in_order, together as together, unhinted as unhinted, with_origin as with_origin,
)
from assay.parts.rollouts.hints import (
    Hint as Hint, InAnswer as InAnswer, InPrompt as InPrompt, before_answer as before_answer,
    check_solutions as check_solutions, check_written as check_written, decisions_within as decisions_within,
    statement as statement, states as states,
)
from assay.parts.rollouts.imagined import Imagine as Imagine
from assay.parts.rollouts.narrowed import Narrowed as Narrowed
from assay.parts.rollouts.refined import (
    Best as Best, Chosen as Chosen, Every as Every, Feedback as Feedback, Refined as Refined,
    TrueAnswer as TrueAnswer, last_members as last_members,
)
from assay.parts.rollouts.revisits import FAR as FAR, Revisits as Revisits
from assay.parts.rollouts.spliced import (
    NO_ERROR as NO_ERROR, Spliced as Spliced, longest_right as longest_right, need_steps as need_steps,
    right_decisions as right_decisions,
)
from assay.parts.rollouts.stale import Stale as Stale
from assay.parts.rollouts.standardised import Standardising as Standardising
from assay.parts.sources.completed import Completed as Completed, InverseDynamics as InverseDynamics
from assay.parts.sources.conditions import (
    Condition as Condition, Ends as Ends, Successes as Successes, WithCosts as WithCosts,
)
from assay.parts.sources.demonstrations import (
    DemonstratedDecisions as DemonstratedDecisions, Demonstrations as Demonstrations, Pairs as Pairs,
)
from assay.parts.sources.fresh import (
    FreshDecisions as FreshDecisions, FreshSequences as FreshSequences, need_fresh as need_fresh,
)
from assay.parts.sources.hindsight import Hindsight as Hindsight
from assay.parts.sources.logged import Contents as Contents, Log as Log, Logged as Logged, at as at
from assay.parts.sources.prioritised import Prioritised as Prioritised
from assay.parts.sources.recordings import Recording as Recording
from assay.parts.sources.relabelled import (
    Goals as Goals, Mixed as Mixed, Places as Places, Play as Play, Relabelled as Relabelled,
)
from assay.parts.sources.replay import (
    PLAIN as PLAIN, Replay as Replay, check_warmup as check_warmup, from_columns as from_columns,
    transitions as transitions,
)
from assay.parts.sources.retained import Retained as Retained
from assay.parts.sources.scales import (
    ReturnRange as ReturnRange, RewardScale as RewardScale, returns_to_go as returns_to_go,
)
from assay.parts.sources.shown import ShownTwice as ShownTwice
from assay.parts.sources.windows import Windows as Windows
from assay.parts.sources.with_returns import (
    LoggedWithReturns as LoggedWithReturns, RETURN as RETURN, recorded_returns as recorded_returns,
)
from assay.parts.targets.labels import Label as Label, told_apart as told_apart
from assay.parts.targets.one_step import (
    DoubleQ as DoubleQ, NextValue as NextValue, OwnAction as OwnAction, SmoothedTwin as SmoothedTwin,
    SoftTwin as SoftTwin, one_step_target as one_step_target, sampled_next as sampled_next,
    smoothed_next as smoothed_next,
)
from assay.parts.targets.recorded import Column as Column, RecordedAction as RecordedAction
from assay.parts.targets.worst import WorstToCome as WorstToCome
from assay.parts.wrappers.choosing import BestOf as BestOf, hashed_uniform as hashed_uniform
