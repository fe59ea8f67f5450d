"""Pretrained models from a folder or a hub."""
