"""Pure tensor functions, no classes: randomness, groups, returns, divergences, distributions."""
