"""Learned values and their losses."""
