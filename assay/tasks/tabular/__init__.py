"""Tasks with numbered states."""
