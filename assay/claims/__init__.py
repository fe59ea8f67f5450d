"""What methods claim, and the probes that exact claims are computed with."""
