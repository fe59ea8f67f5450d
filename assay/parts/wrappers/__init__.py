"""Shared parts: policies around trained models."""
