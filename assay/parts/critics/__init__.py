"""Shared parts: critics."""
