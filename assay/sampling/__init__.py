"""Decoding in the trainer's own process, with the trainer's own weights: paged cache, shared prompts, CUDA graphs."""
