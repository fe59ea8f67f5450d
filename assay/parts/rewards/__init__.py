"""Shared parts: rewards."""
