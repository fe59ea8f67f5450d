"""Tasks made of tokens."""
