"""Guards: checks of every run, of its correctness and of its learning."""
