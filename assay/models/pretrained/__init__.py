"""Pretrained models from a folder or the Hugging Face hub."""
