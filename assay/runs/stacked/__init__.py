"""Several seeds of one recipe trained together, in one process: the same parts, losses mapped over the seeds."""
