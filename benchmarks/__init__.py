"""Speed, as ratios to peers in one run. `python -m benchmarks --help` lists them."""
