"""Heads: turn a body's outputs into decisions, values and scores."""
