"""Shared parts: constraints."""
