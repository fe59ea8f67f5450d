"""Shared parts: fits of a prediction to a target."""
