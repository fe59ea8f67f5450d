"""Assay: one reinforcement-learning library for tokens and torques."""

__version__ = "0.1.0"
