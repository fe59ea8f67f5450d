"""Shared parts: curricula."""
