"""Several seeds of one recipe in one engine: parameters and batches have a leading seed axis."""
