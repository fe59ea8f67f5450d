"""The laws as functions."""
