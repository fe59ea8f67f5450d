"""Graphs of ppo's update with invented costs, on which plans are compared."""

from assay.runs.placements import ppo_graph

POOR = ppo_graph((30.0, 0.3), (12.0, 0.6), (30.0, 0.8), 0.5)
"""Calls that gain little from more devices: generation least."""
GOOD = ppo_graph((40.0, 0.5), (6.0, 0.8), (30.0, 0.9), 1.0)
"""Calls that gain more."""
PERFECT = ppo_graph((40.0, 1.0), (0.0, 1.0), (30.0, 1.0), 0.0)
"""Calls that are n times as fast on n devices, with free scores."""
