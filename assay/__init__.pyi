"""The public names of Assay, and their homes."""

# ruff: noqa: I001
# fmt: off
from assay import claims as claims, parts as parts, recipes as recipes, statistics as statistics
from assay.claims import laws as laws, probes as probes
from assay.core import schedules as schedules
from assay.core.errors import AssayError as AssayError
from assay.core.optimizers import Adam as Adam
from assay.core.recipe import Copy as Copy, Recipe as Recipe, Stage as Stage
from assay.core.record import Experience as Experience
from assay.engine.placement import Placement as Placement
from assay.recipes import presets as presets
from assay.report.shown import claim as claim, show as show
from assay.runs.compare import ablate as ablate, compare as compare, tune as tune
from assay.runs.evaluate import evaluate as evaluate
from assay.runs.run import Run as Run, load as load, resume as resume, train as train
from assay.runs.stacked import train_stacked as train_stacked
from assay.version import __version__ as __version__
