"""Worker processes for the user's own code: limits on time, memory and output, and nothing left behind."""
