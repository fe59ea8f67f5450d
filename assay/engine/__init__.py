"""The training loop, the engine, and their batching, placement, guards and evaluation."""
