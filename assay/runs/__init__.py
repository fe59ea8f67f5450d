"""Plans, runs, jobs and comparisons."""
