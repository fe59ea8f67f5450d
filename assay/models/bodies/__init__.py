"""Networks that turn contexts into features."""
