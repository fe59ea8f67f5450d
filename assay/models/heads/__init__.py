"""Heads: what makes decisions, values and scores of a body's numbers."""
