"""Claims of methods, and the probes that compute exact claims."""
