"""Where decisions are made."""
