"""Shared parts: credit."""
