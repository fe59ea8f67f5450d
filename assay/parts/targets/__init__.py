"""Shared parts: targets of critics."""
