"""Shared parts: sources."""
