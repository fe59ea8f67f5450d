"""Several seeds of one recipe on the one engine: parameters and batches have a leading seed axis."""
