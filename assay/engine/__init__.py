"""The loop, the engine, and what they use: batching, placement, guards, evaluation."""
