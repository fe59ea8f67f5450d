"""Where training batches come from."""
