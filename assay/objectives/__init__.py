"""Losses that improve the actor."""
