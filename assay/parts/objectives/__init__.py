"""Shared parts: objectives."""
