"""Models: bodies, heads, and pretrained ones."""
