"""Tasks with continuous observations."""
