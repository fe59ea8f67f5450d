"""Bodies, heads and models by name, and their homes."""

# ruff: noqa: I001
# fmt: off
from assay.models.action_units import ActionUnits as ActionUnits
from assay.models.bodies.by_data import StandardisedByData as StandardisedByData
from assay.models.bodies.convolution import Convolution as Convolution
from assay.models.bodies.module import ModuleBody as ModuleBody
from assay.models.bodies.normalised import Normalised as Normalised, NormedEnsemble as NormedEnsemble
from assay.models.bodies.paths import (
    Timed as Timed, path_logp as path_logp, path_noise as path_noise, time_features as time_features,
    walked as walked,
)
from assay.models.bodies.perceptron import (
    Ensemble as Ensemble, Perceptron as Perceptron, Vectors as Vectors, feature_size as feature_size,
    features as features, layered as layered, perceptron as perceptron, shaped as shaped, vectors as vectors,
)
from assay.models.bodies.recalling import WithHistory as WithHistory
from assay.models.bodies.recurrent import Gru as Gru, Lstm as Lstm
from assay.models.bodies.reading_table import ReadingTable as ReadingTable
from assay.models.bodies.residual import Residual as Residual, ResidualNetworks as ResidualNetworks
from assay.models.bodies.standardised import Standardised as Standardised
from assay.models.bodies.stacks import (
    Blocks as Blocks, CausalStack as CausalStack, Embedding as Embedding, LinearTokens as LinearTokens, MAKES as MAKES,
    Stack as Stack,
)
from assay.models.bodies.table import Table as Table
from assay.models.bodies.token_module import TokenModule as TokenModule
from assay.models.bodies.token_table import TokenTable as TokenTable
from assay.models.bodies.trajectory import Trajectory as Trajectory, TrajectoryOutputs as TrajectoryOutputs
from assay.models.bodies.transformer import Transformer as Transformer
from assay.models.heads.bins import (
    Bins as Bins, Quantiles as Quantiles, decoded as decoded, midpoints as midpoints, two_hot_labels as two_hot_labels,
)
from assay.models.heads.bounded import (
    Deterministic as Deterministic, SquashedGaussian as SquashedGaussian, scored_distance as scored_distance,
)
from assay.models.heads.categorical import Categorical as Categorical
from assay.models.heads.diffusion import Diffusion as Diffusion
from assay.models.heads.dynamics import Dynamics as Dynamics
from assay.models.heads.factored import Factored as Factored
from assay.models.heads.flow import Flow as Flow
from assay.models.heads.forward_backward import (
    ForwardBackward as ForwardBackward, ForwardBackwardActor as ForwardBackwardActor,
)
from assay.models.heads.gaussian import (
    Distribution as Distribution, Gaussian as Gaussian, GaussianPolicy as GaussianPolicy,
)
from assay.models.heads.goals import need_goal as need_goal, of_length_root as of_length_root
from assay.models.heads.masks import apply_mask as apply_mask
from assay.models.heads.paths import OfPaths as OfPaths, PathPolicy as PathPolicy
from assay.models.heads.score import TextScore as TextScore
from assay.models.heads.spaces import (
    is_finite as is_finite, need_bounds as need_bounds, need_box as need_box, need_discrete as need_discrete,
    register_bounds as register_bounds,
)
from assay.models.heads.value import (
    Acting as Acting, ActionValue as ActionValue, Greedy as Greedy, Value as Value,
    scored_softmax as scored_softmax,
)
from assay.models.heads.waves import Waves as Waves
from assay.models.model import Critic as Critic, Policy as Policy, Temperature as Temperature
