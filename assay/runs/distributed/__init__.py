"""Runs of several processes: ranks, gatherers, servers, weights that they share, Ray."""
