"""Plans, runs, their folders, and many runs side by side."""
