"""Control testbeds with known optima, by name."""

from assay.tasks.testbeds.control import logged_tree, lq_tracker, random_mdp

LEVELS = {
    "random-mdp": random_mdp.random_mdp,
    "logged-tree": logged_tree.logged_tree,
    "lq-tracker": lq_tracker.lq_tracker,
}
