"""Laws, stamps and verdicts."""
