"""Shared parts: rollouts."""
