"""One file a method."""
