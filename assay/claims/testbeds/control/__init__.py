"""Control testbeds with known optima, by name."""

from assay.claims.testbeds.control import (
    coded_rule,
    cost_corridor,
    double_well,
    logged_tree,
    lq_tracker,
    mass_family,
    random_mdp,
    torus_maze,
)

LEVELS = {
    "random-mdp": random_mdp.random_mdp,
    "logged-tree": logged_tree.logged_tree,
    "lq-tracker": lq_tracker.lq_tracker,
    "cost-corridor": cost_corridor.cost_corridor,
    "double-well": double_well.double_well,
    "torus-maze": torus_maze.torus_maze,
    "mass-family": mass_family.mass_family,
    "coded-rule": coded_rule.coded_rule,
}
