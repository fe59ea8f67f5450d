"""What it was worth."""
