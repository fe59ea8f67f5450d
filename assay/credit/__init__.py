"""Which decision earned it."""
