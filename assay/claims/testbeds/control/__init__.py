"""Control testbeds with known optima, by name."""

from assay.claims.testbeds.control import coded_rule, cost_corridor, darkroom, detour, failing_sensors, forked, gamble
from assay.claims.testbeds.control import logged_tree, random_mdp, reality_gap, treatment

LEVELS = {
    "random-mdp": random_mdp.random_mdp,
    "logged-tree": logged_tree.logged_tree,
    "cost-corridor": cost_corridor.cost_corridor,
    "coded-rule": coded_rule.coded_rule,
    "forked": forked.forked,
    "gamble": gamble.gamble,
    "reality-gap": reality_gap.reality_gap,
    "darkroom": darkroom.darkroom,
    "detour": detour.detour,
    "failing-sensors": failing_sensors.failing_sensors,
    "treatment": treatment.treatment,
}
