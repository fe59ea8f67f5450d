"""Tasks with several players."""
