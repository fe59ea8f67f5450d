"""Data sets: decisions recorded once, as files, with a hash of what they hold; made by our agents, or by others."""
