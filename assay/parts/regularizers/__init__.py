"""Shared parts: regularizers."""
