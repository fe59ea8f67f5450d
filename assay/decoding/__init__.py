"""Decoding in the trainer's own process: `fast` for what kernels can decode, `decode` for every actor."""
